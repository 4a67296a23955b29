#include "tracee.h"
#include "tree.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* ---- a machine made of files and a table of cookies ---- */

static char *root;

static int make_root(void **state)
{
	(void) state;
	root = tree_new();
	return 0;
}

static int remove_root(void **state)
{
	(void) state;
	tree_free(root);
	return 0;
}

static int get_result;
static uint64_t cookie_of[16];

static int table_get(pid_t tid, uint64_t *ret)
{
	if (get_result < 0)
		return get_result;
	if (tid < 0 || tid >= (pid_t) ARRAY_LEN(cookie_of) || cookie_of[tid] == UINT64_MAX)
		return -ESRCH;
	*ret = cookie_of[tid];
	return 0;
}

static int table_share(pid_t from, pid_t to)
{
	(void) from;
	(void) to;
	return -EPERM;
}

static const struct sys_ops table_ops = { .cookie_get = table_get, .cookie_share = table_share };

static struct sys table_sys(void)
{
	struct sys s;

	assert_int_equal(sys_open(root, &s, NULL), 0);
	s.ops = &table_ops;
	return s;
}

#define STAT_TAIL " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 0 "

static void test_stat_texts(void **state)
{
	static const struct {
		const char *text;
		int r;
		uint64_t start;
	} cases[] = {
		{ "7 (init) S" STAT_TAIL "4711 0\n", 0, 4711 },
		{ "7 (a) b) (c d) R" STAT_TAIL "18446744073709551615 0\n", 0, UINT64_MAX },
		{ "7 (init) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 1 0 4711 0\n", -ESRCH, 0 },
		{ "7 (init) Z" STAT_TAIL "4711 0\n", 0, 4711 }, /* its main thread has ended, 17 others run */
		{ "7 (S 1) X" STAT_TAIL "4711 0\n", -ESRCH, 0 },
		{ "7 (init) S 1 2 3\n", -EBADMSG, 0 },
		{ "7 (init) S" STAT_TAIL "x 0\n", -EBADMSG, 0 },
		{ "7 (init)", -EBADMSG, 0 },
		{ "", -EBADMSG, 0 },
	};
	struct sys s = table_sys();
	struct proc_ref p = PROC_REF_NONE;

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint64_t start = 0;

		tree_file(root, "/proc/7/stat", cases[i].text);
		assert_int_equal(proc_start_time(&s, 7, &start), cases[i].r);
		assert_true(start == cases[i].start);
	}
	tree_file(root, "/proc/7/stat", cases[0].text);
	assert_true(proc_alive(&s, 7, 4711));
	assert_false(proc_alive(&s, 7, 4712));
	assert_false(proc_alive(&s, 8, 4711));
	assert_int_equal(proc_open(&s, 7, &p), 0);
	assert_int_equal(p.start_time, 4711);
	assert_int_equal(p.pidfd, -1);
	assert_int_equal(proc_open(&s, 8, &p), -ESRCH);
	assert_int_equal(proc_kill(&s, 7, 4711), -EROFS);
	sys_done(&s);
}

static void test_tids(void **state)
{
	struct sys s = table_sys();
	cleanup_free pid_t *tids = NULL;
	size_t n = 0;

	(void) state;
	assert_int_equal(proc_tids(&s, 7, &tids, &n), -ESRCH);
	tree_file(root, "/proc/7/task/100/stat", "");
	tree_file(root, "/proc/7/task/9/stat", "");
	tree_file(root, "/proc/7/task/11/stat", "");
	tree_file(root, "/proc/7/task/x5/stat", "");
	tree_file(root, "/proc/7/task/99999999999/stat", "");
	assert_int_equal(proc_tids(&s, 7, &tids, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(tids[0], 9);
	assert_int_equal(tids[1], 11);
	assert_int_equal(tids[2], 100);
	sys_done(&s);
}

static void test_cookie_verify(void **state)
{
	struct sys s = table_sys();
	pid_t tid = 0;

	(void) state;
	for (int i = 1; i <= 3; i++) {
		cleanup_free char *path = NULL;

		assert_true(asprintf(&path, "/proc/1/task/%d/stat", i) > 0);
		tree_file(root, path, "");
		cookie_of[i] = 77;
	}
	cookie_of[5] = 77;
	get_result = 0;
	assert_int_equal(cookie_verify(&s, 1, 5, &tid), 0);
	cookie_of[2] = UINT64_MAX; /* ended meanwhile */
	assert_int_equal(cookie_verify(&s, 1, 5, &tid), 0);
	assert_int_equal(tid, 0);
	cookie_of[3] = 78;
	assert_int_equal(cookie_verify(&s, 1, 5, &tid), -EBADE);
	assert_int_equal(tid, 3);
	cookie_of[1] = cookie_of[3] = cookie_of[5] = 0; /* all alike, but no cookie */
	assert_int_equal(cookie_verify(&s, 1, 5, &tid), -EBADE);
	assert_int_equal(tid, 5);
	cookie_of[5] = UINT64_MAX;
	assert_int_equal(cookie_verify(&s, 1, 5, &tid), -ESRCH);
	sys_done(&s);
}

static void test_probe(void **state)
{
	static const struct {
		int result;
		const char *sched_ext, *release;
		enum coresched_support want;
		const char *detail;
	} cases[] = {
		{ 0, NULL, "6.12.0\n", CORESCHED_SUPPORTED, NULL },
		{ -EINVAL, NULL, "6.12.0\n", CORESCHED_NO_KERNEL_OPTION, NULL },
		{ -ENODEV, "enabled\n", "6.12.0\n", CORESCHED_NO_SIBLINGS, NULL },
		{ -EPERM, NULL, "6.12.0\n", CORESCHED_DENIED, NULL },
		{ -ENOSYS, NULL, "6.12.0\n", CORESCHED_DENIED, NULL },
		{ 0, "disabled\n", "6.12.0\n", CORESCHED_SUPPORTED, NULL },
		{ 0, "enabled\n", "6.12.0\n", CORESCHED_KNOWN_BAD, "sched_ext scheduler simple" },
		{ 0, "enabling\n", "6.12.0\n", CORESCHED_KNOWN_BAD, "sched_ext scheduler simple" },
		{ 0, NULL, "5.10.134-16.1.an8.x86_64\n", CORESCHED_KNOWN_BAD, "kernel 5.10.134-16.1.an8.x86_64: " },
		{ 0, NULL, "5.10.134-9.an8.x86_64\n", CORESCHED_KNOWN_BAD, "kernel 5.10.134-9.an8" },
		{ 0, NULL, "5.10.134-16.2.an8.x86_64\n", CORESCHED_SUPPORTED, NULL },
		{ 0, NULL, "5.10.134-16.1.el8.x86_64\n", CORESCHED_SUPPORTED, NULL },
		{ 0, NULL, "6.6.1-1.an23.x86_64\n", CORESCHED_SUPPORTED, NULL },
		{ 0, NULL, "5.14.0-503.el9\n", CORESCHED_SUPPORTED, NULL },
	};
	struct sys s = table_sys();

	(void) state;
	memset(cookie_of, 0, sizeof(cookie_of));
	tree_file(root, "/sys/kernel/sched_ext/root/ops", "simple\n");
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		cleanup_free char *detail = NULL;

		get_result = cases[i].result;
		tree_file(root, "/sys/kernel/sched_ext/state", cases[i].sched_ext ? cases[i].sched_ext : "disabled\n");
		tree_file(root, "/proc/sys/kernel/osrelease", cases[i].release);
		assert_int_equal(coresched_probe(&s, &detail), cases[i].want);
		assert_int_equal(coresched_probe(&s, NULL), cases[i].want);
		assert_int_equal(detail != NULL, cases[i].detail != NULL);
		if (detail)
			assert_memory_equal(detail, cases[i].detail, strlen(cases[i].detail));
	}
	get_result = -EROFS; /* a foreign root */
	tree_file(root, "/sys/devices/system/cpu/smt/active", "1\n");
	assert_int_equal(coresched_probe(&s, NULL), CORESCHED_SUPPORTED);
	tree_file(root, "/sys/devices/system/cpu/smt/active", "0\n");
	assert_int_equal(coresched_probe(&s, NULL), CORESCHED_NO_SIBLINGS);
	sys_done(&s);
}

/* ---- real processes ---- */

static void wait_body(struct tracee *t)
{
	char byte;

	prctl(PR_SET_NAME, ") S 1 2 (");
	t->shared->slot[0].tid = t->pid;
	while (read(t->from_parent, &byte, 1) < 0)
		;
}

static void test_real_process(void **state)
{
	struct sys s = real_sys(60000);
	cleanup_proc struct proc_ref p = PROC_REF_NONE, again = PROC_REF_NONE;
	struct pollfd ended;
	struct tracee t;

	(void) state;
	tracee_start(&t, wait_body);
	wait_for(&t.shared->slot[0].tid, 1);
	assert_int_equal(proc_open(&s, t.pid, &p), 0);
	assert_int_equal(p.pid, t.pid);
	assert_true(p.pidfd >= 0);
	assert_true(proc_alive(&s, t.pid, p.start_time));
	/* Another process of that number would have another start time: it is not the one to kill. */
	assert_int_equal(proc_kill(&s, t.pid, p.start_time + 1), 0);
	assert_true(proc_alive(&s, t.pid, p.start_time));
	assert_int_equal(proc_kill(&s, t.pid, p.start_time), 0);
	ended = (struct pollfd){ .fd = p.pidfd, .events = POLLIN };
	assert_int_equal(poll(&ended, 1, 60000), 1);
	/* Not reaped yet: a zombie counts as gone. */
	assert_false(proc_alive(&s, t.pid, p.start_time));
	assert_int_equal(proc_open(&s, t.pid, &again), -ESRCH);
	assert_int_equal(proc_kill(&s, t.pid, p.start_time), 0);
	tracee_end(&t);
	assert_int_equal(proc_open(&s, t.pid, &again), -ESRCH);
	assert_int_equal(proc_open(&s, 0, &again), -ESRCH);
	assert_int_equal(again.pidfd, -1);
	sys_done(&s);
}

static bool unsupported(const struct sys *s)
{
	enum coresched_support support = coresched_probe(s, NULL);

	if (support == CORESCHED_SUPPORTED)
		return false;
	print_message("needs core scheduling: CONFIG_SCHED_CORE and SMT\n");
	return true;
}

static void create_body(struct tracee *t)
{
	t->shared->value = prctl(62, 1, 0, 1, 0);
	wait_body(t);
}

static void test_cookie_share(void **state)
{
	struct sys s = real_sys(60000);
	struct tracee from, to;
	uint64_t mine = 1, a = 0, b = 0;
	pid_t tid = 0;

	(void) state;
	if (unsupported(&s)) {
		/* Even so the child must run, report and be reaped. */
		int r = s.ops->cookie_share(getpid(), getpid());

		assert_true(r == -EINVAL || r == -ENODEV || r == -EPERM);
		assert_int_equal(waitpid(-1, NULL, __WALL | WNOHANG), -1);
		sys_done(&s);
		skip();
	}
	tracee_start(&from, create_body);
	tracee_start(&to, wait_body);
	wait_for(&from.shared->slot[0].tid, 1);
	assert_int_equal(from.shared->value, 0);
	assert_int_equal(s.ops->cookie_get(from.pid, &a), 0);
	assert_true(a != 0);
	assert_int_equal(cookie_verify(&s, to.pid, from.pid, &tid), -EBADE);
	assert_int_equal(tid, to.pid);
	assert_int_equal(s.ops->cookie_share(from.pid, to.pid), 0);
	assert_int_equal(cookie_verify(&s, to.pid, from.pid, &tid), 0);
	assert_int_equal(s.ops->cookie_get(0, &mine), 0);
	assert_int_equal(mine, 0); /* the caller never carried it */
	assert_int_equal(s.ops->cookie_share(0, to.pid), 0);
	assert_int_equal(s.ops->cookie_get(to.pid, &b), 0);
	assert_int_equal(b, 0);
	tracee_end(&from);
	tracee_end(&to);
	assert_int_equal(s.ops->cookie_share(from.pid, to.pid), -ESRCH);
	assert_int_equal(waitpid(-1, NULL, __WALL | WNOHANG), -1);
	sys_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_stat_texts, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_tids, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_cookie_verify, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_probe, make_root, remove_root),
		cmocka_unit_test(test_real_process),
		cmocka_unit_test(test_cookie_share),
	};

	return cmocka_run_group_tests_name("proc", tests, NULL, NULL);
}
