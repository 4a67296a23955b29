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

/* A container, and what the kernel says of it; or why neither can be told. */
struct seen {
	char *id;
	struct entry *entry; /* NULL: cannot be read */
	struct observed observed;
	struct error why;
};

/* Another that may run on cores which this one was to have without it. */
static const struct seen *intruder(const struct topology *topo, const struct seen *owner, const struct seen *all, size_t n)
{
	struct mask cores;

	topology_whole_cores(topo, &owner->observed.cpus, &cores);
	for (size_t i = 0; i < n; i++) {
		const struct seen *s = &all[i];

		if (s == owner || !s->entry || !s->observed.alive || !s->observed.has_cpuset ||
		    (!owner->entry->plan->exclusive && str_eq(s->entry->group, owner->entry->group)))
			continue;
		if (mask_intersects(&s->observed.cpus, &cores))
			return s;
	}
	return NULL;
}

/* What the kernel says against the plan, malloc'd; NULL: nothing. */
static char *violation(const struct topology *topo, const struct seen *s, const struct seen *all, size_t n)
{
	const struct plan *p = s->entry->plan;
	const struct observed *o = &s->observed;
	const struct seen *other = NULL;
	char *said = NULL;
	int len = 0;

	if (!o->alive || s->entry->state == ENTRY_INTENT)
		return NULL;
	if (plan_owns(p) && o->has_cpuset)
		other = intruder(topo, s, all, n);
	if (p->mechanism == MECHANISM_COOKIE && o->tagged != o->threads)
		len = asprintf(&said, "%zu of its %zu threads carry the cookie of its group", o->tagged, o->threads);
	else if (p->mechanism == MECHANISM_NO_SIBLINGS && topo->smt > 1)
		len = asprintf(&said, "SMT was switched on after it had started without a cookie");
	else if (plan_owns(p) && o->has_cpuset && !mask_subset(&o->cpus, &p->cpus))
		len = asprintf(&said, "its cpuset has been changed: it may leave the cores that it owns");
	else if (other)
		len = asprintf(&said, "container %s may run on its cores too", other->id);
	else if (p->guard && !o->guarded)
		len = asprintf(&said, "it runs without its guard");
	return len < 0 ? NULL : said;
}

static const char *state_cell(const struct entry *e, const struct observed *o)
{
	return o->alive ? entry_state_name(e->state) : "ended";
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

/* Takes `violation`. */
static void fill(struct row *row, const struct seen *s, char *violation, bool alone)
{
	const struct observed *o = &s->observed;
	const struct entry *e = s->entry;

	row->cell[0] = text(e->id);
	row->cell[1] = text(e->tenant);
	row->cell[2] = text(e->class);
	row->cell[3] = text(violation ? "violated" : state_cell(e, o));
	row->cell[4] = text(mechanism_name(e->plan->mechanism));
	row->cell[5] = o->has_cpuset ? mask_format(&o->cpus) : strdup("-");
	row->cell[6] = o->has_cpuset ? nodemask_format(o->mems) : strdup("-");
	row->cell[7] = text(o->memory_policy ? o->memory_policy : "-");
	row->cell[8] = cookie_cell(e, o);
	if (violation)
		row->note = text(violation);
	else if (alone)
		row->note = all_reasons(e);
	else if (e->why)
		row->note = text(e->why);
	free(violation);
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
	struct seen *seen;
	size_t n_seen;
	size_t bad; /* rows that are unreadable or violated */
};

static void observe(struct look *look, const char *id)
{
	struct seen *s = &look->seen[look->n_seen];
	int r = ledger_get(look->ledger, id, &s->entry, &s->why);

	if (r == -ENOENT && !is_listed(look->ledger, id)) {
		error_done(&s->why);
		return;
	}
	s->id = strdup(id);
	if (r == 0)
		sys_observe(look->sys, look->ledger, &look->facts.cgroup, s->entry, &s->observed);
	look->n_seen += s->id != NULL;
}

static int observe_all(struct look *look, const struct cli_options *o, struct error *err)
{
	char **ids = NULL;
	size_t n = 0;
	int r = ledger_open_existing(look->sys, o->state_dir, &look->ledger, err);

	r = r < 0 ? r : facts_look(look->sys, o->root, &look->facts, err);
	r = r < 0 ? r : ledger_ids(look->ledger, &ids, &n, err);
	if (r < 0)
		return r;
	look->seen = calloc(n + 1, sizeof(*look->seen));
	for (size_t i = 0; look->seen && i < n; i++)
		observe(look, ids[i]);
	ledger_ids_free(ids, n);
	return look->seen ? 0 : error_no_memory(err);
}

/* Who shares a core with whom is told from all of them, whichever is shown. */
static int collect(struct look *look, const struct cli_options *o, struct table *t, struct error *err)
{
	int r = observe_all(look, o, err);

	if (r < 0)
		return r;
	t->rows = calloc(look->n_seen + 1, sizeof(*t->rows));
	if (!t->rows)
		return error_no_memory(err);
	for (size_t i = 0; i < look->n_seen; i++) {
		const struct seen *s = &look->seen[i];
		char *against = NULL;

		if (look->only && !str_eq(look->only, s->id))
			continue;
		if (s->entry)
			against = violation(look->facts.topo, s, look->seen, look->n_seen);
		look->bad += !s->entry || against;
		if (s->entry)
			fill(&t->rows[t->n++], s, against, look->only != NULL);
		else
			fill_unreadable(&t->rows[t->n++], s->id, &s->why);
	}
	return 0;
}

static void look_done(struct look *look)
{
	for (size_t i = 0; i < look->n_seen; i++) {
		free(look->seen[i].id);
		entry_free(look->seen[i].entry);
		observed_done(&look->seen[i].observed);
		error_done(&look->seen[i].why);
	}
	free(look->seen);
	ledger_close(look->ledger);
	facts_done(&look->facts);
}

int verb_status(const struct cli_options *o, int argc, char **argv)
{
	cleanup_sys struct sys sys = { .root_fd = -1 };
	cleanup_error struct error err = { 0 };
	cleanup_with(table_done) struct table table = { .columns = TABLE_COLUMNS };
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
	return look.bad ? CLI_NO : CLI_YES;
}
