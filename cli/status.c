/* cotenant status: the ledger beside what the kernel says. */
#include "cli.h"

#include <errno.h>
#include <stdio.h>

#define COLUMNS 9

static const char *const head[COLUMNS] = { "CONTAINER", "TENANT", "CLASS",  "STATE", "MECHANISM",
					   "CPUS",      "NODES",  "MEMORY", "COOKIE" };

struct row {
	char *cell[COLUMNS];
	char *note; /* the sentence below the table */
};

struct table {
	struct row *rows;
	size_t n;
};

static void table_done(struct table *t)
{
	for (size_t i = 0; i < t->n; i++) {
		for (size_t c = 0; c < COLUMNS; c++)
			free(t->rows[i].cell[c]);
		free(t->rows[i].note);
	}
	free(t->rows);
}

static char *text(const char *s)
{
	return printable(s, strlen(s), 40);
}

static char *cookie_cell(const struct entry *e, const struct observed *o)
{
	char *cell = NULL;

	if (e->plan->mechanism != MECHANISM_COOKIE)
		return strdup("-");
	return asprintf(&cell, "%zu of %zu threads", o->tagged, o->threads) < 0 ? NULL : cell;
}

static const char *state_cell(const struct entry *e, const struct observed *o)
{
	if (!o->alive)
		return "ended";
	if (e->plan->mechanism == MECHANISM_COOKIE && o->tagged != o->threads)
		return "violated";
	return entry_state_name(e->state);
}

/* One container alone: all that decided its place, a sentence a line. */
static char *all_reasons(const struct entry *e)
{
	char *note = e->why ? printable(e->why, strlen(e->why), 400) : NULL;

	for (size_t i = 0; i < e->plan->n_reasons; i++) {
		cleanup_free char *reason = printable(e->plan->reasons[i], strlen(e->plan->reasons[i]), 400);
		char *more = NULL;

		if (!reason || asprintf(&more, "%s\n  %s", note ? note : "", reason) < 0)
			continue;
		free(note);
		note = more;
	}
	return note;
}

static void fill(struct row *row, const struct entry *e, const struct observed *o, bool alone)
{
	row->cell[0] = text(e->id);
	row->cell[1] = text(e->tenant);
	row->cell[2] = text(e->class);
	row->cell[3] = text(state_cell(e, o));
	row->cell[4] = text(mechanism_name(e->plan->mechanism));
	row->cell[5] = o->has_cpuset ? mask_format(&o->cpus) : strdup("-");
	row->cell[6] = o->has_cpuset ? nodemask_format(o->mems) : strdup("-");
	row->cell[7] = text(o->memory_policy ? o->memory_policy : "-");
	row->cell[8] = cookie_cell(e, o);
	if (alone)
		row->note = all_reasons(e);
	else if (e->why)
		row->note = printable(e->why, strlen(e->why), 400);
}

static void print_table(const struct table *t)
{
	size_t width[COLUMNS];

	for (size_t c = 0; c < COLUMNS; c++) {
		width[c] = strlen(head[c]);
		for (size_t i = 0; i < t->n; i++) {
			size_t len = t->rows[i].cell[c] ? strlen(t->rows[i].cell[c]) : 0;

			width[c] = len > width[c] ? len : width[c];
		}
	}
	for (size_t c = 0; c < COLUMNS; c++)
		printf("%-*s%s", c + 1 < COLUMNS ? (int) width[c] : 0, head[c], c + 1 < COLUMNS ? "  " : "\n");
	for (size_t i = 0; i < t->n; i++)
		for (size_t c = 0; c < COLUMNS; c++)
			printf("%-*s%s", c + 1 < COLUMNS ? (int) width[c] : 0,
			       t->rows[i].cell[c] ? t->rows[i].cell[c] : "?", c + 1 < COLUMNS ? "  " : "\n");
	for (size_t i = 0; i < t->n; i++)
		if (t->rows[i].note)
			printf("%s:%s%s\n", t->rows[i].cell[0], *t->rows[i].note == '\n' ? "" : " ", t->rows[i].note);
}

static int collect(struct sys *s, const struct cli_options *o, const char *only, struct table *t, struct error *err)
{
	cleanup_ledger struct ledger *ledger = NULL;
	cleanup_facts struct facts facts = { 0 };
	char **ids = NULL;
	size_t n = 0;
	int r = ledger_open(s, o->state_dir, &ledger, err);

	r = r < 0 ? r : facts_load(s, o->root, o->state_dir, &facts, err);
	r = r < 0 ? r : ledger_ids(ledger, &ids, &n, err);
	if (r < 0)
		return r;
	t->rows = calloc(n + 1, sizeof(*t->rows));
	for (size_t i = 0; t->rows && i < n; i++) {
		cleanup_entry struct entry *e = NULL;
		struct observed seen;

		if ((only && !str_eq(only, ids[i])) || ledger_get(ledger, ids[i], &e, NULL) < 0 ||
		    sys_observe(s, ledger, &facts.cgroup, e, &seen, NULL) < 0)
			continue;
		fill(&t->rows[t->n++], e, &seen, only != NULL);
		observed_done(&seen);
	}
	ledger_ids_free(ids, n);
	return t->rows ? 0 : error_set(err, ENOMEM, "no memory");
}

int verb_status(const struct cli_options *o, int argc, char **argv)
{
	cleanup_sys struct sys sys = { .root_fd = -1 };
	cleanup_error struct error err = { 0 };
	cleanup_with(table_done) struct table table = { 0 };
	const char *only = argc > 0 ? argv[0] : NULL;
	int r = sys_open(o->root, &sys, &err);

	r = r < 0 ? r : collect(&sys, o, only, &table, &err);
	if (r < 0)
		return cli_fail(r, &err);
	if (only && table.n == 0) {
		error_set(&err, ENOENT, "container %s: not in the ledger %s", only, o->state_dir);
		return cli_fail(-ENOENT, &err);
	}
	print_table(&table);
	return CLI_YES;
}
