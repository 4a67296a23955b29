#include "tracee.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SCHED_CORE 62
#define I386_PRCTL 172
#define I386_SCHED_SETAFFINITY 241
#define I386_SET_MEMPOLICY 276
#define X32_BIT 0x40000000L

/* What the child tries once it is let go. The kernel here may lack the calls: only EPERM is the guard's answer. */
enum probe {
	COOKIE_GET,
	COOKIE_CREATE,
	COOKIE_SHARE_FROM,
	COOKIE_HIGH_OPTION,  /* bits above the int that the kernel reads */
	COOKIE_HIGH_COMMAND,
	COOKIE_INT80,
	COOKIE_INT80_GET,
	COOKIE_X32,
	OTHER_PRCTL,
	SET_MEMPOLICY,
	MBIND,
	HOME_NODE,
	MIGRATE_PAGES,
	MOVE_PAGES,
	MEMPOLICY_INT80,
	MEMPOLICY_X32,
	GET_MEMPOLICY,
	SET_AFFINITY,
	AFFINITY_INT80,
	GET_AFFINITY,
	PROBE_COUNT
};

struct results {
	long of[PROBE_COUNT];
};

static long call(long nr, long a, long b, long c, long d, long e)
{
	long r = syscall(nr, a, b, c, d, e);

	return r < 0 ? -errno : r;
}

static bool with_int80; /* set once, by main() */

static long int80(long nr, long a, long b, long c)
{
	long r;

	if (!with_int80)
		return -ENOSYS;
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(nr), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
	return (int) r;
}

static void try_all(struct results *r)
{
	static uint64_t cookie;
	static unsigned long mask = 1;
	const long high = INT64_C(1) << 32;

	r->of[COOKIE_GET] = call(SYS_prctl, SCHED_CORE, 0, 0, 0, (long) &cookie);
	r->of[COOKIE_CREATE] = call(SYS_prctl, SCHED_CORE, 1, 0, 0, 0);
	r->of[COOKIE_SHARE_FROM] = call(SYS_prctl, SCHED_CORE, 3, 1, 0, 0);
	r->of[COOKIE_HIGH_OPTION] = call(SYS_prctl, SCHED_CORE | high, 1, 0, 0, 0);
	r->of[COOKIE_HIGH_COMMAND] = call(SYS_prctl, SCHED_CORE, 1 | high, 0, 0, 0);
	r->of[COOKIE_INT80] = int80(I386_PRCTL, SCHED_CORE, 1, 0);
	r->of[COOKIE_INT80_GET] = int80(I386_PRCTL, SCHED_CORE, 0, 0);
	r->of[COOKIE_X32] = call(X32_BIT | SYS_prctl, SCHED_CORE, 1, 0, 0, 0);
	r->of[OTHER_PRCTL] = call(SYS_prctl, PR_GET_DUMPABLE, 1, 0, 0, 0);
	r->of[SET_MEMPOLICY] = call(SYS_set_mempolicy, MPOL_DEFAULT, 0, 0, 0, 0);
	r->of[MBIND] = call(SYS_mbind, 0, 0, MPOL_DEFAULT, 0, 0);
	r->of[HOME_NODE] = call(450, 0, 0, 0, 0, 0);
	r->of[MIGRATE_PAGES] = call(SYS_migrate_pages, 0, 8, (long) &mask, (long) &mask, 0);
	r->of[MOVE_PAGES] = call(SYS_move_pages, 0, 0, 0, 0, 0);
	r->of[MEMPOLICY_INT80] = int80(I386_SET_MEMPOLICY, MPOL_DEFAULT, 0, 0);
	r->of[MEMPOLICY_X32] = call(X32_BIT | SYS_set_mempolicy, MPOL_DEFAULT, 0, 0, 0, 0);
	r->of[GET_MEMPOLICY] = call(SYS_get_mempolicy, 0, 0, 0, 0, 0);
	r->of[SET_AFFINITY] = call(SYS_sched_setaffinity, 0, sizeof(mask), (long) &mask, 0, 0);
	r->of[AFFINITY_INT80] = int80(I386_SCHED_SETAFFINITY, 0, 0, 0);
	r->of[GET_AFFINITY] = call(SYS_sched_getaffinity, 0, sizeof(mask), (long) &mask, 0, 0);
}

static void *parked_thread(void *p)
{
	struct tracee_arg *a = p;
	char byte;

	slot_parking(a->slot);
	while (read(a->t->from_parent, &byte, 1) < 0)
		;
	/* In a thread that did not make the call itself. The results take the place of the slots, now of no more use. */
	try_all((struct results *) a->t->shared->slot);
	a->t->shared->count = 1;
	return NULL;
}

static void body(struct tracee *t)
{
	tracee_thread(t, 1, parked_thread);
	while (t->shared->count == 0)
		short_pause();
}

static void guarded(unsigned guard, struct results *ret)
{
	struct sys s = real_sys(60000);
	cleanup_error struct error err = { 0 };
	struct tracee t;
	struct held *h = NULL;

	tracee_start(&t, body);
	wait_for(&t.shared->slot[1].tid, 1);
	assert_int_equal(held_open(&s, t.pid, &h, &err), 0);
	assert_int_equal(guard_inject(h, guard, &err), 0);
	held_close(h);
	assert_true(sizeof(*ret) <= sizeof(t.shared->slot));
	assert_int_equal(write(t.to_child, "", 1), 1);
	wait_for(&t.shared->count, 1);
	memcpy(ret, t.shared->slot, sizeof(*ret));
	tracee_end(&t);
	sys_done(&s);
}

#define BIT(probe) (1u << (probe))
#define COOKIE_PROBES                                                                                        \
	(BIT(COOKIE_CREATE) | BIT(COOKIE_SHARE_FROM) | BIT(COOKIE_HIGH_OPTION) | BIT(COOKIE_HIGH_COMMAND) | \
	 BIT(COOKIE_INT80) | BIT(COOKIE_X32))
#define MEMORY_PROBES                                                                                     \
	(BIT(SET_MEMPOLICY) | BIT(MBIND) | BIT(HOME_NODE) | BIT(MIGRATE_PAGES) | BIT(MOVE_PAGES) | \
	 BIT(MEMPOLICY_INT80) | BIT(MEMPOLICY_X32))
#define INT80_PROBES (BIT(COOKIE_INT80) | BIT(MEMPOLICY_INT80) | BIT(AFFINITY_INT80))
#define AFFINITY_PROBES (BIT(SET_AFFINITY) | BIT(AFFINITY_INT80))

static void expect_denied(const struct results *r, unsigned denied)
{
	if (!with_int80)
		denied &= ~INT80_PROBES;
	for (int i = 0; i < PROBE_COUNT; i++) {
		if ((r->of[i] == -EPERM) == (denied >> i & 1))
			continue;
		fail_msg("probe %d answers %ld, which is%s EPERM", i, r->of[i], denied >> i & 1 ? " not" : "");
	}
}

static void test_each_guard(void **state)
{
	static const struct {
		unsigned guard, denied;
	} cases[] = {
		{ GUARD_COOKIE, COOKIE_PROBES },
		{ GUARD_MEMORY, MEMORY_PROBES },
		{ GUARD_AFFINITY, AFFINITY_PROBES },
		{ GUARD_COOKIE | GUARD_MEMORY | GUARD_AFFINITY, COOKIE_PROBES | MEMORY_PROBES | AFFINITY_PROBES },
	};
	struct results bare, r;

	(void) state;
	/* Without a guard nothing answers EPERM here, or the rest proves nothing. */
	try_all(&bare);
	expect_denied(&bare, 0);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		memset(&r, 0, sizeof(r));
		guarded(cases[i].guard, &r);
		expect_denied(&r, cases[i].denied);
		/* Looking at one's own cookie stays allowed, and answers what the kernel answered before. */
		assert_int_equal(r.of[COOKIE_GET], bare.of[COOKIE_GET]);
		assert_int_equal(r.of[COOKIE_INT80_GET], bare.of[COOKIE_INT80_GET]);
		assert_int_equal(r.of[OTHER_PRCTL], 1);
	}
}

static void own_filter_body(struct tracee *t)
{
	const struct bpf_filter *f = sandbox_guard_filter(GUARD_AFFINITY);

	tracee_thread(t, 1, parked_thread);
	wait_for(&t->shared->slot[1].tid, 1);
	/* Confines this thread alone: the other's filters are no longer an ancestor of its. */
	if (!f)
		_exit(1);
	{
		struct {
			unsigned short len;
			const void *code;
		} program = { (unsigned short) f->len, f->code };

		if (syscall(SYS_seccomp, 1, 0, &program) < 0)
			_exit(2);
	}
	t->shared->go = 1;
	for (;;)
		short_pause();
}

static void test_thread_with_its_own_filter(void **state)
{
	struct sys s = real_sys(60000);
	cleanup_error struct error err = { 0 };
	struct tracee t;
	struct held *h = NULL;
	size_t with = 0;

	(void) state;
	tracee_start(&t, own_filter_body);
	wait_for(&t.shared->go, 1);
	assert_int_equal(held_open(&s, t.pid, &h, NULL), 0);
	/* Installing in the filtered main thread syncs the other, which is an ancestor: allowed. */
	assert_int_equal(guard_inject(h, GUARD_COOKIE, &err), 0);
	for (size_t i = 0; i < held_threads(h); i++) {
		cleanup_free char *status = NULL;

		assert_int_equal(file_readf(&s, &status, "/proc/%d/status", held_tid(h, i)), 0);
		with += strstr(status, "\nSeccomp_filters:\t2\n") != NULL;
	}
	assert_int_equal(with, held_threads(h));
	held_close(h);
	tracee_end(&t);
	sys_done(&s);
}

static void test_nothing_to_guard(void **state)
{
	(void) state;
	assert_int_equal(guard_inject(NULL, 0, NULL), 0);
}

/* In a process of its own: the filter cannot be taken off again. */
static void test_anchor_sandbox(void **state)
{
	int status;
	pid_t pid = fork();

	(void) state;
	if (pid == 0) {
		int r = sandbox_anchor();
		long denied = 0;

		denied += call(SYS_getpid, 0, 0, 0, 0, 0) == -EPERM;
		denied += call(SYS_openat, AT_FDCWD, (long) "/", 0, 0, 0) == -EPERM;
		denied += call(SYS_kill, 0, 0, 0, 0, 0) == -EPERM;
		denied += call(SYS_execve, (long) "/bin/true", 0, 0, 0, 0) == -EPERM;
		syscall(SYS_exit_group, r == 0 ? denied : 100);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_guard),
		cmocka_unit_test(test_thread_with_its_own_filter),
		cmocka_unit_test(test_nothing_to_guard),
		cmocka_unit_test(test_anchor_sandbox),
	};

	with_int80 = has_int80();
	if (!with_int80)
		print_message("32-bit calls are not tried: needs CONFIG_IA32_EMULATION\n");
	return cmocka_run_group_tests_name("guard", tests, NULL, NULL);
}
