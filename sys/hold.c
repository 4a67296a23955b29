/* Stopping every thread of a process. */
#include "held.h"

#include <errno.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

/* The wait for a stop looks at the deadline so often at least. */
#define WAIT_NS 10000000
#define CLEAN_PASSES 2

/*
 * Every stop sends SIGCHLD to the tracer, unless that ignores it. Blocked, it can be waited for with a timeout, which
 * waitpid(2) has not; and a sleeper is woken at once, where one that yields or polls would lose its turn on a busy CPU.
 */
int watch_stops(struct held *h)
{
	const struct sigaction standard = { .sa_handler = SIG_DFL };
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &child, &h->old_mask) < 0)
		return -errno;
	if (sigaction(SIGCHLD, &standard, &h->old_action) == 0)
		return 0;
	sigprocmask(SIG_SETMASK, &h->old_mask, NULL);
	return -errno;
}

void unwatch_stops(const struct held *h)
{
	sigaction(SIGCHLD, &h->old_action, NULL);
	sigprocmask(SIG_SETMASK, &h->old_mask, NULL);
}

bool out_of_time(const struct held *h)
{
	return h->s->deadline_ns && sys_now_ns() >= h->s->deadline_ns + h->grace_ns;
}

/* A leader that was killed cannot be waited for before its other threads are (delay_group_leader() in kernel/exit.c). */
bool has_ended(const struct held *h, pid_t tid)
{
	cleanup_free char *stat = NULL;
	int r = file_readf(h->s, &stat, "/proc/%d/task/%d/stat", h->pid, tid);
	const char *name_end = r == 0 ? strrchr(stat, ')') : NULL;

	return r == -ENOENT || r == -ESRCH || (name_end && (name_end[2] == 'Z' || name_end[2] == 'X'));
}

/*
 * Waits for the thread's next stop. -ESRCH: it ended. In a cgroup frozen by v1 a thread never stops, in one of v2 it stops
 * but runs no call: the deadline ends the wait.
 */
int wait_stop(const struct held *h, pid_t tid, int *ret_status)
{
	const struct timespec slice = { .tv_nsec = WAIT_NS };
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	for (;;) {
		int status;
		pid_t got = waitpid(tid, &status, __WALL | WNOHANG);

		if (got < 0 && errno != EINTR)
			return -ESRCH;
		if (got == tid) {
			if (!WIFSTOPPED(status))
				return -ESRCH;
			*ret_status = status;
			return 0;
		}
		if (out_of_time(h))
			return -ETIMEDOUT;
		if (sigtimedwait(&child, NULL, &slice) < 0 && has_ended(h, tid))
			return -ESRCH;
	}
}

/* Waits until the thread is held by our interrupt. Signals that come first are delivered as they would have been. */
int wait_held(const struct held *h, pid_t tid)
{
	for (;;) {
		int status, r = wait_stop(h, tid, &status);

		if (r < 0 || status >> 16 == PTRACE_EVENT_STOP)
			return r;
		/* Any stop takes a pending interrupt with it (ptrace_stop() in kernel/signal.c): ask again. */
		ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
		if (ptrace(PTRACE_CONT, tid, NULL, (unsigned long) WSTOPSIG(status)) < 0 && errno != ESRCH)
			return -errno;
	}
}

static bool status_field(const char *status, const char *name, char *ret, int *ret_number)
{
	const char *line = strstr(status, name);

	if (!line)
		return false;
	line += strlen(name);
	if (ret)
		*ret = *line;
	if (ret_number)
		*ret_number = (int) strtol(line, NULL, 10);
	return true;
}

/* Why the kernel refused to attach. 0: because the thread has ended. */
static int explain_seize(const struct held *h, pid_t tid, int code, struct error *err)
{
	cleanup_free char *status = NULL, *comm = NULL, *name = NULL;
	int r = file_readf(h->s, &status, "/proc/%d/task/%d/status", h->pid, tid);
	int tracer = 0;
	char state = '?';

	if (r == -ENOENT || r == -ESRCH)
		return 0;
	if (r == 0 && status_field(status, "\nState:\t", &state, NULL) && (state == 'Z' || state == 'X'))
		return 0;
	if (r == 0 && status_field(status, "\nTracerPid:\t", NULL, &tracer) && tracer) {
		if (file_readf(h->s, &comm, "/proc/%d/comm", tracer) == 0)
			name = printable(comm, strcspn(comm, "\n"), 32);
		return error_set(err, EBUSY,
				 "thread %d of process %d is traced by process %d (%s), and a thread has one tracer: "
				 "detach that one first",
				 tid, h->pid, tracer, name ? name : "name unknown");
	}
	return error_set(err, code,
			 "thread %d of process %d cannot be held by ptrace(2): %s: cotenant needs CAP_SYS_PTRACE in the "
			 "process's user namespace, and kernel.yama.ptrace_scope below 3",
			 tid, h->pid, strerror(code));
}

static struct held_thread *add_thread(struct held *h, pid_t tid)
{
	if (h->n == h->room) {
		size_t room = h->room ? h->room * 2 : 8;
		struct held_thread *bigger = reallocarray(h->threads, room, sizeof(*bigger));

		if (!bigger)
			return NULL;
		h->threads = bigger;
		h->room = room;
	}
	h->threads[h->n] = (struct held_thread){ .tid = tid };
	return &h->threads[h->n++];
}

static int compare_threads(const void *a, const void *b)
{
	pid_t x = ((const struct held_thread *) a)->tid, y = ((const struct held_thread *) b)->tid;

	return (x > y) - (x < y);
}

/* Among the first n, which earlier passes found and sorted. */
static bool is_known(const struct held *h, size_t n, pid_t tid)
{
	const struct held_thread key = { .tid = tid };

	return n && bsearch(&key, h->threads, n, sizeof(key), compare_threads);
}

/*
 * PTRACE_O_EXITKILL: should cotenant die while a thread has the registers of an injected call, its parked read(2) would
 * seem to have returned what that call did, and the runtime's init would go on to the container's program, though its
 * hook has failed. Killed, it is what the runtime makes of a container whose hook failed anyway.
 */
static int seize(struct held *h, pid_t tid, struct error *err)
{
	if (ptrace(PTRACE_SEIZE, tid, NULL, (unsigned long) (PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) < 0)
		return errno == ESRCH ? 0 : explain_seize(h, tid, errno, err);
	if (!add_thread(h, tid)) {
		ptrace(PTRACE_DETACH, tid, NULL, NULL);
		return error_no_memory(err);
	}
	ptrace(PTRACE_INTERRUPT, tid, NULL, NULL); /* fails when the thread has ended: the wait tells */
	return 0;
}

/* Every new thread is interrupted before the first is waited for: they stop side by side. */
static int hold_new(struct held *h, bool *ret_found, struct error *err)
{
	cleanup_free pid_t *tids = NULL;
	size_t n, first = h->n, kept = h->n;
	int r = proc_tids(h->s, h->pid, &tids, &n);

	if (r < 0)
		return error_set(err, -r, "threads of process %d: %s", h->pid,
				 r == -ESRCH ? "it has ended" : strerror(-r));
	for (size_t i = 0; r == 0 && i < n; i++)
		r = is_known(h, first, tids[i]) ? 0 : seize(h, tids[i], err);
	for (size_t i = first; r == 0 && i < h->n; i++) {
		pid_t tid = h->threads[i].tid;
		int stop = wait_held(h, tid);

		if (stop == 0)
			h->threads[kept++].tid = tid;
		else if (stop != -ESRCH)
			r = error_set(err, -stop, "thread %d of process %d did not stop%s: %s", tid, h->pid,
				      stop == -ETIMEDOUT ? " (is its cgroup frozen?)" : "", strerror(-stop));
	}
	if (r < 0)
		return r;
	*ret_found = h->n > first;
	h->n = kept;
	if (*ret_found && kept)
		qsort(h->threads, kept, sizeof(*h->threads), compare_threads);
	return 0;
}

int hold_all(struct held *h, struct error *err)
{
	for (int pass = 0, clean = 0; clean < CLEAN_PASSES; pass++) {
		bool found = false;
		int r = hold_new(h, &found, err);

		if (r < 0)
			return r;
		if (sys_left_ms(h->s) == 0)
			return error_set(err, ETIMEDOUT,
					 pass && found ? "process %d starts threads faster than they can be stopped"
						       : "time ran out while the threads of process %d were stopped",
					 h->pid);
		clean = found ? 0 : clean + 1;
	}
	return h->n ? 0 : error_set(err, ESRCH, "process %d has ended", h->pid);
}
