#include "tracee.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <linux/mempolicy.h>

#include "ledger.h"
#include "tree.h"

static void *parked_thread(void *p)
{
	struct tracee_arg *a = p;

	slot_parking(a->slot);
	pause();
	return NULL;
}

static void body(struct tracee *t)
{
	char byte;

	tracee_thread(t, 1, parked_thread);
	tracee_thread(t, 2, parked_thread);
	slot_parking(&t->shared->slot[0]);
	if (read(t->from_parent, &byte, 1) == 1)
		execl("/bin/sleep", "sleep", "100", (char *) NULL);
}

struct fixture {
	struct sys s;
	struct tracee t;
	struct held *h;
	struct error err;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->s = real_sys(60000);
	tracee_start(&f->t, body);
	tracee_wait_parked(&f->t, 3);
	assert_int_equal(held_open(&f->s, f->t.pid, &f->h, &f->err), 0);
	assert_int_equal(held_threads(f->h), 3);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	held_close(f->h);
	tracee_end(&f->t);
	error_done(&f->err);
	sys_done(&f->s);
	free(f);
	return 0;
}

/* The kernel's word on each thread. */
static void expect_policy(struct fixture *f, const char *want)
{
	for (size_t i = 0; i < held_threads(f->h); i++) {
		cleanup_free char *maps = NULL;
		char *policy;

		assert_int_equal(file_readf(&f->s, &maps, "/proc/%d/task/%d/numa_maps", f->t.pid, held_tid(f->h, i)), 0);
		policy = strchr(maps, ' ') + 1;
		assert_memory_equal(policy, want, strlen(want));
		assert_true(policy[strlen(want)] == ' ' || policy[strlen(want)] == '\n');
	}
}

static void test_policies(void **state)
{
	static const struct {
		enum memory_policy policy;
		nodemask nodes;
		const char *want;
	} cases[] = {
		{ MEMORY_BIND, 1, "bind=static:0" },
		{ MEMORY_PREFERRED, 1, "prefer=static:0" },
		{ MEMORY_INTERLEAVE, 1, "interleave=static:0" },
		{ MEMORY_LOCAL, 1, "local" },
	};
	struct fixture *f = *state;
	struct mempolicy old[ARRAY_LEN(cases)];

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(mempolicy_inject(f->h, cases[i].policy, cases[i].nodes, &old[i], &f->err), 0);
		expect_policy(f, cases[i].want);
	}
	assert_int_equal(mempolicy_inject(f->h, MEMORY_INHERIT, 0, &old[0], &f->err), -EINVAL);
	for (size_t i = ARRAY_LEN(cases); i-- > 0;) {
		expect_policy(f, cases[i].want);
		assert_int_equal(mempolicy_restore(f->h, &old[i], &f->err), 0);
	}
	expect_policy(f, "default");
}

static void test_weighted_survives_exec(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *policy = NULL;
	struct mempolicy old;

	if (!mempolicy_has_weighted(&f->s)) {
		print_message("needs /sys/kernel/mm/mempolicy/weighted_interleave (Linux 6.9)\n");
		skip();
	}
	assert_int_equal(mempolicy_inject(f->h, MEMORY_WEIGHTED, 1, &old, &f->err), 0);
	expect_policy(f, "weighted interleave=static:0");
	held_close(f->h);
	f->h = NULL;
	assert_int_equal(write(f->t.to_child, "", 1), 1);
	for (int i = 0;; i++) {
		cleanup_free char *comm = NULL;

		assert_int_equal(file_readf(&f->s, &comm, "/proc/%d/comm", f->t.pid), 0);
		if (strcmp(comm, "sleep\n") == 0)
			break;
		assert_true(i < TRACEE_PATIENCE);
		short_pause();
	}
	assert_int_equal(mempolicy_observe(&f->s, f->t.pid, &policy), 0);
	assert_string_equal(policy, "weighted interleave=static:0");
}

/* Node 63 is absent here: the kernel drops it without a word, get_mempolicy(2) would still name it. */
static void test_absent_nodes(void **state)
{
	struct fixture *f = *state;
	const nodemask absent = UINT64_C(1) << 63;
	struct mempolicy old;

	/* The old policies differ from the default and from one another: each must be back. */
	for (size_t i = 0; i < held_threads(f->h); i++) {
		const unsigned long mode[6] = { i ? MPOL_LOCAL : MPOL_DEFAULT };
		long r;

		assert_int_equal(held_call(f->h, i, SYS_set_mempolicy, mode, &r), 0);
		assert_int_equal(r, 0);
	}
	assert_int_equal(mempolicy_inject(f->h, MEMORY_INTERLEAVE, 1 | absent, &old, &f->err), -EBADE);
	assert_non_null(strstr(error_text(&f->err), "interleave on nodes 0,63, but the kernel took nodes 0:"));
	for (size_t i = 0; i < held_threads(f->h); i++) {
		cleanup_free char *maps = NULL;

		assert_int_equal(file_readf(&f->s, &maps, "/proc/%d/task/%d/numa_maps", f->t.pid, held_tid(f->h, i)), 0);
		assert_non_null(strstr(maps, i ? " local " : " default "));
	}
	assert_int_equal(mempolicy_inject(f->h, MEMORY_BIND, absent, &old, &f->err), -EINVAL);
	assert_non_null(strstr(error_text(&f->err), "policy bind on nodes 63: none of the nodes"));
	assert_int_equal(mempolicy_inject(f->h, MEMORY_BIND, 0, &old, &f->err), -EINVAL);
	assert_non_null(strstr(error_text(&f->err), "names no node"));
}

/* An old policy with nodes and flags comes back as it was. */
static void test_old_policy_restored(void **state)
{
	struct fixture *f = *state;
	struct mempolicy old;

	assert_int_equal(mempolicy_inject(f->h, MEMORY_BIND, 1, &old, &f->err), 0);
	assert_int_equal(mempolicy_inject(f->h, MEMORY_PREFERRED, 1 | UINT64_C(1) << 63, &old, &f->err), -EBADE);
	expect_policy(f, "bind=static:0");
}

/* ---- on a tree of files ---- */

static void test_observe_texts(void **state)
{
	static const struct {
		const char *line, *want;
	} cases[] = {
		{ "5622 default file=/tmp/a dirty=1 N0=1\n", "default" },
		{ "5622 weighted interleave=static:0,2 anon=1 N0=1\n", "weighted interleave=static:0,2" },
		{ "5622 weighted interleave:0-3 heap\n", "weighted interleave:0-3" },
		{ "5622 prefer (many)=static:0-1\n", "prefer (many)=static:0-1" },
		{ "5622 prefer=relative:1 stack\n", "prefer=relative:1" },
		{ "5622 bind=static|balancing:0\n", "bind=static|balancing:0" },
		{ "5622 local\n5623 bind:0\n", "local" },
		{ "5622 newmode:7 file=/x\n", "newmode:7" },
	};
	char *root = tree_new();
	struct sys s;
	char *policy = NULL;

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		cleanup_free char *got = NULL;

		tree_file(root, "/proc/7/numa_maps", cases[i].line);
		assert_int_equal(sys_open(root, &s, NULL), 0);
		assert_int_equal(mempolicy_observe(&s, 7, &got), 0);
		assert_string_equal(got, cases[i].want);
		sys_done(&s);
	}
	assert_int_equal(sys_open(root, &s, NULL), 0);
	tree_file(root, "/proc/7/numa_maps", "");
	assert_int_equal(mempolicy_observe(&s, 7, &policy), -ESRCH);
	tree_file(root, "/proc/7/numa_maps", "junk\n");
	assert_int_equal(mempolicy_observe(&s, 7, &policy), -EBADMSG);
	assert_int_equal(mempolicy_observe(&s, 8, &policy), -ENOENT);
	assert_null(policy);
	sys_done(&s);
	tree_free(root);
}

#define WEIGHTS "/sys/kernel/mm/mempolicy/weighted_interleave/"

static void test_weights(void **state)
{
	char *root = tree_new();
	cleanup_error struct error err = { 0 };
	struct saved_weights w = { .node = { 99 } };
	uint8_t wanted[NODE_MAX] = { [0] = 5, [2] = 1 };
	struct sys s;

	(void) state;
	assert_int_equal(sys_open(root, &s, NULL), 0);
	assert_int_equal(weights_read(&s, &w), -ENOENT);
	assert_int_equal(w.node[0], 99);
	tree_file(root, WEIGHTS "node0", "3\n");
	tree_file(root, WEIGHTS "node2", "255\n");
	tree_file(root, WEIGHTS "node70", "9\n"); /* beyond what a nodemask holds */
	tree_file(root, WEIGHTS "__auto_type", "true\n");
	assert_true(mempolicy_has_weighted(&s));
	assert_int_equal(weights_read(&s, &w), 0);
	assert_int_equal(w.node[0], 3);
	assert_int_equal(w.node[1], 0);
	assert_int_equal(w.node[2], 255);
	assert_true(w.was_auto);
	tree_file(root, WEIGHTS "__auto_type", "false\n");
	assert_int_equal(weights_read(&s, &w), 0);
	assert_false(w.was_auto);
	assert_int_equal(weights_write(&s, wanted, &err), -EROFS);
	sys_done(&s);
	tree_free(root);
}

static void test_real_weights(void **state)
{
	struct sys s = real_sys(60000);
	cleanup_error struct error err = { 0 };
	struct saved_weights before = { 0 }, after = { 0 };
	uint8_t other[NODE_MAX] = { 0 };

	(void) state;
	if (!mempolicy_has_weighted(&s) || geteuid() != 0) {
		print_message("needs root and /sys/kernel/mm/mempolicy/weighted_interleave (Linux 6.9)\n");
		sys_done(&s);
		skip();
	}
	assert_int_equal(weights_read(&s, &before), 0);
	assert_true(before.node[0] > 0);
	other[0] = before.node[0] == 7 ? 8 : 7;
	assert_int_equal(weights_write(&s, other, &err), 0);
	assert_int_equal(weights_read(&s, &after), 0);
	assert_int_equal(after.node[0], other[0]);
	assert_false(after.was_auto);
	assert_int_equal(weights_restore(&s, &before, &err), 0);
	assert_int_equal(weights_read(&s, &after), 0);
	assert_memory_equal(after.node, before.node, sizeof(before.node));
	/* Auto mode comes back only where the firmware names bandwidths. */
	if (!before.was_auto)
		assert_false(after.was_auto);
	sys_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_policies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_weighted_survives_exec, setup, teardown),
		cmocka_unit_test_setup_teardown(test_absent_nodes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_old_policy_restored, setup, teardown),
		cmocka_unit_test(test_observe_texts),
		cmocka_unit_test(test_weights),
		cmocka_unit_test(test_real_weights),
	};

	return cmocka_run_group_tests_name("mempolicy", tests, NULL, NULL);
}
