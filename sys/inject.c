#include "held.h"

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

/*
 * What has been begun is put back even when the deadline passes meanwhile; a call of ours takes microseconds. A call
 * has so long to return, undoing has as long again, and letting go. The hook's own last word comes after a second.
 */
#define GRACE_NS INT64_C(250000000)
/* Scratch memory is reserved in such pieces, so that one mapping serves all callers; pages not used cost nothing. */
#define SCRATCH_UNIT (32u << 10)
#define VDSO_MAX (8u << 10)
#define AUXV_MAX (4u << 10)
#define SYSCALL_STOP (SIGTRAP | 0x80) /* PTRACE_O_TRACESYSGOOD */

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
		return error_no_memory(err);
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
		return error_no_memory(err);
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
 */
int held_call(struct held *h, size_t thread, long nr, const unsigned long args[6], long *ret)
{
	struct held_thread *t = &h->threads[thread];
	struct arch_regs regs = t->regs;
	const int64_t grace_ns = h->grace_ns;
	int r, back;

	if (t->away || out_of_time(h))
		return -ETIMEDOUT;
	h->grace_ns += GRACE_NS;
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
	h->grace_ns = grace_ns;
	if (r == 0)
		r = back;
	if (r == 0)
		*ret = arch_result(&regs);
	return r;
}

void held_undo(struct held *h)
{
	int64_t late = h->s->deadline_ns ? sys_now_ns() - h->s->deadline_ns : 0;

	h->grace_ns = GRACE_NS + (late > 0 ? late : 0);
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
	/* Of an ended thread that nobody waits for, its leader could not be rid. */
	if (has_ended(h, t->tid))
		return waitpid(t->tid, NULL, __WALL | WNOHANG) < 0 ? 0 : r;
	/* Interrupted, but never waited for since another thread failed: it would stay stopped. */
	if (wait_held(h, t->tid) == 0)
		ptrace(PTRACE_DETACH, t->tid, NULL, NULL);
	return 0;
}

int held_close(struct held *h)
{
	int r = 0;

	if (!h)
		return 0;
	held_undo(h);
	unmap_scratch(h);
	/* The leader, which has the lowest number as a rule, last: see has_ended(). */
	for (size_t i = h->n; i-- > 0;)
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
