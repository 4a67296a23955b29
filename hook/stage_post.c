/* After the container: the ledger forgets it, and what was kept for it ends. Idempotent. */
#include "hook.h"

#include <errno.h>

static int record_start(struct hook *h, struct error *err)
{
	cleanup_ledger struct ledger *ledger = NULL;
	cleanup_entry struct entry *entry = NULL;
	int r = ledger_open(h->sys, h->options->state_dir, &ledger, err);

	if (r == 0)
		r = ledger_lock(ledger, err);
	if (r < 0)
		return r;
	r = ledger_get(ledger, h->state.id, &entry, err);
	if (r == 0) {
		entry->started = true;
		r = ledger_put(ledger, entry, err);
	}
	ledger_unlock(ledger);
	return r == -ENOENT ? 0 : r; /* started while cotenant was not wired in: nothing was promised to it */
}

/* Runtimes stop a container whose poststart hook fails. It has all it was promised: what is lost is a note. */
int stage_poststart(struct hook *h, struct error *err)
{
	if (record_start(h, err) < 0)
		hook_say(h, error_text(err));
	return 0;
}

/*
 * Whether it is over with the container on record. A runtime that was refused a second container of an id calls poststop
 * for that id too, and the first one's promises must not end with it.
 */
static int has_ended(const struct hook *h, struct ledger *ledger, bool *ret_ended, struct error *err)
{
	cleanup_entry struct entry *e = NULL;
	int r = ledger_get(ledger, h->state.id, &e, err);
	bool other;

	*ret_ended = true;
	if (r < 0 || !proc_alive(h->sys, e->pid, e->start_time))
		return r == -ENOENT ? 0 : r;
	other = h->state.bundle && *e->bundle && !str_eq(h->state.bundle, e->bundle);
	/* A runtime may be quicker than the end of the process that it has killed. The rest of the time is for the release. */
	if (!other && proc_await_end(h->sys, e->pid, e->start_time, sys_left_ms(h->sys) / 4 * 3) == 0)
		return 0;
	hook_say(h, "the container that is on record by this id still runs: its place stays its own");
	*ret_ended = false;
	return 0;
}

int stage_poststop(struct hook *h, struct error *err)
{
	bool ended;
	cleanup_ledger struct ledger *ledger = NULL;
	cleanup_facts_source struct facts_source facts = { .root = h->options->root,
							    .state_dir = h->options->state_dir };
	int r = ledger_open(h->sys, h->options->state_dir, &ledger, err);

	r = r < 0 ? r : ledger_lock_name(ledger, LOCK_ID, h->state.id, err);
	r = r < 0 ? r : has_ended(h, ledger, &ended, err);
	return r < 0 || !ended ? r : sys_release(h->sys, ledger, &facts, h->state.id, err);
}
