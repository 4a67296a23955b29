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

int stage_poststop(struct hook *h, struct error *err)
{
	cleanup_ledger struct ledger *ledger = NULL;
	cleanup_facts_source struct facts_source facts = { .root = h->options->root,
							    .state_dir = h->options->state_dir };
	int r = ledger_open(h->sys, h->options->state_dir, &ledger, err);

	return r < 0 ? r : sys_release(h->sys, ledger, &facts, h->state.id, err);
}
