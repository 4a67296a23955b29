#include "../../sys/discover.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#define V2 "/sys/fs/cgroup"
#define V1 "/sys/fs/cgroup/cpuset"

static const struct cgroup_layout v2 = { .cpuset_mount = (char *) V2, .cpuset_v2 = true, .unified_mount = (char *) V2 };
static const struct cgroup_layout v1 = { .cpuset_mount = (char *) V1, .cpuset_v2 = false };

struct tree {
	char *root;
	struct sys sys;
};

static int setup(void **state)
{
	struct tree *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	t->root = tree_new();
	assert_int_equal(sys_open(t->root, &t->sys, NULL), 0);
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	struct tree *t = *state;

	sys_done(&t->sys);
	tree_free(t->root);
	free(t);
	return 0;
}

static void v2_group(const struct tree *t, const char *path, const char *cpus, const char *mems, const char *effective)
{
	static const char *const names[] = { "cpuset.cpus", "cpuset.mems", "cpuset.cpus.effective",
					     "cpuset.mems.effective" };
	const char *values[] = { cpus, mems, effective, "0\n" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		cleanup_free char *file = NULL;

		assert_true(asprintf(&file, V2 "%s/%s", path, names[i]) > 0);
		tree_file(t->root, file, values[i]);
	}
}

static void refuse_open(const struct tree *t, const struct cgroup_layout *layout, const char *cgroup, int code,
			const char *text)
{
	cleanup_cpuset struct cpuset c = CPUSET_NONE;
	cleanup_error struct error err = { 0 };

	tree_file(t->root, "/proc/7/cgroup", cgroup);
	assert_int_equal(cpuset_open(&t->sys, layout, 7, &c, &err), -code);
	assert_int_equal(c.dir_fd, -1);
	if (!strstr(error_text(&err), text))
		fail_msg("\"%s\" does not say \"%s\"", error_text(&err), text);
}

/* ---- finding ---- */

static void test_open_v2(void **state)
{
	const struct tree *t = *state;
	cleanup_cpuset struct cpuset c = CPUSET_NONE;
	cleanup_free char *cpus = NULL, *mems = NULL;
	struct mask effective;
	nodemask nodes;

	v2_group(t, "/a.slice/c1", "2-3\n", "\n", "2-3\n");
	tree_file(t->root, "/proc/7/cgroup", "4:cpuset:/elsewhere\n0::/a.slice/c1\n");
	assert_int_equal(cpuset_open(&t->sys, &v2, 7, &c, NULL), 0);
	assert_string_equal(c.path, "/a.slice/c1");
	assert_true(c.v2);
	assert_int_equal(cpuset_read(&c, &cpus, &mems, &effective, &nodes), 0);
	assert_string_equal(cpus, "2-3");
	assert_string_equal(mems, "");
	assert_true(mask_test(&effective, 2) && mask_test(&effective, 3) && mask_weight(&effective) == 2);
	assert_int_equal(nodes, 1);
}

static void test_open_v1(void **state)
{
	const struct tree *t = *state;
	cleanup_cpuset struct cpuset c = CPUSET_NONE;
	struct mask effective;
	nodemask nodes;

	/* A kernel without the effective files: the configured value is what applies. */
	tree_file(t->root, V1 "/pod/c1/cpuset.cpus", "1,5\n");
	tree_file(t->root, V1 "/pod/c1/cpuset.mems", "0-1\n");
	tree_file(t->root, "/proc/7/cgroup", "5:notcpuset:/x\n4:cpu,cpuset:/pod/c1\n0::/unified\n");
	assert_int_equal(cpuset_open(&t->sys, &v1, 7, &c, NULL), 0);
	assert_string_equal(c.path, "/pod/c1");
	assert_int_equal(cpuset_read(&c, NULL, NULL, &effective, &nodes), 0);
	assert_true(mask_test(&effective, 1) && mask_test(&effective, 5));
	assert_int_equal(nodes, 3);
}

static void test_open_refuses(void **state)
{
	const struct tree *t = *state;
	const struct cgroup_layout none = { 0 };

	v2_group(t, "/real/inner", "0\n", "0\n", "0\n");
	v2_group(t, "/deep/down", "0\n", "0\n", "0\n");
	tree_link(t->root, V2 "/link", "real");
	tree_link(t->root, V2 "/real/loop", "inner");
	tree_dir(t->root, V2 "/bare");
	refuse_open(t, &v2, "0::/../other\n", ENOTSUP, "namespace");
	refuse_open(t, &v2, "0::/..\n", ENOTSUP, "namespace");
	refuse_open(t, &v2, "0::/real/inner (deleted)\n", ENOENT, "removed");
	refuse_open(t, &v2, "0::/real/../real/inner\n", EINVAL, "\"..\"");
	refuse_open(t, &v2, "0::/link/inner\n", ENOTDIR, "symbolic link");
	refuse_open(t, &v2, "0::/real/loop\n", ENOTDIR, "symbolic link");
	refuse_open(t, &v2, "0::/real/gone\n", ENOENT, "/real/gone");
	refuse_open(t, &v2, "0::/bare\n", ENOTSUP, "no cpuset controller");
	refuse_open(t, &v2, "0::/\n", ENOTSUP, "root cgroup");
	refuse_open(t, &v2, "0::real/inner\n", EINVAL, "path");
	refuse_open(t, &v2, "4:cpuset:/real/inner\n", ENOTSUP, "no cgroup of the cpuset hierarchy");
	refuse_open(t, &v2, "", ENOTSUP, "no cgroup");
	refuse_open(t, &v1, "4:cpu:/real/inner\n0::/real/inner\n", ENOTSUP, "no cgroup");
	refuse_open(t, &none, "0::/real/inner\n4:cpuset:/x\n", ENOTSUP, "no cpuset controller is mounted");
	refuse_open(t, &v2, "0::/evil\033[31m\n", ENOENT, "/evil\\x1b[31m");
}

static void test_no_process(void **state)
{
	const struct tree *t = *state;
	cleanup_cpuset struct cpuset c = CPUSET_NONE;
	cleanup_error struct error err = { 0 };

	assert_int_equal(cpuset_open(&t->sys, &v2, 99, &c, &err), -ESRCH);
	assert_non_null(strstr(error_text(&err), "process 99"));
}

/* ---- writing, with plain files in the kernel's place ---- */

static void test_foreign_root_is_not_written(void **state)
{
	const struct tree *t = *state;
	cleanup_cpuset struct cpuset c = CPUSET_NONE;
	cleanup_free char *after = NULL;

	v2_group(t, "/c", "0-3\n", "0\n", "0-3\n");
	assert_int_equal(cpuset_open_path(&t->sys, &v2, "/c", &c, NULL), 0);
	assert_int_equal(cpuset_write(&t->sys, &c, "2-3", NULL, NULL), -EROFS);
	after = tree_read(t->root, V2 "/c/cpuset.cpus");
	assert_string_equal(after, "0-3\n");
}

static void test_less_than_asked(void **state)
{
	struct tree *t = *state;
	cleanup_cpuset struct cpuset c = CPUSET_NONE;
	cleanup_error struct error err = { 0 };
	cleanup_free char *after = NULL;

	/* What is effective does not follow, as under a parent that holds less. */
	v2_group(t, "/p", "\n", "\n", "2\n");
	v2_group(t, "/p/c", "0-1\n", "0\n", "2\n");
	t->sys.acting = true;
	assert_int_equal(cpuset_open_path(&t->sys, &v2, "/p/c", &c, NULL), 0);
	assert_int_equal(cpuset_write(&t->sys, &c, "2-3", NULL, &err), -EBADE);
	assert_non_null(strstr(error_text(&err), "cgroup /p/c"));
	assert_non_null(strstr(error_text(&err), "cpuset.cpus: wrote 2-3, but 2 applies: the parent cgroup has 2"));
	after = tree_read(t->root, V2 "/p/c/cpuset.cpus");
	assert_string_equal(after, "0-1\n");
}

static void test_equal_sets_in_other_words(void **state)
{
	struct tree *t = *state;
	cleanup_cpuset struct cpuset c = CPUSET_NONE;

	v2_group(t, "/c", "0,1,2\n", "0\n", "0-2\n");
	t->sys.acting = true;
	assert_int_equal(cpuset_open_path(&t->sys, &v2, "/c", &c, NULL), 0);
	assert_int_equal(cpuset_write(&t->sys, &c, "1,0,2", "0", NULL), 0);
}

static void test_controller_is_handed_down(void **state)
{
	struct tree *t = *state;
	static const char *const ancestors[] = { V2 "/cgroup.subtree_control", V2 "/a/cgroup.subtree_control",
						 V2 "/a/b/cgroup.subtree_control" };
	cleanup_cpuset struct cpuset c = CPUSET_NONE;
	cleanup_error struct error err = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(ancestors); i++)
		tree_file(t->root, ancestors[i], "");
	tree_file(t->root, V2 "/a/b/c/cgroup.subtree_control", "");
	assert_int_equal(cpuset_open_path(&t->sys, &v2, "/a/b/c", &c, &err), -ENOTSUP);
	for (size_t i = 0; i < ARRAY_LEN(ancestors); i++) {
		cleanup_free char *untouched = tree_read(t->root, ancestors[i]);

		assert_string_equal(untouched, "");
	}
	t->sys.acting = true;
	assert_int_equal(cpuset_open_path(&t->sys, &v2, "/a/b/c", &c, &err), -ENOTSUP);
	for (size_t i = 0; i < ARRAY_LEN(ancestors); i++) {
		cleanup_free char *written = tree_read(t->root, ancestors[i]);

		assert_string_equal(written, "+cpuset");
	}
	cleanup_free char *own = tree_read(t->root, V2 "/a/b/c/cgroup.subtree_control");

	assert_string_equal(own, "");
}

/* ---- the layout of a foreign root ---- */

static void expect_layout(const struct tree *t, const char *mountinfo, const char *cpuset, bool is_v2,
			  const char *unified)
{
	cleanup_with(cgroup_layout_done) struct cgroup_layout c = { 0 };

	tree_file(t->root, "/proc/self/mountinfo", mountinfo);
	assert_int_equal(cgroup_discover(&t->sys, &c, NULL), 0);
	assert_int_equal(c.cpuset_mount != NULL, cpuset != NULL);
	assert_int_equal(c.unified_mount != NULL, unified != NULL);
	if (cpuset)
		assert_string_equal(c.cpuset_mount, cpuset);
	if (unified)
		assert_string_equal(c.unified_mount, unified);
	assert_int_equal(c.cpuset_v2, is_v2);
}

static void test_layout(void **state)
{
	const struct tree *t = *state;
	cleanup_with(cgroup_layout_done) struct cgroup_layout c = { 0 };

	assert_int_equal(cgroup_discover(&t->sys, &c, NULL), 0);
	assert_null(c.cpuset_mount);
	expect_layout(t, "", NULL, false, NULL);
	expect_layout(t, "junk\n1 2 3\n- - - - - - - - -\n", NULL, false, NULL);
	tree_file(t->root, V2 "/cgroup.controllers", "cpuset cpu io\n");
	expect_layout(t, "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", V2, true, V2);
	tree_file(t->root, V2 "/cgroup.controllers", "cpu io cpusets\n");
	expect_layout(t, "30 23 0:26 / /sys/fs/cgroup rw shared:4 master:2 - cgroup2 cgroup2 rw\n", NULL, false, V2);
	expect_layout(t,
		      "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
		      "33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
		      "34 31 0:31 /part /bound rw - cgroup cgroup rw,cpuset\n"
		      "35 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset,noprefix\n"
		      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
		      V1, false, "/sys/fs/cgroup/unified");
}

/* ---- this machine's cgroups ---- */

struct live {
	struct sys sys;
	struct cgroup_layout layout;
	char *parent, *child;           /* paths below the mount */
	char *parent_dir, *child_dir;   /* directories */
	const char *missing;            /* why it cannot be done here; NULL: it can */
};

static int live_setup(void **state)
{
	struct live *l = calloc(1, sizeof(*l));
	const char *mount;

	assert_non_null(l);
	*state = l;
	assert_int_equal(sys_open(NULL, &l->sys, NULL), 0);
	assert_int_equal(cgroup_discover(&l->sys, &l->layout, NULL), 0);
	assert_true(asprintf(&l->parent, "/cotenant-test-%d", getpid()) > 0);
	assert_true(asprintf(&l->child, "%s/child", l->parent) > 0);
	mount = l->layout.cpuset_mount ? l->layout.cpuset_mount : "";
	assert_true(asprintf(&l->parent_dir, "%s%s", mount, l->parent) > 0);
	assert_true(asprintf(&l->child_dir, "%s/child", l->parent_dir) > 0);
	if (!l->layout.cpuset_mount)
		l->missing = "no cpuset controller is mounted";
	else if (mkdir(l->parent_dir, 0755) < 0 || mkdir(l->child_dir, 0755) < 0)
		l->missing = "cgroups cannot be made here (root is needed)";
	else if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		l->missing = "two CPUs are needed";
	return 0;
}

static int live_teardown(void **state)
{
	struct live *l = *state;

	rmdir(l->child_dir);
	rmdir(l->parent_dir);
	cgroup_layout_done(&l->layout);
	sys_done(&l->sys);
	free(l->parent);
	free(l->child);
	free(l->parent_dir);
	free(l->child_dir);
	free(l);
	return 0;
}

static void write_ok(const struct live *l, const struct cpuset *c, const char *cpus, const char *mems)
{
	cleanup_error struct error err = { 0 };

	if (cpuset_write(&l->sys, c, cpus, mems, &err) < 0)
		fail_msg("%s", error_text(&err));
}

static void expect_cpus(const struct cpuset *c, const char *configured, const char *effective)
{
	cleanup_free char *cpus = NULL, *applied = NULL;
	struct mask mask;

	assert_int_equal(cpuset_read(c, &cpus, NULL, &mask, NULL), 0);
	assert_string_equal(cpus, configured);
	applied = mask_format(&mask);
	assert_string_equal(applied, effective);
}

static void open_live(const struct live *l, const char *path, struct cpuset *ret)
{
	cleanup_error struct error err = { 0 };

	if (cpuset_open_path(&l->sys, &l->layout, path, ret, &err) < 0)
		fail_msg("%s", error_text(&err));
}

static void test_live(void **state)
{
	const struct live *l = *state;
	cleanup_cpuset struct cpuset parent = CPUSET_NONE, child = CPUSET_NONE;
	cleanup_error struct error err = { 0 };
	int r;

	if (l->missing) {
		print_message("skipped: %s\n", l->missing);
		skip();
	}
	open_live(l, l->parent, &parent);
	open_live(l, l->child, &child);
	write_ok(l, &parent, "0-1", "0");
	expect_cpus(&parent, "0-1", "0-1");
	write_ok(l, &child, "1", "0");
	expect_cpus(&child, "1", "1");
	write_ok(l, &child, "0", NULL);
	write_ok(l, &parent, "0", NULL);
	/* More than the parent has: v1 refuses, v2 takes it and applies less. Either way the old value stands again. */
	r = cpuset_write(&l->sys, &child, "0-1", NULL, &err);
	assert_int_equal(r, l->layout.cpuset_v2 ? -EBADE : -EACCES);
	assert_non_null(strstr(error_text(&err), "the parent cgroup has 0"));
	expect_cpus(&child, "0", "0");
	write_ok(l, &parent, "0-1", NULL);
	write_ok(l, &child, "", NULL);
	expect_cpus(&child, l->layout.cpuset_v2 ? "" : "0-1", "0-1");
	assert_true(cpuset_write(&l->sys, &child, "0", "63", &err) < 0);
	assert_non_null(strstr(error_text(&err), "cpuset.mems"));
	assert_true(cpuset_write(&l->sys, &child, "junk", NULL, &err) < 0);
	expect_cpus(&child, l->layout.cpuset_v2 ? "" : "0-1", "0-1");
}

/* A child of ours waits in the cgroup until the pipe closes. */
static void test_live_by_process(void **state)
{
	const struct live *l = *state;
	cleanup_cpuset struct cpuset parent = CPUSET_NONE, child = CPUSET_NONE, found = CPUSET_NONE;
	cleanup_free char *procs = NULL, *number = NULL;
	cleanup_error struct error err = { 0 };
	int ends[2], r;
	pid_t pid;

	if (l->missing) {
		print_message("skipped: %s\n", l->missing);
		skip();
	}
	open_live(l, l->parent, &parent);
	open_live(l, l->child, &child);
	write_ok(l, &parent, "0-1", "0");
	write_ok(l, &child, "0-1", "0");
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char byte;

		close(ends[1]);
		_exit(read(ends[0], &byte, 1) != 0);
	}
	assert_true(asprintf(&procs, "%s/cgroup.procs", l->child_dir) > 0);
	assert_true(asprintf(&number, "%d", pid) > 0);
	assert_int_equal(file_write(&l->sys, procs, number), 0);
	r = cpuset_open(&l->sys, &l->layout, pid, &found, &err);
	if (r == 0)
		r = cpuset_write(&l->sys, &found, "1", NULL, &err);
	close(ends[1]);
	close(ends[0]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	if (r < 0)
		fail_msg("%s", error_text(&err));
	assert_string_equal(found.path, l->child);
	expect_cpus(&child, "1", "1");
}

#define tree_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define live_test(f) cmocka_unit_test_setup_teardown(f, live_setup, live_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		tree_test(test_open_v2),
		tree_test(test_open_v1),
		tree_test(test_open_refuses),
		tree_test(test_no_process),
		tree_test(test_foreign_root_is_not_written),
		tree_test(test_less_than_asked),
		tree_test(test_equal_sets_in_other_words),
		tree_test(test_controller_is_handed_down),
		tree_test(test_layout),
		live_test(test_live),
		live_test(test_live_by_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
