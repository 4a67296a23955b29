#include "coresched.h"

#include <sched.h>
#include <sys/wait.h>

/* A few prctl(2) calls deep, plus room for a signal handler of the parent with its whole vector state. */
#define CHILD_STACK (32u << 10)

static int real_cookie_get(pid_t tid, uint64_t *ret_cookie)
{
	uint64_t cookie = 0;
	int r = core_prctl(PR_SCHED_CORE_GET, tid, PR_SCHED_CORE_SCOPE_THREAD, &cookie);

	if (r == 0)
		*ret_cookie = cookie;
	return r;
}

int coresched_create(void)
{
	return core_prctl(PR_SCHED_CORE_CREATE, 0, PR_SCHED_CORE_SCOPE_THREAD_GROUP, NULL);
}

struct share {
	pid_t from, to;
	int result; /* written by the child: the memory is shared */
};

/*
 * There is no command that clears a cookie (kernel/sched/core_sched.c): 0 can only be taken from a task that has 0.
 * The child's own will do unless the runtime runs under a cookie itself (containerd's SCHED_CORE=1); then init's is
 * tried. -EBADE when that is not 0 either: nobody else is asked.
 */
static int become_untagged(void)
{
	uint64_t cookie = 0;
	int r = real_cookie_get(0, &cookie);

	if (r < 0 || cookie == 0)
		return r;
	r = core_prctl(PR_SCHED_CORE_SHARE_FROM, 1, PR_SCHED_CORE_SCOPE_THREAD, NULL);
	if (r == 0)
		r = real_cookie_get(0, &cookie);
	return r < 0 ? r : cookie == 0 ? 0 : -EBADE;
}

/* Runs in the child, on the parent's memory while the parent is suspended: system calls only. */
static int share_child(void *arg)
{
	struct share *share = arg;
	int r = share->from ?
			core_prctl(PR_SCHED_CORE_SHARE_FROM, share->from, PR_SCHED_CORE_SCOPE_THREAD, NULL) :
			become_untagged();

	if (r == 0)
		r = core_prctl(PR_SCHED_CORE_SHARE_TO, share->to, PR_SCHED_CORE_SCOPE_THREAD_GROUP, NULL);
	share->result = r;
	return 0;
}

/*
 * The child takes the cookie so that the caller never runs under a tenant's. Its exit signal is 0, not SIGCHLD: a
 * caller whose own parent left SIGCHLD ignored would have the child reaped under its feet. SIGKILL to the caller does
 * not stop the child, which lives a few microseconds and then leaves the whole thread group tagged, or none of it.
 */
static int real_cookie_share(pid_t from, pid_t tgid)
{
	_Alignas(16) char stack[CHILD_STACK];
	struct share share = { .from = from, .to = tgid, .result = -ECHILD };
	pid_t child = clone(share_child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK, &share);

	if (child < 0)
		return -errno;
	while (waitpid(child, NULL, __WALL) < 0 && errno == EINTR)
		;
	return share.result;
}

const struct sys_ops sys_real_ops = {
	.cookie_get = real_cookie_get,
	.cookie_share = real_cookie_share,
};

int cookie_verify(const struct sys *s, pid_t pid, pid_t anchor, pid_t *ret_tid)
{
	cleanup_free pid_t *tids = NULL;
	uint64_t want, cookie;
	size_t n;
	int r = s->ops->cookie_get(anchor, &want);

	if (r < 0)
		return r;
	if (want == 0) {
		*ret_tid = anchor; /* an anchor without a cookie holds nothing together */
		return -EBADE;
	}
	r = proc_tids(s, pid, &tids, &n);
	if (r < 0)
		return r;
	/* One pass will do: a thread that starts after the listing inherits from one that is looked at. */
	for (size_t i = 0; i < n; i++) {
		r = s->ops->cookie_get(tids[i], &cookie);
		if (r == -ESRCH)
			continue;
		if (r < 0)
			return r;
		if (cookie != want) {
			*ret_tid = tids[i];
			return -EBADE;
		}
	}
	return 0;
}
