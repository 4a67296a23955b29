/*
 * Acting on a plan: the only way by which cotenant changes the machine (sys/apply.c, sys/release.c).
 */
#pragma once

#include "ledger.h"
#include "sys.h"

/* The steps in their order. Each is read back. */
enum step { STEP_CPUSET, STEP_NEIGHBOURS, STEP_COOKIE, STEP_WEIGHTS, STEP_MEMORY, STEP_GUARD, STEP_COUNT };
const char *step_name(enum step s);

struct apply_target {
	const struct proc_ref *init;        /* the parked init */
	const struct cgroup_layout *layout;
	const struct cpuset *cpuset;        /* the container's; dir_fd -1 when it has none */
	struct ledger *ledger;
	struct entry *entry;                /* the intent, as it stands in the ledger */
	/*
	 * false: the first failure undoes what was done and is returned.
	 * true: a failed step is left out, the plan is marked degraded with the reason, and the others follow: a container
	 * that is started anyway is better off with half of its protection than with none.
	 */
	bool keep_going;
	/* Called after the last step, the init still held, so that what cannot be recorded can be undone. May be NULL. */
	int (*record)(void *arg, struct error *err);
	void *record_arg;
};

/*
 * *ret_step tells at which step it failed, STEP_COUNT when only the record did; untouched on success. -ENOTRECOVERABLE
 * whatever keep_going says: the init must not run on, since it has lost its registers or would run on cores that others
 * own. Holds no lock when called, when it calls record, or when it returns.
 */
int sys_apply(struct sys *s, struct apply_target *t, enum step *ret_step, struct error *err) must_check;

/* ---- making cpusets what the ledger says (sys/settle.c) ---- */

/* The open cpuset of the container itself, whose entry was put. -ENODEV: its cgroup is gone. Holds LOCK_CPUSET meanwhile. */
int sys_sync_own(struct sys *s, struct ledger *l, const struct cpuset *c, const struct entry *put,
		 struct error *err) must_check;
/* Neighbours' new CPUs into their entries, marked as unsynced. Needs the lock. */
int sys_put_adjusts(struct ledger *l, const struct plan_adjust *items, size_t n, struct error *err) must_check;
/*
 * Carries them out and takes the marks off. Goes on after a failure and returns the first, which names the container; a
 * cgroup that is gone is none. Takes and releases the locks.
 */
int sys_sync_adjusts(struct sys *s, struct ledger *l, const struct cgroup_layout *layout,
		     const struct plan_adjust *items, size_t n, struct error *err) must_check;
/* Everybody off the cores that others own, and back on those that nobody owns any more: all of the above. */
int sys_settle(struct sys *s, struct ledger *l, const struct facts *facts, struct error *err) must_check;

/*
 * All that follows a container's end: drops the entry, ends the group's anchor with its last member, gives neighbours
 * their CPUs back, restores the weights with the last container that relied on them. Unknown id: 0. The facts are
 * loaded only when there is something to give back; where they cannot be had, neighbours stay as they are. Takes and
 * releases the lock. Goes on after a failure and returns the first.
 */
int sys_release(struct sys *s, struct ledger *l, struct facts_source *facts, const char *id,
		struct error *err) must_check;

/*
 * Looks closer at entries that ledger_occupancy() called stale: releases those whose process is gone, and marks as
 * degraded those that run although their hook died half-way. Takes and releases the lock.
 */
int sys_sweep(struct sys *s, struct ledger *l, struct facts_source *facts, const char *const *ids, size_t n,
	      struct error *err) must_check;
