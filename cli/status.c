/* cotenant status: the ledger beside what the kernel says. */
#include "cli.h"

#include <errno.h>
#include <stdio.h>

static const char *const head[TABLE_COLUMNS] = { "CONTAINER", "TENANT", "CLASS",  "STATE", "MECHANISM",
						 "CPUS",      "NODES",  "MEMORY", "COOKIE" };

/* Whole: an id that is cut cannot be given back to us. */
static char *text(const char *s)
{
	return printable(s, strlen(s), strlen(s));
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

/* One container alone: all that decided its place, a sentence a line; first what it lacks. */
static char *all_reasons(const struct entry *e)
{
	char *note = e->why ? text(e->why) : NULL;

	for (size_t i = 0; i < e->plan->n_reasons; i++) {
		cleanup_free char *reason = text(e->plan->reasons[i]);
		char *more = NULL;

		/* What the container lacks is among the reasons for its place, and was said already. */
		if (e->why && strstr(e->why, e->plan->reasons[i]))
			continue;
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
		row->note = text(e->why);
}

/* There, but nobody can tell what was promised: no row would look like no container. */
static void fill_unreadable(struct row *row, const char *id, const struct error *why)
{
	row->cell[0] = text(id);
	row->cell[3] = strdup("unreadable");
	for (size_t c = 1; c < TABLE_COLUMNS; c++)
		if (!row->cell[c])
			row->cell[c] = strdup("-");
	row->note = text(error_text(why));
}

/* A container may end between the listing and the reading. */
static bool is_listed(struct ledger *ledger, const char *id)
{
	char **ids = NULL;
	size_t n = 0;
	bool listed = ledger_ids(ledger, &ids, &n, NULL) < 0;

	for (size_t i = 0; i < n && !listed; i++)
		listed = str_eq(ids[i], id);
	ledger_ids_free(ids, n);
	return listed;
}

struct look {
	struct sys *sys;
	struct ledger *ledger;
	struct facts facts;
	const char *only; /* NULL: all */
	size_t unreadable;
};

static void add(struct look *look, const char *id, struct table *t)
{
	cleanup_entry struct entry *e = NULL;
	cleanup_error struct error err = { 0 };
	struct observed seen;
	int r = ledger_get(look->ledger, id, &e, &err);

	if (r == -ENOENT && !is_listed(look->ledger, id))
		return;
	r = r < 0 ? r : sys_observe(look->sys, look->ledger, &look->facts.cgroup, e, &seen, &err);
	if (r < 0) {
		fill_unreadable(&t->rows[t->n++], id, &err);
		look->unreadable++;
		return;
	}
	fill(&t->rows[t->n++], e, &seen, look->only != NULL);
	observed_done(&seen);
}

static int collect(struct look *look, const struct cli_options *o, struct table *t, struct error *err)
{
	char **ids = NULL;
	size_t n = 0;
	int r = ledger_open_existing(look->sys, o->state_dir, &look->ledger, err);

	r = r < 0 ? r : facts_look(look->sys, o->root, &look->facts, err);
	r = r < 0 ? r : ledger_ids(look->ledger, &ids, &n, err);
	if (r < 0)
		return r;
	t->rows = calloc(n + 1, sizeof(*t->rows));
	for (size_t i = 0; t->rows && i < n; i++)
		if (!look->only || str_eq(look->only, ids[i]))
			add(look, ids[i], t);
	ledger_ids_free(ids, n);
	return t->rows ? 0 : error_set(err, ENOMEM, "no memory");
}

static void look_done(struct look *look)
{
	ledger_close(look->ledger);
	facts_done(&look->facts);
}

int verb_status(const struct cli_options *o, int argc, char **argv)
{
	cleanup_sys struct sys sys = { .root_fd = -1 };
	cleanup_error struct error err = { 0 };
	cleanup_with(table_done) struct table table = { 0 };
	cleanup_with(look_done) struct look look = { .sys = &sys, .only = argc > 0 ? argv[0] : NULL };
	int r = sys_open(o->root, &sys, &err);

	r = r < 0 ? r : collect(&look, o, &table, &err);
	if (r < 0)
		return cli_fail(r, &err);
	if (look.only && table.n == 0) {
		error_set(&err, ENOENT, "container %s: not in the ledger %s", look.only, o->state_dir);
		return cli_fail(-ENOENT, &err);
	}
	table_print(head, &table);
	return look.unreadable ? CLI_NO : CLI_YES;
}
