/* What the verbs share. Private to cli/. */
#pragma once

#include "ledger.h"
#include "sim.h"
#include "sys.h"

/* Exit codes that scripts can use. */
enum cli_exit { CLI_YES = 0, CLI_NO = 1, CLI_USAGE = 2, CLI_UNSUPPORTED = 3, CLI_DENIED = 4 };

#define CLI_POLICY "/etc/cotenant/policy.json"

struct cli_options {
	const char *policy_path, *state_dir, *root; /* NULL: not given */
	const char *svg;
	bool strategies[SIM_STRATEGIES], strategies_given;
	bool help_policy, json;
};

int verb_check(const struct cli_options *o, int argc, char **argv);
int verb_simulate(const struct cli_options *o, int argc, char **argv);
int verb_status(const struct cli_options *o, int argc, char **argv);
int verb_support(const struct cli_options *o, int argc, char **argv);

/* Prints "cotenant: TEXT" and turns a negative errno into an exit code. */
int cli_fail(int r, const struct error *err);

/* ---- a table on a terminal (cli/table.c) ---- */

#define TABLE_COLUMNS 9

struct row {
	char *cell[TABLE_COLUMNS]; /* owned, fit to be printed; NULL: memory ran out */
	char *note;                /* what is said below the table; NULL: nothing */
};

struct table {
	struct row *rows;
	size_t n;
	size_t columns; /* TABLE_COLUMNS at most */
};
void table_done(struct table *t);
/* Columns as wide as their widest cell, in columns of a terminal; notes behind the first cell of their row. */
void table_print(const char *const head[], const struct table *t);

/* ---- a picture of simulations (cli/svg.c) ---- */

/* SVG text, malloc'd: a panel for each result, CPU by time. -ENOMEM. */
int svg_draw(const struct sim_scenario *s, const struct topology *topo, struct sim_result *const results[], size_t n,
	     char **ret_text, size_t *ret_len) must_check;
