#include "arch.h"
#include "sys.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* The wait for a stop looks at the deadline so often at least. */
#define WAIT_NS 10000000
/* What has been begun is put back even when the deadline passes meanwhile; a call of ours takes microseconds. */
#define GRACE_NS INT64_C(500000000)
/* And so much longer for what was begun and has not come back. The hook's own last word comes a second after. */
#define LAST_GRACE_NS INT64_C(300000000)
#define CLEAN_PASSES 2
/* Scratch memory is reserved in such pieces, so that one mapping serves all callers; pages not used cost nothing. */
#define SCRATCH_UNIT (32u << 10)
#define VDSO_MAX (8u << 10)
#define AUXV_MAX (4u << 10)
#define SYSCALL_STOP (SIGTRAP | 0x80) /* PTRACE_O_TRACESYSGOOD */

struct held_thread {
	pid_t tid;
	struct arch_regs regs;
	uint64_t signal_mask;
	bool away; /* it was sent into a call of ours and has not got its registers back */
};

struct held {
	const struct sys *s;
	pid_t pid;
	struct held_thread *threads;
	size_t n, room;
	struct sigaction old_action; /* of SIGCHLD, in cotenant itself */
	sigset_t old_mask;
	int mem_fd;
	unsigned long syscall_pc; /* where the process has a system call instruction; its threads share their memory */
	unsigned long scratch;
	size_t scratch_size;
	int64_t grace_ns;  /* beyond the deadline */
};

/* ---- stopping ---- */

/*
 * Every stop sends SIGCHLD to the tracer, unless that ignores it. Blocked, it can be waited for with a timeout, which
 * waitpid(2) has not; and a sleeper is woken at once, where one that yields or polls would lose its turn on a busy CPU.
 */
static int watch_stops(struct held *h)
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

static void unwatch_stops(const struct held *h)
{
	sigaction(SIGCHLD, &h->old_action, NULL);
	sigprocmask(SIG_SETMASK, &h->old_mask, NULL);
}

static bool out_of_time(const struct held *h)
{
	return h->s->deadline_ns && sys_now_ns() >= h->s->deadline_ns + h->grace_ns;
}

/* Waits for the thread's next stop. -ESRCH: it ended. A thread in a frozen cgroup never stops: the deadline ends it. */
static int wait_stop(const struct held *h, pid_t tid, int *ret_status)
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
		if (sigtimedwait(&child, NULL, &slice) < 0)
			continue; /* the slice is over, or another signal came */
	}
}

/* Waits until the thread is held by our interrupt. Signals that come first are delivered as they would have been. */
static int wait_held(const struct held *h, pid_t tid)
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

/* Without PTRACE_O_EXITKILL: should cotenant die here, the container's threads are let go, not killed. */
static int seize(struct held *h, pid_t tid, struct error *err)
{
	if (ptrace(PTRACE_SEIZE, tid, NULL, (unsigned long) PTRACE_O_TRACESYSGOOD) < 0)
		return errno == ESRCH ? 0 : explain_seize(h, tid, errno, err);
	if (!add_thread(h, tid)) {
		ptrace(PTRACE_DETACH, tid, NULL, NULL);
		return error_set(err, ENOMEM, "no memory");
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

static int hold_all(struct held *h, struct error *err)
{
	for (int clean = 0; clean < CLEAN_PASSES;) {
		bool found = false;
		int r = hold_new(h, &found, err);

		if (r < 0)
			return r;
		if (sys_left_ms(h->s) == 0)
			return error_set(err, ETIMEDOUT, "process %d starts threads faster than they can be stopped",
					 h->pid);
		clean = found ? 0 : clean + 1;
	}
	return h->n ? 0 : error_set(err, ESRCH, "process %d has ended", h->pid);
}

/* ---- registers and memory ---- */

static int get_regs(pid_t tid, struct arch_regs *ret)
{
	struct iovec io = { .iov_base = ret->word, .iov_len = sizeof(ret->word) };

	if (ptrace(PTRACE_GETREGSET, tid, (unsigned long) NT_PRSTATUS, &io) < 0)
		return -errno;
	ret->len = io.iov_len;
	return 0;
}

static int set_regs(pid_t tid, const struct arch_regs *regs)
{
	struct iovec io = { .iov_base = (void *) regs->word, .iov_len = regs->len };

	return ptrace(PTRACE_SETREGSET, tid, (unsigned long) NT_PRSTATUS, &io) < 0 ? -errno : 0;
}

static int set_signal_mask(pid_t tid, uint64_t mask)
{
	return ptrace(PTRACE_SETSIGMASK, tid, sizeof(mask), &mask) < 0 ? -errno : 0;
}

int held_write(struct held *h, unsigned long address, const void *data, size_t len)
{
	ssize_t n = pwrite(h->mem_fd, data, len, (off_t) address);

	return n == (ssize_t) len ? 0 : n < 0 ? -errno : -EFAULT;
}

int held_read(struct held *h, unsigned long address, void *data, size_t len)
{
	ssize_t n = pread(h->mem_fd, data, len, (off_t) address);

	return n == (ssize_t) len ? 0 : n < 0 ? -errno : -EFAULT;
}

static int save_threads(struct held *h, struct error *err)
{
	for (size_t i = 0; i < h->n; i++) {
		struct held_thread *t = &h->threads[i];
		int r = get_regs(t->tid, &t->regs);

		if (r == 0 && ptrace(PTRACE_GETSIGMASK, t->tid, sizeof(t->signal_mask), &t->signal_mask) < 0)
			r = -errno;
		if (r < 0)
			return error_set(err, -r, "registers of thread %d: %s", t->tid, strerror(-r));
		if (!arch_is_native(&t->regs))
			return error_set(err, ENOTSUP,
					 "thread %d of process %d runs 32-bit code: cotenant can set memory policies and "
					 "guards in 64-bit processes only",
					 t->tid, h->pid);
	}
	return 0;
}

/* In the vDSO, which has system calls to fall back on. Needed only when no thread sits in a system call. */
static int find_in_vdso(struct held *h)
{
	cleanup_free char *path = NULL, *auxv = NULL;
	char code[VDSO_MAX];
	size_t len;
	const char *found;
	ElfW(auxv_t) v;
	int r;

	if (asprintf(&path, "/proc/%d/auxv", h->pid) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	r = file_read(h->s, path, AUXV_MAX, &auxv, &len);
	if (r < 0)
		return r;
	for (size_t at = 0; at + sizeof(v) <= len; at += sizeof(v)) {
		ssize_t n;

		memcpy(&v, auxv + at, sizeof(v));
		if (v.a_type != AT_SYSINFO_EHDR)
			continue;
		n = pread(h->mem_fd, code, sizeof(code), (off_t) v.a_un.a_val);
		found = n > 0 ? memmem(code, (size_t) n, arch_syscall.code, arch_syscall.len) : NULL;
		if (!found)
			return -ENOENT;
		h->syscall_pc = v.a_un.a_val + (unsigned long) (found - code);
		return 0;
	}
	return -ENOENT;
}

static int find_syscall(struct held *h)
{
	for (size_t i = 0; i < h->n; i++) {
		unsigned long pc = arch_pc(&h->threads[i].regs) - arch_syscall.len;
		unsigned char code[ARCH_SYSCALL_MAX];

		if (held_read(h, pc, code, arch_syscall.len) == 0 &&
		    memcmp(code, arch_syscall.code, arch_syscall.len) == 0) {
			h->syscall_pc = pc;
			return 0;
		}
	}
	return find_in_vdso(h);
}

static int open_memory(struct held *h, struct error *err)
{
	cleanup_free char *path = NULL;
	int r;

	if (asprintf(&path, "/proc/%d/mem", h->pid) < 0) {
		path = NULL;
		return error_set(err, ENOMEM, "no memory");
	}
	h->mem_fd = openat(h->s->root_fd, path + 1, O_RDWR | O_CLOEXEC);
	if (h->mem_fd < 0)
		return error_set(err, errno, "%s: %s", path, strerror(errno));
	r = find_syscall(h);
	return r < 0 ? error_set(err, -r, "process %d: no system call instruction was found in its memory", h->pid) : 0;
}

int held_open(const struct sys *s, pid_t pid, struct held **ret_held, struct error *err)
{
	cleanup_held struct held *h = NULL;
	int r;

	if (!s->acting)
		return error_set(err, EROFS, "the root directory is not this machine's: nothing is changed");
	if (arch_syscall.len == 0)
		return error_set(err, ENOTSUP, "memory policies and guards can be set on x86-64 only");
	h = calloc(1, sizeof(*h));
	if (!h)
		return error_set(err, ENOMEM, "no memory");
	*h = (struct held){ .s = s, .pid = pid, .mem_fd = -1 };
	r = watch_stops(h);
	if (r < 0) {
		free(TAKE_PTR(h));
		return error_set(err, -r, "SIGCHLD cannot be blocked: %s", strerror(-r));
	}
	r = hold_all(h, err);
	if (r == 0)
		r = save_threads(h, err);
	if (r == 0)
		r = open_memory(h, err);
	if (r < 0)
		return r;
	*ret_held = TAKE_PTR(h);
	return 0;
}

/* ---- calls ---- */

/* The thread must be stopped. */
static int bring_back(struct held_thread *t)
{
	int r = set_regs(t->tid, &t->regs);

	if (r == 0)
		r = set_signal_mask(t->tid, t->signal_mask);
	if (r == 0)
		t->away = false;
	return r;
}

/* To the next stop at a system call. With the mask of held_call() only a SIGSTOP can come in between: passed on. */
static int run_to_syscall(struct held *h, pid_t tid)
{
	unsigned long signal = 0;

	for (;;) {
		int status, r;

		if (ptrace(PTRACE_SYSCALL, tid, NULL, signal) < 0)
			return -errno;
		r = wait_stop(h, tid, &status);
		if (r < 0 || WSTOPSIG(status) == SYSCALL_STOP)
			return r;
		signal = status >> 16 ? 0 : (unsigned long) WSTOPSIG(status);
	}
}

/*
 * The thread is stopped inside the call it was parked in, which the kernel restarts, once all is put back, exactly as
 * after a signal without a handler, timeouts included: letting go wakes the thread with TIF_SIGPENDING set
 * (__ptrace_unlink), so it passes through the restart code even from a stop at the end of another call.
 *
 * Stops at a system call, entry and exit, rather than a single step: a step ends in a forced SIGTRAP, which would reset
 * the disposition of a process that ignores it. Signals are blocked meanwhile and stay queued with their siginfo.
 *
 * A thread caught in user mode within a restartable sequence (rseq(2)) would not be told to restart it; the threads of
 * a parked init sit in system calls, where there is none.
 *
 * Should cotenant be killed in here, the thread goes on with the registers of this call: a parked read(2) would seem to
 * have returned the result of the injected call. The runtime tears a container down whose hook was killed.
 */
int held_call(struct held *h, size_t thread, long nr, const unsigned long args[6], long *ret)
{
	struct held_thread *t = &h->threads[thread];
	struct arch_regs regs = t->regs;
	int r, back;

	if (t->away || out_of_time(h))
		return -ETIMEDOUT;
	h->grace_ns = GRACE_NS;
	t->away = true;
	arch_set_call(&regs, h->syscall_pc, nr, args);
	r = set_signal_mask(t->tid, UINT64_MAX);
	if (r == 0)
		r = set_regs(t->tid, &regs);
	if (r == 0)
		r = run_to_syscall(h, t->tid);
	if (r == 0)
		r = run_to_syscall(h, t->tid);
	if (r == 0)
		r = get_regs(t->tid, &regs);
	back = bring_back(t);
	if (r == -ESRCH)
		t->away = false; /* it has ended */
	h->grace_ns = 0;
	if (r == 0)
		r = back;
	if (r == 0)
		*ret = arch_result(&regs);
	return r;
}

static void unmap_scratch(struct held *h)
{
	const unsigned long args[6] = { h->scratch, h->scratch_size };
	long ret;

	/* Any thread will do: the first may have been killed. */
	for (size_t i = 0; h->scratch_size && i < h->n; i++)
		if (held_call(h, i, SYS_munmap, args, &ret) == 0)
			break;
	h->scratch_size = 0;
}

/* A mapping of its own: a thread's stack may have no room below, and what is above it is in use. */
int held_scratch(struct held *h, size_t size, unsigned long *ret_address)
{
	unsigned long args[6] = { 0, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, (unsigned long) -1, 0 };
	long address;
	int r;

	if (size > h->scratch_size) {
		unmap_scratch(h);
		args[1] = (size + SCRATCH_UNIT - 1) / SCRATCH_UNIT * SCRATCH_UNIT;
		r = held_call(h, 0, SYS_mmap, args, &address);
		if (r < 0)
			return r;
		if (address < 0 && address >= -4095)
			return (int) address;
		h->scratch = (unsigned long) address;
		h->scratch_size = args[1];
	}
	*ret_address = h->scratch;
	return 0;
}

/*
 * A thread that is still in a call of ours: interrupted, it stops inside or at the end of that call, and either way goes
 * on with the one it was parked in. -ENOTRECOVERABLE: it does not stop.
 */
static int fetch(const struct held *h, struct held_thread *t)
{
	int status, r;

	ptrace(PTRACE_INTERRUPT, t->tid, NULL, NULL); /* fails when the thread has ended: the wait tells */
	r = wait_stop(h, t->tid, &status);
	if (r == 0)
		r = bring_back(t);
	return r == 0 || r == -ESRCH ? 0 : -ENOTRECOVERABLE;
}

static int let_go(const struct held *h, struct held_thread *t)
{
	int r = t->away ? fetch(h, t) : 0;

	if (r < 0 || ptrace(PTRACE_DETACH, t->tid, NULL, NULL) == 0)
		return r;
	/* Interrupted, but never waited for since another thread failed: it would stay stopped. */
	if (wait_held(h, t->tid) == 0)
		ptrace(PTRACE_DETACH, t->tid, NULL, NULL);
	return 0;
}

int held_close(struct held *h)
{
	int64_t late;
	int r = 0;

	if (!h)
		return 0;
	unmap_scratch(h);
	late = h->s->deadline_ns ? sys_now_ns() - h->s->deadline_ns : 0;
	h->grace_ns = LAST_GRACE_NS + (late > 0 ? late : 0);
	for (size_t i = 0; i < h->n; i++)
		if (let_go(h, &h->threads[i]) < 0)
			r = -ENOTRECOVERABLE;
	unwatch_stops(h);
	closep(&h->mem_fd);
	free(h->threads);
	free(h);
	return r;
}

void held_closep(struct held **h)
{
	if (held_close(*h) < 0)
		return; /* before a call was made: nothing can be lost */
}

size_t held_threads(const struct held *h)
{
	return h->n;
}

pid_t held_tid(const struct held *h, size_t thread)
{
	return h->threads[thread].tid;
}

pid_t held_pid(const struct held *h)
{
	return h->pid;
}

const struct sys *held_sys(const struct held *h)
{
	return h->s;
}
