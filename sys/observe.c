#include "ledger.h"

#include <errno.h>
#include <stdio.h>

void observed_done(struct observed *o)
{
	free(o->memory_policy);
	o->memory_policy = NULL;
}

static void observe_cookies(const struct sys *s, struct ledger *l, const struct entry *e, struct observed *o)
{
	cleanup_free pid_t *tids = NULL;
	struct anchor_ref anchor;
	uint64_t wanted, cookie;

	if (proc_tids(s, e->pid, &tids, &o->threads) < 0)
		return;
	if (ledger_get_anchor(l, e->group, &anchor, NULL) < 0 || !proc_alive(s, anchor.pid, anchor.start_time) ||
	    s->ops->cookie_get(anchor.pid, &wanted) < 0 || wanted == 0)
		return;
	for (size_t i = 0; i < o->threads; i++)
		o->tagged += s->ops->cookie_get(tids[i], &cookie) == 0 && cookie == wanted;
}

static void observe_cpuset(const struct sys *s, const struct cgroup_layout *layout, const struct entry *e,
			   struct observed *o)
{
	cleanup_cpuset struct cpuset c = CPUSET_NONE;

	/* By the recorded path: of a process whose main thread has ended, /proc/PID/cgroup says the root. */
	o->has_cpuset = *e->cgroup && cpuset_open_path(s, layout, e->cgroup, &c, NULL) == 0 &&
			cpuset_read(&c, NULL, NULL, &o->cpus, &o->mems) == 0;
}

static void observe_guard(const struct sys *s, const struct entry *e, struct observed *o)
{
	cleanup_free char *status = NULL;
	const char *line;

	if (file_readf(s, &status, "/proc/%d/status", e->pid) < 0)
		return;
	line = strstr(status, "\nSeccomp:\t");
	o->guarded = line && line[sizeof("\nSeccomp:\t") - 1] == '2';
}

void sys_observe(const struct sys *s, struct ledger *l, const struct cgroup_layout *layout, const struct entry *e,
		 struct observed *ret)
{
	struct observed o = { .alive = proc_alive(s, e->pid, e->start_time) };

	if (o.alive) {
		observe_cookies(s, l, e, &o);
		observe_cpuset(s, layout, e, &o);
		observe_guard(s, e, &o);
		if (mempolicy_observe(s, e->pid, &o.memory_policy) < 0)
			o.memory_policy = NULL;
	}
	*ret = o;
}
