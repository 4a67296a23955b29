#include "apply.h"

#include <errno.h>

/* Keeps the first failure: a later step of a clean-up must run whatever came before it. */
static void keep_first(int r, struct error *found, int *first, struct error *err)
{
	if (r >= 0 || *first < 0) {
		error_done(found);
		return;
	}
	*first = r;
	if (err) {
		error_done(err);
		err->text = TAKE_PTR(found->text);
	}
}

/* Under the lock, so that no container that relies on the weights is recorded between the look and the writing. */
static int restore(struct sys *s, struct ledger *l, struct error *err)
{
	struct saved_weights saved;
	int r = ledger_get_weights(l, &saved, err);

	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = weights_restore(s, &saved, err);
	return r < 0 ? r : ledger_drop_weights(l, err);
}

/*
 * The anchor goes before the entry: a hook that dies in between leaves an entry whose process is gone, which the next
 * one releases again; the other way round nobody would know of the anchor. Needs the group's lock, so that a container
 * that joins the group now waits and then finds no anchor on record.
 */
static int end_anchor(struct sys *s, struct ledger *l, const struct entry *e, struct error *err)
{
	struct anchor_ref anchor;
	size_t members, own = e->state != ENTRY_LEAVING;
	int r = ledger_get_anchor(l, e->group, &anchor, NULL);

	if (r == -ENOENT)
		return 0; /* most groups of a machine that needs no cookies: the members need not be counted */
	r = ledger_lock(l, err);
	if (r < 0)
		return r;
	r = ledger_members(l, e->group, &members, err);
	ledger_unlock(l);
	if (r < 0)
		return r;
	return members > own ? 0 : anchor_end(s, l, e->group, err);
}

/* With the last container that relied on them. Needs the lock. */
static int give_weights_back(struct sys *s, struct ledger *l, struct error *err)
{
	const struct occupant *occupants;
	const char *const *stale;
	size_t n, n_stale;
	int r = ledger_occupancy(l, false, &occupants, &n, &stale, &n_stale, err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		if (occupants[i].weights)
			return 0;
	return restore(s, l, err);
}

/* Needs the lock. Others count on nothing that the entry holds from here on. */
static int start_leaving(struct sys *s, struct ledger *l, struct entry *e, struct error *err)
{
	int r;

	e->state = ENTRY_LEAVING;
	e->actor = getpid();
	r = proc_start_time(s, e->actor, &e->actor_start_time);
	return r < 0 ? error_set(err, -r, "process %d (this one): %s", e->actor, strerror(-r)) : ledger_put(l, e, err);
}

/* Whether its end changes anything for others. */
static bool owes(const struct entry *e)
{
	return e->state == ENTRY_LEAVING || plan_owns(e->plan) || e->plan->set_weights;
}

/* An entry that owes nothing is dropped at once, another marked as leaving. Needs the group's lock. */
static int release_locked(struct sys *s, struct ledger *l, struct entry *e, struct error *err)
{
	struct error found = { 0 };
	int first = 0, r;

	keep_first(end_anchor(s, l, e, &found), &found, &first, err);
	sys_fault_point(s, "anchor ended");
	r = ledger_lock(l, &found);
	if (r == 0) {
		r = owes(e) ? start_leaving(s, l, e, &found) : ledger_drop(l, e->id, &found);
		if (r == 0 && e->plan->set_weights)
			r = give_weights_back(s, l, &found);
		ledger_unlock(l);
	}
	keep_first(r, &found, &first, err);
	sys_fault_point(s, "leaving");
	return first;
}

/* Unless the id is a new container's by now. */
static int drop_left(struct ledger *l, const struct entry *left, struct error *err)
{
	cleanup_entry struct entry *now = NULL;
	int r = ledger_lock(l, err);

	if (r < 0)
		return r;
	r = ledger_get(l, left->id, &now, err);
	if (r == -ENOENT)
		r = 0;
	else if (r == 0 && now->state == ENTRY_LEAVING && now->start_time == left->start_time)
		r = ledger_drop(l, left->id, err);
	ledger_unlock(l);
	return r;
}

/* An entry that cannot be read: what the index may still say of it goes too. */
static int drop_unreadable(struct ledger *l, const char *id, struct error *err)
{
	int r = ledger_lock(l, err);

	if (r < 0)
		return r;
	r = ledger_drop(l, id, err);
	ledger_unlock(l);
	return r;
}

static int release(struct sys *s, struct ledger *l, struct facts_source *source, const char *id, bool only_dead,
		   struct error *err)
{
	cleanup_entry struct entry *e = NULL, *again = NULL;
	const struct facts *facts = NULL;
	struct error found = { 0 };
	int first = 0, r = ledger_get(l, id, &e, err);

	if (r == -ENOENT)
		return drop_unreadable(l, id, err);
	if (r < 0)
		return r;
	/* Before any lock is taken: they may have to be discovered anew. */
	if (owes(e))
		keep_first(facts_get(s, source, &facts, &found), &found, &first, err);
	r = ledger_lock_name(l, LOCK_GROUP, e->group, &found);
	if (r < 0) {
		keep_first(r, &found, &first, err);
		return first;
	}
	/* Another hook may have released it while this one waited, or the id may be a new container's by now. */
	r = ledger_get(l, id, &again, NULL);
	if (r < 0 || again->start_time != e->start_time || (only_dead && proc_alive(s, e->pid, e->start_time))) {
		ledger_unlock_name(l, LOCK_GROUP, e->group);
		return first;
	}
	keep_first(release_locked(s, l, again, &found), &found, &first, err);
	ledger_unlock_name(l, LOCK_GROUP, e->group);
	if (facts) {
		r = sys_settle(s, l, facts, &found);
		keep_first(r < 0 ? error_prefix(&found, r, "giving back what container %s had", id) : 0, &found, &first,
			   err);
	}
	sys_fault_point(s, "given back");
	if (again->state == ENTRY_LEAVING)
		keep_first(drop_left(l, again, &found), &found, &first, err);
	return first;
}

int sys_release(struct sys *s, struct ledger *l, struct facts_source *facts, const char *id, struct error *err)
{
	return release(s, l, facts, id, false, err);
}

/*
 * A hook died before it finished, and yet the container runs: say so, since nobody else will. Takes the lock. *ret_moved:
 * others count on it that the container has its CPUs, and perhaps it was never given them.
 */
static int mark_half_applied(struct sys *s, struct ledger *l, const char *id, bool *ret_moved, struct error *err)
{
	cleanup_entry struct entry *e = NULL;
	int r = ledger_lock(l, err);

	*ret_moved = false;
	if (r < 0)
		return r;
	r = ledger_get(l, id, &e, err);
	if (r == 0 && e->state == ENTRY_INTENT && !proc_alive(s, e->actor, e->actor_start_time)) {
		e->state = ENTRY_DEGRADED;
		e->plan->degraded = true;
		e->unsynced = *ret_moved = e->plan->set_cpus;
		free(e->why);
		e->why = strdup("the hook died before it finished: what the plan says may be half applied");
		r = ledger_put(l, e, err);
	}
	ledger_unlock(l);
	return r == -ENOENT ? 0 : r;
}

/* Needs the id's lock. */
static int settle_half_applied(struct sys *s, struct ledger *l, struct facts_source *source, const char *id,
			       struct error *err)
{
	const struct facts *facts;
	bool moved;
	int r = mark_half_applied(s, l, id, &moved, err);

	if (r < 0 || !moved)
		return r;
	r = facts_get(s, source, &facts, err);
	r = r < 0 ? r : sys_settle(s, l, facts, err);
	return r < 0 ? error_prefix(err, r, "container %s, whose hook died before it finished", id) : 0;
}

int sys_sweep(struct sys *s, struct ledger *l, struct facts_source *facts, const char *const *ids, size_t n,
	      struct error *err)
{
	int first = 0, r;

	for (size_t i = 0; i < n; i++) {
		struct error found = { 0 };

		r = ledger_try_name(l, LOCK_ID, ids[i]);
		if (r == -EAGAIN)
			continue; /* somebody is at it */
		if (r < 0)
			return first < 0 ? first : error_set(err, -r, "container %s: %s", ids[i], strerror(-r));
		r = release(s, l, facts, ids[i], true, &found);
		keep_first(r < 0 ? error_prefix(&found, r, "container %s, which has ended", ids[i]) : 0, &found, &first,
			   err);
		keep_first(settle_half_applied(s, l, facts, ids[i], &found), &found, &first, err);
		ledger_unlock_name(l, LOCK_ID, ids[i]);
	}
	return first;
}
