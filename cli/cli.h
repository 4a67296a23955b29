/* What the verbs share. Private to cli/. */
#pragma once

#include "ledger.h"
#include "sys.h"

/* Exit codes that scripts can use. */
enum cli_exit { CLI_YES = 0, CLI_NO = 1, CLI_USAGE = 2, CLI_UNSUPPORTED = 3, CLI_DENIED = 4 };

struct cli_options {
	const char *policy_path, *state_dir, *root;
	bool help_policy, json;
};

int verb_check(const struct cli_options *o, int argc, char **argv);
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
};
void table_done(struct table *t);
/* Columns as wide as their widest cell, in columns of a terminal; notes behind the first cell of their row. */
void table_print(const char *const head[TABLE_COLUMNS], const struct table *t);
