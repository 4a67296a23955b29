/*
 * The ledger: what was promised to which container, kept in the state directory (tmpfs, may be lost at any time).
 *
 *   lock               byte ranges: one for the ledger, and one each for a group's anchor, a container's cpuset and a
 *                      container's id, by hash; see enum ledger_lock
 *   index              one fixed-form line per container, so that a hook maps one file and not a thousand;
 *                      rebuilt from containers/ whenever a writer died half-way
 *   containers/ID.json one container: identity, plan, old values for undoing, step results
 *   groups/NAME.json   one isolation group: its anchor
 *   weights.json       the interleave weights found before cotenant wrote its own
 *
 * Identity is pid and start time (and cgroup): a pid alone is reused. Every file is written beside and renamed.
 */
#pragma once

#include "plan.h"
#include "sys.h"

enum entry_state {
	ENTRY_INTENT,   /* written before acting: may be half applied, the hook may be dead */
	ENTRY_DONE,     /* everything planned was read back from the kernel */
	ENTRY_DEGRADED, /* started under "admit" or a degraded plan: `why` tells what is missing */
	ENTRY_LEAVING,   /* its container ended; what it took from others is being given back, and then it is dropped */
};
const char *entry_state_name(enum entry_state s);

struct entry {
	char *id, *tenant, *group, *class, *bundle;
	char *cgroup;             /* path below the cgroup mount, as in /proc/PID/cgroup; "": no cpuset could be opened */
	pid_t pid;
	uint64_t start_time;      /* clock ticks since boot, /proc/PID/stat field 22 */
	pid_t actor;              /* the hook that is acting on it, with its start time */
	uint64_t actor_start_time;
	enum entry_state state;
	char *step;               /* the last step begun, or NULL */
	char *why;                /* degraded: one sentence */
	bool started;             /* poststart was seen */
	bool unsynced;            /* another hook has changed plan->cpus: the cgroup may not follow yet (sys/settle.c) */
	char *old_cpus, *old_mems; /* cpuset before, for undoing; NULL: not written */
	char *policy_digest;
	struct plan *plan;
};
void entry_free(struct entry *e);
void entry_freep(struct entry **e);
#define cleanup_entry cleanup_with(entry_freep)

struct ledger;
/*
 * Creates the directories (0700, the caller's) if need be, but only when sys may act: -ENOENT else. -EPERM when somebody
 * else could write there. A relative state_dir is taken from the working directory. Holds no lock yet.
 */
int ledger_open(struct sys *sys, const char *state_dir, struct ledger **ret_ledger, struct error *err) must_check;
/* For who only looks: creates nothing (-ENOENT), and the ledger cannot be locked. */
int ledger_open_existing(struct sys *sys, const char *state_dir, struct ledger **ret_ledger,
			 struct error *err) must_check;
void ledger_close(struct ledger *l);
void ledger_closep(struct ledger **l);
#define cleanup_ledger cleanup_with(ledger_closep)

/* Both wait no longer than sys->deadline: -ETIMEDOUT, and err names who holds the lock when that can be told. */
int ledger_lock(struct ledger *l, struct error *err) must_check;
void ledger_unlock(struct ledger *l);

/* Taken in this order, each before the ledger's own lock, which nobody holds while waiting for one of these. */
enum ledger_lock {
	LOCK_ID,     /* a container's start or end: whoever holds it decides what becomes of the id */
	LOCK_GROUP,  /* a group's anchor */
	LOCK_CPUSET, /* what a container's cpuset is made to say */
};
int ledger_lock_name(struct ledger *l, enum ledger_lock kind, const char *name, struct error *err) must_check;
/* -EAGAIN when somebody else has it. */
int ledger_try_name(struct ledger *l, enum ledger_lock kind, const char *name) must_check;
void ledger_unlock_name(struct ledger *l, enum ledger_lock kind, const char *name);

/* Writers need the lock. put replaces. drop of an unknown id is 0. */
int ledger_put(struct ledger *l, const struct entry *e, struct error *err) must_check;
/* Whether what ledger_put() put last is this container's entry, and nobody has replaced or dropped it since. */
bool ledger_has_last_put(const struct ledger *l, const char *id);
/* Entries of different ids, at the cost of one look at the index. On failure the first ones may have been put. */
int ledger_put_many(struct ledger *l, struct entry *const *entries, size_t n, struct error *err) must_check;
int ledger_drop(struct ledger *l, const char *id, struct error *err) must_check;
/* -ENOENT when there is none. A file that cannot be read as an entry counts as none; under the lock it is moved aside
 * (damaged-N.bad, a handful are kept). */
int ledger_get(struct ledger *l, const char *id, struct entry **ret_entry, struct error *err) must_check;
/* Ids of all entries, sorted, from containers/ itself. Freed with ledger_ids_free(). */
int ledger_ids(struct ledger *l, char ***ret_ids, size_t *ret_n, struct error *err) must_check;
void ledger_ids_free(char **ids, size_t n);

/*
 * Occupancy, from the index. Needs the lock. The array and its strings live until ledger_close() or the next call.
 * `stale` lists ids that need a closer look: intents whose actor is dead, and a few entries in turn (so that every
 * entry is looked at once in n/2 calls) whose process is gone. All of them when `all`.
 */
int ledger_occupancy(struct ledger *l, bool all, const struct occupant **ret, size_t *ret_n,
		     const char *const **ret_stale, size_t *ret_n_stale, struct error *err) must_check;
/* How many entries belong to the group. Needs the lock. */
int ledger_members(struct ledger *l, const char *group, size_t *ret_n, struct error *err) must_check;

/* Anchors. -ENOENT when the group has none on record. Writers need the group's lock. */
struct anchor_ref {
	pid_t pid;
	uint64_t start_time;
};
int ledger_get_anchor(struct ledger *l, const char *group, struct anchor_ref *ret, struct error *err) must_check;
int ledger_put_anchor(struct ledger *l, const char *group, const struct anchor_ref *ref, struct error *err) must_check;
int ledger_drop_anchor(struct ledger *l, const char *group, struct error *err) must_check;

/* Interleave weights as they were before cotenant's first write. -ENOENT when nothing is kept. Need the lock. */
struct saved_weights {
	uint8_t node[NODE_MAX]; /* 0: no such node */
	bool was_auto;
};
int ledger_get_weights(struct ledger *l, struct saved_weights *ret, struct error *err) must_check;
int ledger_put_weights(struct ledger *l, const struct saved_weights *w, struct error *err) must_check;
int ledger_drop_weights(struct ledger *l, struct error *err) must_check;
