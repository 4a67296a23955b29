#include "tracee.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define SLEEP_NS (TRACEE_SLEEP_MS * INT64_C(1000000))

static const unsigned long no_args[6];

/* ---- threads parked in every way that a restart treats differently ---- */

static void *in_read(void *p)
{
	struct tracee_arg *a = p;
	int64_t began = sys_now_ns();
	char byte = 0;
	long r;

	slot_parking(a->slot);
	r = read(a->t->from_parent, &byte, 1);
	slot_done(a->slot, r == 1 ? byte : r, errno, began);
	return NULL;
}

static void *in_futex(void *p)
{
	struct tracee_arg *a = p;
	int64_t began = sys_now_ns();
	long r;

	slot_parking(a->slot);
	r = syscall(SYS_futex, &a->t->shared->go, FUTEX_WAIT, 0, NULL, NULL, 0);
	slot_done(a->slot, r, errno, began);
	return NULL;
}

static void *in_futex_timeout(void *p)
{
	const struct timespec timeout = { .tv_nsec = SLEEP_NS };
	static int word;
	struct tracee_arg *a = p;
	int64_t began = sys_now_ns();
	long r;

	slot_parking(a->slot);
	r = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &timeout, NULL, 0);
	slot_done(a->slot, r, errno, began);
	return NULL;
}

static void *in_poll(void *p)
{
	struct tracee_arg *a = p;
	struct pollfd nothing = { .fd = -1 };
	int64_t began = sys_now_ns();
	long r;

	slot_parking(a->slot);
	r = poll(&nothing, 1, TRACEE_SLEEP_MS);
	slot_done(a->slot, r, errno, began);
	return NULL;
}

static void *in_nanosleep(void *p)
{
	const struct timespec timeout = { .tv_nsec = SLEEP_NS };
	struct tracee_arg *a = p;
	int64_t began = sys_now_ns();
	long r;

	slot_parking(a->slot);
	r = syscall(SYS_nanosleep, &timeout, NULL);
	slot_done(a->slot, r, errno, began);
	return NULL;
}

static void parked_body(struct tracee *t)
{
	tracee_thread(t, 1, in_futex);
	tracee_thread(t, 2, in_poll);
	tracee_thread(t, 3, in_nanosleep);
	tracee_thread(t, 4, in_futex_timeout);
	in_read(&(struct tracee_arg){ .t = t, .slot = &t->shared->slot[0] });
	while (t->shared->count == 0)
		short_pause();
}
#define PARKED 5

static char *maps_of(const struct sys *s, pid_t pid)
{
	char *text = NULL;

	assert_int_equal(file_readf(s, &text, "/proc/%d/maps", pid), 0);
	return text;
}

static void test_each_thread_runs_the_call(void **state)
{
	struct sys s = real_sys(60000);
	struct tracee t;
	struct held *h = NULL;

	(void) state;
	tracee_start(&t, parked_body);
	tracee_wait_parked(&t, PARKED);
	assert_int_equal(held_open(&s, t.pid, &h, NULL), 0);
	assert_int_equal(held_threads(h), PARKED);
	for (size_t i = 0; i < PARKED; i++) {
		long r = 0;

		assert_int_equal(held_call(h, i, SYS_gettid, no_args, &r), 0);
		assert_int_equal(r, held_tid(h, i));
		assert_int_equal(held_call(h, i, SYS_close, (unsigned long[6]){ 12345 }, &r), 0);
		assert_int_equal(r, -EBADF);
	}
	held_close(h);
	tracee_end(&t);
	sys_done(&s);
}

static void test_parked_calls_go_on(void **state)
{
	struct sys s = real_sys(60000);
	struct tracee t;
	struct held *h = NULL;
	cleanup_free char *before = NULL, *after = NULL;
	struct slot *slot;
	long r;

	(void) state;
	tracee_start(&t, parked_body);
	slot = t.shared->slot;
	tracee_wait_parked(&t, PARKED);
	before = maps_of(&s, t.pid);
	for (int round = 0; round < 3; round++) {
		unsigned long address;

		assert_int_equal(held_open(&s, t.pid, &h, NULL), 0);
		assert_int_equal(held_scratch(h, 100, &address), 0);
		for (size_t i = 0; i < held_threads(h); i++)
			assert_int_equal(held_call(h, i, SYS_getuid, no_args, &r), 0);
		held_close(h);
	}
	after = maps_of(&s, t.pid);
	assert_string_equal(after, before);
	/* The ones without a timeout are still where they were, and end as they should. */
	for (int i = 0; i < 20; i++)
		short_pause();
	assert_int_equal(slot[0].done, 0);
	assert_int_equal(slot[1].done, 0);
	assert_int_equal(write(t.to_child, "x", 1), 1);
	wait_for(&slot[0].done, 1);
	assert_int_equal(slot[0].result, 'x');
	t.shared->go = 1;
	syscall(SYS_futex, &t.shared->go, FUTEX_WAKE, 1, NULL, NULL, 0);
	wait_for(&slot[1].done, 1);
	assert_int_equal(slot[1].result, 0);
	/* The timeouts count from where they began, and were neither cut short nor failed. */
	for (int i = 2; i < PARKED; i++) {
		wait_for(&slot[i].done, 1);
		assert_int_equal(slot[i].result, i == 4 ? -1 : 0);
		if (i == 4)
			assert_int_equal(slot[i].error, ETIMEDOUT);
		assert_true(slot[i].took_ns >= SLEEP_NS);
	}
	tracee_end(&t);
	sys_done(&s);
}

/* ---- a thread in user mode: every register is still what it was, and there is no system call to borrow ---- */

static void spin_body(struct tracee *t)
{
	register long r8 __asm__("r8") = 8, r9 __asm__("r9") = 9, r10 __asm__("r10") = 10, r12 __asm__("r12") = 12;
	long a = 1, b = 2, c = 3, di = 4, si = 5;

	t->shared->slot[0].tid = t->pid;
	__asm__ volatile("1: lock incl (%[count])\n\t"
			 "cmpl $0, (%[go])\n\t"
			 "je 1b"
			 : "+a"(a), "+b"(b), "+c"(c), "+D"(di), "+S"(si), "+r"(r8), "+r"(r9), "+r"(r10), "+r"(r12)
			 : [count] "r"(&t->shared->count), [go] "r"(&t->shared->go)
			 : "memory", "cc");
	t->shared->value = a + 10 * b + 100 * c + 1000 * di + 10000 * si + 100000 * r8 + 1000000 * r9 + 10000000 * r10 +
			   100000000 * r12;
	t->shared->slot[0].done = 1;
	while (t->shared->go != 2)
		;
}

static void test_user_mode_thread(void **state)
{
	struct sys s = real_sys(60000);
	struct tracee t;
	struct held *h = NULL;
	long r = 0;
	int count;

	(void) state;
	tracee_start(&t, spin_body);
	wait_for(&t.shared->count, 1000);
	assert_int_equal(held_open(&s, t.pid, &h, NULL), 0);
	assert_int_equal(held_call(h, 0, SYS_getpid, no_args, &r), 0);
	assert_int_equal(r, t.pid);
	count = t.shared->count;
	short_pause();
	assert_int_equal(t.shared->count, count); /* really held */
	held_close(h);
	wait_for(&t.shared->count, count + 1000);
	t.shared->go = 1;
	wait_for(&t.shared->slot[0].done, 1);
	assert_int_equal(t.shared->value, 1 + 20 + 300 + 4000 + 50000 + 800000 + 9000000 + 100000000 + 1200000000);
	tracee_end(&t);
	sys_done(&s);
}

/* ---- signals ---- */

#define QUEUED 50
static struct tracee *signal_tracee;

static void on_queued(int signal, siginfo_t *info, void *context)
{
	(void) signal;
	(void) context;
	/* In order, and with the sender's value: the siginfo is the original. */
	if (info->si_code == SI_QUEUE && info->si_value.sival_int == signal_tracee->shared->count + 1)
		signal_tracee->shared->count++;
}

static void signal_body(struct tracee *t)
{
	const struct sigaction action = { .sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART };

	signal_tracee = t;
	sigaction(SIGRTMIN, &action, NULL);
	signal(SIGTRAP, SIG_IGN);
	in_read(&(struct tracee_arg){ .t = t, .slot = &t->shared->slot[0] });
	while (t->shared->go == 0)
		short_pause();
}

static char *signal_lines(const struct sys *s, pid_t pid)
{
	cleanup_free char *status = NULL;
	char *at;

	assert_int_equal(file_readf(s, &status, "/proc/%d/status", pid), 0);
	at = strstr(status, "SigBlk:");
	assert_non_null(at);
	*strstr(at, "CapInh:") = '\0';
	return strdup(at);
}

static void test_signals_are_kept(void **state)
{
	struct sys s = real_sys(60000);
	struct tracee t;
	struct held *h = NULL;
	cleanup_free char *before = NULL, *after = NULL;
	long r;

	(void) state;
	tracee_start(&t, signal_body);
	tracee_wait_parked(&t, 1);
	before = signal_lines(&s, t.pid);
	assert_int_equal(held_open(&s, t.pid, &h, NULL), 0);
	for (int i = 1; i <= QUEUED; i++) {
		assert_int_equal(sigqueue(t.pid, SIGRTMIN, (union sigval){ .sival_int = i }), 0);
		assert_int_equal(held_call(h, 0, SYS_getpid, no_args, &r), 0);
		assert_int_equal(r, t.pid);
	}
	assert_int_equal(t.shared->count, 0);
	held_close(h);
	wait_for(&t.shared->count, QUEUED);
	after = signal_lines(&s, t.pid);
	assert_string_equal(after, before); /* masks, and SIGTRAP is still ignored */
	assert_int_equal(write(t.to_child, "y", 1), 1);
	wait_for(&t.shared->slot[0].done, 1);
	assert_int_equal(t.shared->slot[0].result, 'y');
	tracee_end(&t);
	sys_done(&s);
}

#define BOMBS 5000

static void bombard(pid_t pid)
{
	for (int i = 1; i <= BOMBS;)
		if (sigqueue(pid, SIGRTMIN, (union sigval){ .sival_int = i }) == 0)
			i++;
		else
			sched_yield(); /* the queue is full */
	_exit(0);
}

/* A signal that arrives while the process is being stopped is delivered, and the process is held after that. */
static void test_signal_against_stop(void **state)
{
	struct sys s = real_sys(60000);
	struct tracee t;
	int rounds = 0;
	pid_t sender;
	long r;

	(void) state;
	tracee_start(&t, signal_body);
	tracee_wait_parked(&t, 1);
	sender = fork();
	if (sender == 0)
		bombard(t.pid);
	for (; t.shared->count < BOMBS && rounds < 100000; rounds++) {
		struct held *h = NULL;

		s.deadline_ns = sys_now_ns() + 60 * INT64_C(1000000000);
		assert_int_equal(held_open(&s, t.pid, &h, NULL), 0);
		assert_int_equal(held_call(h, 0, SYS_getpid, no_args, &r), 0);
		assert_int_equal(r, t.pid);
		held_close(h);
	}
	wait_for(&t.shared->count, BOMBS);
	assert_int_equal(waitpid(sender, NULL, 0), sender);
	tracee_end(&t);
	sys_done(&s);
}

static void wait_state(const struct tracee *t, char state)
{
	for (int i = 0; thread_state(t->pid, t->pid) != state; i++) {
		assert_true(i < TRACEE_PATIENCE);
		short_pause();
	}
}

/* Stopped before it is held, and stopped by a signal that comes in between: both stay stopped after it. */
static void test_stopped_process_stays_stopped(void **state)
{
	struct sys s = real_sys(60000);
	struct tracee t;
	long r = 0;

	(void) state;
	tracee_start(&t, signal_body);
	tracee_wait_parked(&t, 1);
	for (int while_held = 0; while_held < 2; while_held++) {
		struct held *h = NULL;

		if (!while_held) {
			assert_int_equal(kill(t.pid, SIGSTOP), 0);
			wait_state(&t, 'T');
		}
		assert_int_equal(held_open(&s, t.pid, &h, NULL), 0);
		if (while_held)
			assert_int_equal(kill(t.pid, SIGSTOP), 0);
		assert_int_equal(held_call(h, 0, SYS_getpid, no_args, &r), 0);
		assert_int_equal(r, t.pid);
		held_close(h);
		wait_state(&t, 'T');
		assert_int_equal(kill(t.pid, SIGCONT), 0);
		wait_state(&t, 'S');
	}
	assert_int_equal(write(t.to_child, "z", 1), 1);
	wait_for(&t.shared->slot[0].done, 1);
	assert_int_equal(t.shared->slot[0].result, 'z');
	tracee_end(&t);
	sys_done(&s);
}

static void test_killed_while_held(void **state)
{
	struct sys s = real_sys(60000);
	struct tracee t;
	struct held *h = NULL;
	long r;

	(void) state;
	tracee_start(&t, parked_body);
	tracee_wait_parked(&t, PARKED);
	assert_int_equal(held_open(&s, t.pid, &h, NULL), 0);
	assert_int_equal(kill(t.pid, SIGKILL), 0);
	assert_int_equal(held_call(h, 0, SYS_getpid, no_args, &r), -ESRCH);
	assert_int_equal(held_close(h), 0);
	assert_true(sys_left_ms(&s) > 0); /* who waits for a leader whose threads it holds waits until its time is up */
	tracee_end(&t);
	sys_done(&s);
}

/* ---- threads that come and go ---- */

static void *short_lived(void *p)
{
	(void) p;
	return NULL;
}

static void *storm_thread(void *p)
{
	struct tracee_arg *a = p;

	slot_parking(a->slot);
	while (!a->t->shared->go) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, short_lived, NULL) == 0)
			pthread_join(thread, NULL);
		a->t->shared->count++;
	}
	return NULL;
}

static void storm_body(struct tracee *t)
{
	for (int i = 0; i < 4; i++)
		tracee_thread(t, i, storm_thread);
	while (!t->shared->go)
		short_pause();
}

static void test_thread_storm(void **state)
{
	struct sys s = real_sys(60000);
	struct tracee t;

	(void) state;
	tracee_start(&t, storm_body);
	wait_for(&t.shared->count, 20);
	for (int round = 0; round < 50; round++) {
		struct held *h = NULL;
		cleanup_free pid_t *tids = NULL;
		size_t n;
		long r;
		int count;

		assert_int_equal(held_open(&s, t.pid, &h, NULL), 0);
		assert_int_equal(proc_tids(&s, t.pid, &tids, &n), 0);
		count = t.shared->count;
		for (size_t i = 0; i < n; i++)
			assert_in_set((unsigned long) thread_state(t.pid, tids[i]),
				      ((const unsigned long[]){ 't', 'Z', 'X', '-' }), 4);
		for (size_t i = 0; i < held_threads(h); i++)
			if (held_call(h, i, SYS_gettid, no_args, &r) == 0)
				assert_int_equal(r, held_tid(h, i));
		assert_int_equal(t.shared->count, count);
		held_close(h);
		wait_for(&t.shared->count, count + 5);
	}
	tracee_end(&t);
	sys_done(&s);
}

/* ---- what cannot be held ---- */

static void test_already_traced(void **state)
{
	struct sys s = real_sys(60000);
	cleanup_error struct error err = { 0 };
	struct tracee t;
	struct held *h = NULL;
	int ready[2];
	char byte;
	pid_t tracer;

	(void) state;
	assert_int_equal(pipe(ready), 0);
	tracee_start(&t, parked_body);
	tracee_wait_parked(&t, PARKED);
	tracer = fork();
	if (tracer == 0) {
		ptrace(PTRACE_SEIZE, t.shared->slot[3].tid, NULL, NULL);
		if (write(ready[1], "", 1) == 1)
			pause();
		_exit(0);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(held_open(&s, t.pid, &h, &err), -EBUSY);
	assert_null(h);
	{
		cleanup_free char *want = NULL;

		assert_true(asprintf(&want, "traced by process %d (test_inject)", tracer) > 0);
		assert_non_null(strstr(error_text(&err), want));
	}
	/* Those that were stopped before the failure go on. */
	for (int i = 0; i < PARKED; i++)
		for (int k = 0; thread_state(t.pid, t.shared->slot[i].tid) == 't'; k++) {
			assert_true(k < TRACEE_PATIENCE);
			short_pause();
		}
	kill(tracer, SIGKILL);
	waitpid(tracer, NULL, 0);
	close(ready[0]);
	close(ready[1]);
	tracee_end(&t);
	sys_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_thread_runs_the_call),
		cmocka_unit_test(test_parked_calls_go_on),
		cmocka_unit_test(test_user_mode_thread),
		cmocka_unit_test(test_signals_are_kept),
		cmocka_unit_test(test_signal_against_stop),
		cmocka_unit_test(test_stopped_process_stays_stopped),
		cmocka_unit_test(test_killed_while_held),
		cmocka_unit_test(test_thread_storm),
		cmocka_unit_test(test_already_traced),
	};

	return cmocka_run_group_tests_name("inject", tests, NULL, NULL);
}
