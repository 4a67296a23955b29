#include "tracee.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "ledger.h"

#define GROUP "pay/\x1b[31m"

struct fixture {
	struct sys s;
	struct ledger *l;
	char *dir;
	struct error err;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->s = real_sys(60000);
	f->dir = tree_new();
	assert_int_equal(ledger_open(&f->s, f->dir, &f->l, &f->err), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	ledger_close(f->l);
	tree_free(f->dir);
	error_done(&f->err);
	sys_done(&f->s);
	free(f);
	return 0;
}

static int end(struct fixture *f)
{
	int r;

	assert_int_equal(ledger_lock_name(f->l, LOCK_GROUP, GROUP, &f->err), 0);
	r = anchor_end(&f->s, f->l, GROUP, &f->err);
	ledger_unlock_name(f->l, LOCK_GROUP, GROUP);
	return r;
}

/* ---- with a table of cookies and a child that stands for the anchor ---- */

static uint64_t cookie;

static int table_get(pid_t tid, uint64_t *ret)
{
	(void) tid;
	*ret = cookie;
	return 0;
}

static void wait_body(struct tracee *t)
{
	t->shared->slot[0].tid = t->pid;
	pause();
}

static void record(struct fixture *f, const struct tracee *t, uint64_t later)
{
	struct anchor_ref ref = { .pid = t->pid };

	assert_int_equal(proc_start_time(&f->s, t->pid, &ref.start_time), 0);
	ref.start_time += later;
	assert_int_equal(ledger_lock_name(f->l, LOCK_GROUP, GROUP, &f->err), 0);
	assert_int_equal(ledger_put_anchor(f->l, GROUP, &ref, &f->err), 0);
	ledger_unlock_name(f->l, LOCK_GROUP, GROUP);
}

static void test_recorded_anchor_is_used(void **state)
{
	static const struct sys_ops ops = { .cookie_get = table_get };
	struct fixture *f = *state;
	cleanup_proc struct proc_ref p = PROC_REF_NONE;
	struct tracee t;

	f->s.ops = &ops;
	cookie = 5;
	tracee_start(&t, wait_body);
	wait_for(&t.shared->slot[0].tid, 1);
	record(f, &t, 0);
	assert_int_equal(anchor_ensure(&f->s, f->l, NULL, GROUP, &p, &f->err), 0);
	assert_int_equal(p.pid, t.pid);
	tracee_end(&t);
}

static void test_end(void **state)
{
	struct fixture *f = *state;
	struct anchor_ref ref;
	siginfo_t ended;
	struct tracee t;

	assert_int_equal(end(f), 0); /* nothing there */
	tracee_start(&t, wait_body);
	wait_for(&t.shared->slot[0].tid, 1);
	/* A record of an earlier process of that number: dropped, and the process is left alone. */
	record(f, &t, 1);
	assert_int_equal(end(f), 0);
	assert_int_equal(ledger_get_anchor(f->l, GROUP, &ref, &f->err), -ENOENT);
	assert_int_equal(waitpid(t.pid, NULL, WNOHANG), 0);
	record(f, &t, 0);
	assert_int_equal(end(f), 0);
	assert_int_equal(ledger_get_anchor(f->l, GROUP, &ref, &f->err), -ENOENT);
	assert_int_equal(waitid(P_PID, (id_t) t.pid, &ended, WEXITED | WNOWAIT), 0);
	assert_int_equal(ended.si_status, SIGKILL);
	tracee_end(&t);
}

static void test_foreign_root(void **state)
{
	struct fixture *f = *state;
	struct proc_ref p = PROC_REF_NONE;
	struct sys foreign;

	assert_int_equal(sys_open("/tmp", &foreign, NULL), 0);
	assert_int_equal(anchor_ensure(&foreign, f->l, NULL, GROUP, &p, &f->err), -EROFS);
	sys_done(&foreign);
}

/* ---- with the real program and a kernel that has cookies ---- */

static bool unsupported(struct fixture *f)
{
	if (coresched_probe(&f->s, NULL) == CORESCHED_SUPPORTED)
		return false;
	print_message("needs core scheduling: CONFIG_SCHED_CORE and SMT\n");
	return true;
}

static void test_without_support(void **state)
{
	struct fixture *f = *state;
	struct proc_ref p = PROC_REF_NONE;
	struct anchor_ref ref;
	uint64_t own;
	int why = f->s.ops->cookie_get(0, &own);

	if (why == 0)
		skip(); /* the other half is tested below */
	assert_int_equal(anchor_ensure(&f->s, f->l, NULL, GROUP, &p, &f->err), why);
	assert_non_null(strstr(error_text(&f->err), "group pay/\\x1b[31m: no cookie could be created"));
	assert_int_equal(ledger_get_anchor(f->l, GROUP, &ref, &f->err), -ENOENT);
	assert_int_equal(waitpid(-1, NULL, __WALL | WNOHANG), -1); /* no child is left */
}

/* The anchor is looked for beside the running program. */
static void place_program(void)
{
	char self[PATH_MAX] = "";
	cleanup_free char *built = NULL, *beside = NULL;
	char *dir;

	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	dir = dirname(self);
	assert_true(asprintf(&built, "%s/../../cotenant-anchor", dir) > 0);
	assert_true(asprintf(&beside, "%s/cotenant-anchor", dir) > 0);
	if (access(built, X_OK) == 0 && access(beside, X_OK) < 0)
		assert_int_equal(symlink("../../cotenant-anchor", beside), 0);
	assert_int_equal(access(beside, X_OK), 0);
}

static char *status_of(struct fixture *f, pid_t pid)
{
	char *status = NULL;

	assert_int_equal(file_readf(&f->s, &status, "/proc/%d/status", pid), 0);
	return status;
}

/* Until the anchor has confined itself. */
static char *settled_status(struct fixture *f, pid_t pid)
{
	char *status = status_of(f, pid);

	for (int i = 0; !strstr(status, "\nSeccomp:\t2\n") || !strstr(status, "\nState:\tS"); i++) {
		assert_true(i < TRACEE_PATIENCE);
		short_pause();
		free(status);
		status = status_of(f, pid);
	}
	return status;
}

static const char *unified_mount(void)
{
	if (access("/sys/fs/cgroup/cgroup.procs", F_OK) == 0)
		return "/sys/fs/cgroup";
	return access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0 ? "/sys/fs/cgroup/unified" : NULL;
}

static void test_real_anchor(void **state)
{
	static const char words[] = "cotenant-anchor\0--hold\0pay/\\x1b[31m";
	struct fixture *f = *state;
	char mount[64] = "";
	struct cgroup_layout layout = { .unified_mount = unified_mount() ? mount : NULL };
	cleanup_proc struct proc_ref p = PROC_REF_NONE, again = PROC_REF_NONE, third = PROC_REF_NONE;
	cleanup_free char *status = NULL, *cgroup = NULL, *score = NULL, *command = NULL, *fds = NULL;
	uint64_t first = 0, second = 0;
	siginfo_t info;

	if (unsupported(f))
		skip();
	if (layout.unified_mount)
		strncpy(mount, unified_mount(), sizeof(mount) - 1);
	place_program();
	assert_int_equal(anchor_ensure(&f->s, f->l, &layout, GROUP, &p, &f->err), 0);
	assert_int_equal(f->s.ops->cookie_get(p.pid, &first), 0);
	assert_true(first != 0);
	status = settled_status(f, p.pid);
	assert_non_null(strstr(status, "Name:\tcotenant-anchor\n"));
	assert_non_null(strstr(status, "\nCapEff:\t0000000000000000\n"));
	assert_non_null(strstr(status, "\nCapPrm:\t0000000000000000\n"));
	assert_non_null(strstr(status, "\nCapBnd:\t0000000000000000\n"));
	assert_non_null(strstr(status, "\nNoNewPrivs:\t1\n"));
	print_message("%.*s\n", (int) strcspn(strstr(status, "VmRSS"), "\n"), strstr(status, "VmRSS"));
	assert_int_equal(file_readf(&f->s, &score, "/proc/%d/oom_score_adj", p.pid), 0);
	assert_string_equal(score, "-1000\n");
	assert_int_equal(file_readf(&f->s, &command, "/proc/%d/cmdline", p.pid), 0);
	assert_memory_equal(command, words, sizeof(words));
	assert_int_equal(file_readf(&f->s, &cgroup, "/proc/%d/cgroup", p.pid), 0);
	if (layout.unified_mount)
		assert_non_null(strstr(cgroup, "0::/cotenant-anchors\n"));
	/* No descriptor of the starter's lives on. */
	assert_true(asprintf(&fds, "test \"$(readlink /proc/%d/fd/* | sort | uniq -c | tr -s ' ')\" = ' 3 /dev/null'",
			     p.pid) > 0);
	assert_int_equal(system(fds), 0);
	/* The same one for the next container of the group; a new one when it was killed. */
	assert_int_equal(anchor_ensure(&f->s, f->l, &layout, GROUP, &again, &f->err), 0);
	assert_int_equal(again.pid, p.pid);
	assert_int_equal(kill(p.pid, SIGTERM), 0);
	assert_int_equal(waitid(P_PID, (id_t) p.pid, &info, WEXITED), 0);
	assert_int_equal(info.si_status, SIGTERM);
	assert_int_equal(anchor_ensure(&f->s, f->l, &layout, GROUP, &third, &f->err), 0);
	assert_int_equal(f->s.ops->cookie_get(third.pid, &second), 0);
	assert_true(second != 0 && third.pid != p.pid);
	assert_int_equal(end(f), 0);
	assert_int_equal(waitpid(third.pid, NULL, 0), third.pid);
}

/* A group may be called as the program's options are. */
static void test_group_named_as_option(void **state)
{
	static const char *const names[] = { "--keep", "--help", "--hold" };
	struct fixture *f = *state;

	if (unsupported(f))
		skip();
	place_program();
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		cleanup_proc struct proc_ref p = PROC_REF_NONE;
		cleanup_free char *status = NULL;

		assert_int_equal(anchor_ensure(&f->s, f->l, NULL, names[i], &p, &f->err), 0);
		status = settled_status(f, p.pid); /* the keeper has no filter */
		assert_int_equal(ledger_lock_name(f->l, LOCK_GROUP, names[i], &f->err), 0);
		assert_int_equal(anchor_end(&f->s, f->l, names[i], &f->err), 0);
		ledger_unlock_name(f->l, LOCK_GROUP, names[i]);
		assert_int_equal(waitpid(p.pid, NULL, 0), p.pid);
	}
}

/* A starter that is killed before the anchor is on record takes the anchor along. */
static void test_unrecorded_anchor_ends(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *path = NULL;
	int go[2], status;
	pid_t pid;

	if (unsupported(f))
		skip();
	place_program();
	assert_int_equal(helper_path("cotenant-anchor", &path), 0);
	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		if (coresched_create() < 0)
			_exit(98);
		dup2(go[0], 0);
		execl(path, "cotenant-anchor", "--hold", "red", (char *) NULL);
		_exit(99);
	}
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	close(go[0]);
	close(go[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_recorded_anchor_is_used, setup, teardown),
		cmocka_unit_test_setup_teardown(test_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_foreign_root, setup, teardown),
		cmocka_unit_test_setup_teardown(test_without_support, setup, teardown),
		cmocka_unit_test_setup_teardown(test_real_anchor, setup, teardown),
		cmocka_unit_test_setup_teardown(test_group_named_as_option, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unrecorded_anchor_ends, setup, teardown),
	};

	return cmocka_run_group_tests_name("anchor", tests, NULL, NULL);
}
