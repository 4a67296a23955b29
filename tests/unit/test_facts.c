#include "tree.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

static struct facts make_facts(const char *description, const char *key)
{
	struct facts f = { 0 };

	assert_int_equal(topology_from_hwloc(TOPOLOGY_SYNTHETIC, description, &f.topo, NULL), 0);
	f.topo->key = strdup(key);
	f.cgroup.cpuset_mount = strdup("/sys/fs/cgroup/cpuset");
	f.cgroup.unified_mount = strdup("/sys/fs/cgroup/unified");
	assert_true(f.topo->key && f.cgroup.cpuset_mount && f.cgroup.unified_mount);
	return f;
}

static char *format(const struct facts *f)
{
	char *text = NULL;
	size_t len;

	assert_int_equal(facts_format(f, &text, &len), 0);
	assert_int_equal(strlen(text), len);
	return text;
}

/* ---- text ---- */

static void test_round_trip(void **state)
{
	cleanup_facts struct facts f = make_facts("pack:2 numa:2 core:4 pu:2", "the key"), again = { 0 };
	cleanup_free char *text = format(&f), *same = NULL;

	(void) state;
	assert_int_equal(facts_parse("facts", text, strlen(text), &again, NULL), 0);
	assert_string_equal(again.cgroup.cpuset_mount, "/sys/fs/cgroup/cpuset");
	assert_string_equal(again.cgroup.unified_mount, "/sys/fs/cgroup/unified");
	assert_false(again.cgroup.cpuset_v2);
	assert_string_equal(again.topo->key, "the key");
	same = format(&again);
	assert_string_equal(same, text);
}

static void test_no_mounts(void **state)
{
	cleanup_facts struct facts f = make_facts("pu:1", "k"), again = { 0 };
	cleanup_free char *text = NULL;

	(void) state;
	cgroup_layout_done(&f.cgroup);
	f.cgroup.cpuset_v2 = true;
	text = format(&f);
	assert_int_equal(facts_parse("facts", text, strlen(text), &again, NULL), 0);
	assert_null(again.cgroup.cpuset_mount);
	assert_null(again.cgroup.unified_mount);
	assert_true(again.cgroup.cpuset_v2);
}

/* Cut anywhere, the text is refused. Each cut is a copy of just that size, for the sanitizer. */
static void test_damaged(void **state)
{
	cleanup_facts struct facts f = make_facts("numa:2 core:2 pu:2", "key");
	cleanup_free char *text = format(&f);
	const size_t len = strlen(text);

	(void) state;
	for (size_t cut = 0; cut + 1 < len; cut++) {
		cleanup_facts struct facts again = { 0 };
		cleanup_error struct error err = { 0 };
		cleanup_free char *copy = malloc(cut + 1);

		assert_non_null(copy);
		memcpy(copy, text, cut);
		copy[cut] = '\0';
		if (facts_parse("facts", copy, cut, &again, &err) >= 0)
			fail_msg("cut at %zu of %zu was taken", cut, len);
		assert_null(again.topo);
		assert_non_null(err.text);
	}
}

static void test_bad_layout(void **state)
{
	static const char *const layouts[] = {
		"[]",
		"{}",
		"{\"cpuset_v2\":1}",
		"{\"cpuset_v2\":false,\"cpuset_mount\":7}",
		"{\"cpuset_v2\":false,\"cpuset_mount\":\"relative\"}",
		"{\"cpuset_v2\":false,\"unified_mount\":\"\"}",
	};
	cleanup_facts struct facts f = make_facts("pu:1", "k");
	cleanup_free char *text = format(&f);

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
		cleanup_facts struct facts again = { 0 };
		cleanup_free char *bad = NULL;

		assert_true(asprintf(&bad, "%s%s", layouts[i], strchr(text, '\n')) > 0);
		assert_int_equal(facts_parse("facts", bad, strlen(bad), &again, NULL), -EINVAL);
	}
}

/* ---- key ---- */

#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define ONLINE "/sys/devices/system/cpu/online"
#define HAS_MEMORY "/sys/devices/system/node/has_memory"

static void test_key(void **state)
{
	char *root = tree_new();
	cleanup_sys struct sys s = { .root_fd = -1 };
	cleanup_free char *key = NULL;

	(void) state;
	assert_int_equal(sys_open(root, &s, NULL), 0);
	assert_int_equal(facts_key(&s, &key), -ENOENT);
	tree_file(root, BOOT_ID, "11-22\n");
	assert_int_equal(facts_key(&s, &key), -ENOENT);
	tree_file(root, ONLINE, "0-5,7\n");
	assert_int_equal(facts_key(&s, &key), 0);
	assert_string_equal(key, "boot 11-22 cpus 0-5,7 nodes -");
	free(TAKE_PTR(key));
	tree_file(root, HAS_MEMORY, "0,2\n");
	assert_int_equal(facts_key(&s, &key), 0);
	assert_string_equal(key, "boot 11-22 cpus 0-5,7 nodes 0,2");
	tree_free(root);
}

/* ---- loading: a script beside this program stands for cotenant-topology ---- */

struct machine {
	char *dir; /* state directory */
	char *program;
	struct sys sys;
};

static void write_program(const struct machine *m, const char *script)
{
	FILE *file = fopen(m->program, "we");

	assert_non_null(file);
	assert_true(fprintf(file, "#!/bin/sh\nprintf '%%s\\n' \"$@\" >%s/arguments\n%s\n", m->dir, script) > 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(m->program, 0755), 0);
}

static int setup(void **state)
{
	struct machine *m = calloc(1, sizeof(*m));
	cleanup_free char *self = calloc(1, PATH_MAX);

	assert_true(m && self && readlink("/proc/self/exe", self, PATH_MAX - 1) > 0);
	*strrchr(self, '/') = '\0';
	assert_true(asprintf(&m->program, "%s/cotenant-topology", self) > 0);
	m->dir = tree_new();
	assert_int_equal(sys_open(NULL, &m->sys, NULL), 0);
	write_program(m, "echo it was run >&2; exit 1");
	*state = m;
	return 0;
}

static int teardown(void **state)
{
	struct machine *m = *state;

	assert_int_equal(unlink(m->program), 0);
	sys_done(&m->sys);
	tree_free(m->dir);
	free(m->program);
	free(m);
	return 0;
}

static void write_cache(const struct machine *m, const char *name, const char *description, const char *key)
{
	cleanup_facts struct facts f = make_facts(description, key);
	cleanup_free char *text = format(&f);

	tree_file(m->dir, name, text);
}

static char *own_key(const struct machine *m)
{
	char *key = NULL;

	assert_int_equal(facts_key(&m->sys, &key), 0);
	return key;
}

static void expect_cpus(struct machine *m, size_t n)
{
	cleanup_facts struct facts f = { 0 };
	cleanup_error struct error err = { 0 };

	if (facts_load(&m->sys, NULL, m->dir, &f, &err) < 0)
		fail_msg("%s", error_text(&err));
	assert_int_equal(f.topo->n_cpus, n);
}

static void expect_run(struct machine *m)
{
	cleanup_facts struct facts f = { 0 };
	cleanup_error struct error err = { 0 };

	assert_int_equal(facts_load(&m->sys, NULL, m->dir, &f, &err), -EIO);
	assert_non_null(strstr(error_text(&err), "it was run"));
}

static void test_warm(void **state)
{
	struct machine *m = *state;
	cleanup_free char *key = own_key(m);

	write_cache(m, "/topology", "core:7 pu:1", key);
	expect_cpus(m, 7);
}

static void test_cold(void **state)
{
	struct machine *m = *state;
	cleanup_free char *key = own_key(m), *script = NULL, *arguments = NULL, *expected = NULL;

	expect_run(m);
	write_cache(m, "/prepared", "core:5 pu:1", key);
	assert_true(asprintf(&script, "cp %s/prepared %s/topology", m->dir, m->dir) > 0);
	write_program(m, script);
	expect_cpus(m, 5);
	arguments = tree_read(m->dir, "/arguments");
	assert_true(asprintf(&expected, "--state-dir\n%s\n--root\n/\n--refresh\n", m->dir) > 0);
	assert_string_equal(arguments, expected);
}

/* Whoever only looks leaves no cache, and does not rely on one. */
static void test_look(void **state)
{
	struct machine *m = *state;
	cleanup_free char *key = own_key(m), *script = NULL, *arguments = NULL, *kept = NULL;
	cleanup_facts struct facts f = { 0 };
	cleanup_error struct error err = { 0 };

	tree_file(m->dir, "/topology", "kept");
	assert_int_equal(facts_look(&m->sys, NULL, &f, &err), -EIO);
	assert_string_equal(error_text(&err), "the machine's topology cannot be found out: it was run");
	write_cache(m, "/prepared", "core:5 pu:1", key);
	assert_true(asprintf(&script, "cat %s/prepared", m->dir) > 0);
	write_program(m, script);
	assert_int_equal(facts_look(&m->sys, NULL, &f, NULL), 0);
	assert_int_equal(f.topo->n_cpus, 5);
	arguments = tree_read(m->dir, "/arguments");
	assert_string_equal(arguments, "--root\n/\n--print\n");
	kept = tree_read(m->dir, "/topology");
	assert_string_equal(kept, "kept");
}

static void test_stale_and_damaged(void **state)
{
	struct machine *m = *state;

	write_cache(m, "/topology", "core:7 pu:1", "boot other cpus 0 nodes 0");
	expect_run(m);
	tree_file(m->dir, "/topology", "damaged");
	expect_run(m);
}

static void test_others_could_have_written(void **state)
{
	struct machine *m = *state;
	cleanup_free char *key = own_key(m), *path = NULL;

	assert_true(asprintf(&path, "%s/topology", m->dir) > 0);
	write_cache(m, "/topology", "core:7 pu:1", key);
	assert_int_equal(chmod(path, 0620), 0);
	expect_run(m);
	assert_int_equal(chmod(path, 0602), 0);
	expect_run(m);
	assert_int_equal(chmod(path, 0644), 0);
	expect_cpus(m, 7);
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 1, (gid_t) -1), 0);
		expect_run(m);
	}
	assert_int_equal(unlink(path), 0);
	write_cache(m, "/elsewhere", "core:7 pu:1", key);
	tree_link(m->dir, "/topology", "elsewhere");
	expect_run(m);
}

static void test_machine_changed_meanwhile(void **state)
{
	struct machine *m = *state;
	cleanup_facts struct facts f = { 0 };
	cleanup_error struct error err = { 0 };
	cleanup_free char *script = NULL;

	write_cache(m, "/prepared", "core:5 pu:1", "boot other");
	assert_true(asprintf(&script, "cp %s/prepared %s/topology", m->dir, m->dir) > 0);
	write_program(m, script);
	assert_int_equal(facts_load(&m->sys, NULL, m->dir, &f, &err), -ESTALE);
}

/* A foreign root's facts are made anew each time, and never pass for this machine's. */
static void test_foreign_root(void **state)
{
	struct machine *m = *state;
	cleanup_sys struct sys foreign = { .root_fd = -1 };
	cleanup_facts struct facts f = { 0 };
	cleanup_error struct error err = { 0 };
	cleanup_free char *script = NULL, *key = NULL;

	assert_int_equal(sys_open(m->dir, &foreign, NULL), 0);
	assert_true(asprintf(&key, "root %s", m->dir) > 0);
	write_cache(m, "/topology", "core:7 pu:1", key);
	assert_int_equal(facts_load(&foreign, m->dir, m->dir, &f, &err), -EIO);
	write_cache(m, "/prepared", "core:5 pu:1", key);
	assert_true(asprintf(&script, "cp %s/prepared %s/topology", m->dir, m->dir) > 0);
	write_program(m, script);
	assert_int_equal(facts_load(&foreign, m->dir, m->dir, &f, &err), 0);
	assert_int_equal(f.topo->n_cpus, 5);
	write_program(m, "echo it was run >&2; exit 1");
	expect_run(m);
}

/* ---- discovering ---- */

static void test_discover_live(void **state)
{
	cleanup_sys struct sys s = { .root_fd = -1 };
	cleanup_facts struct facts f = { 0 };
	cleanup_error struct error err = { 0 };
	cleanup_free char *key = NULL, *text = NULL, *online = NULL, *listed = NULL;

	(void) state;
	assert_int_equal(sys_open(NULL, &s, NULL), 0);
	if (facts_discover(&s, NULL, &f, &err) < 0)
		fail_msg("%s", error_text(&err));
	assert_int_equal(facts_key(&s, &key), 0);
	assert_string_equal(f.topo->key, key);
	assert_int_equal(file_readf(&s, &online, ONLINE), 0);
	online[strcspn(online, "\n")] = '\0';
	listed = mask_format(&f.topo->online);
	assert_string_equal(listed, online);
	text = format(&f);
}

static void add_cpu(const char *root, unsigned cpu, unsigned core)
{
	const struct {
		const char *name;
		unsigned value;
	} files[] = {
		{ "core_id", core },
		{ "physical_package_id", 0 },
		{ "thread_siblings", 0x5u << core },
		{ "core_siblings", 0xf },
	};

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		cleanup_free char *path = NULL, *text = NULL;

		assert_true(asprintf(&path, "/sys/devices/system/cpu/cpu%u/topology/%s", cpu, files[i].name) > 0);
		assert_true(asprintf(&text, "%x\n", files[i].value) > 0);
		tree_file(root, path, text);
	}
}

/* CPUs 0-3 on two cores (0,2 and 1,3), node 0 with CPUs, node 1 without. */
static void test_discover_foreign(void **state)
{
	char *root = tree_new();
	cleanup_sys struct sys s = { .root_fd = -1 };
	cleanup_facts struct facts f = { 0 };
	cleanup_error struct error err = { 0 };

	(void) state;
	for (unsigned cpu = 0; cpu < 4; cpu++)
		add_cpu(root, cpu, cpu % 2);
	tree_file(root, ONLINE, "0-3\n");
	tree_file(root, "/sys/devices/system/cpu/possible", "0-3\n");
	tree_file(root, "/sys/devices/system/cpu/present", "0-3\n");
	tree_file(root, "/sys/devices/system/node/online", "0-1\n");
	tree_file(root, "/sys/devices/system/node/possible", "0-1\n");
	tree_file(root, "/sys/devices/system/node/node0/cpumap", "f\n");
	tree_file(root, "/sys/devices/system/node/node0/cpulist", "0-3\n");
	tree_file(root, "/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       1048576 kB\n");
	tree_file(root, "/sys/devices/system/node/node0/distance", "10 17\n");
	tree_file(root, "/sys/devices/system/node/node1/cpumap", "0\n");
	tree_file(root, "/sys/devices/system/node/node1/cpulist", "\n");
	tree_file(root, "/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:       2097152 kB\n");
	tree_file(root, "/sys/devices/system/node/node1/distance", "17 10\n");
	assert_int_equal(sys_open(root, &s, NULL), 0);
	if (facts_discover(&s, root, &f, &err) < 0)
		fail_msg("%s", error_text(&err));
	assert_int_equal(f.topo->n_cpus, 4);
	assert_int_equal(f.topo->n_cores, 2);
	assert_int_equal(f.topo->smt, 2);
	assert_int_equal(f.topo->cpus[0].core, f.topo->cpus[2].core);
	assert_int_equal(f.topo->n_nodes, 2);
	assert_int_equal(f.topo->nodes[1].memory, UINT64_C(2) << 30);
	assert_int_equal(f.topo->nodes[1].tier, TIER_CXL);
	assert_int_equal(topology_distance(f.topo, 0, 1), 17);
	assert_true(str_starts(f.topo->key, "root "));
	assert_null(f.cgroup.cpuset_mount);
	tree_free(root);
}

#define machine_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_no_mounts),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_bad_layout),
		cmocka_unit_test(test_key),
		machine_test(test_warm),
		machine_test(test_cold),
		machine_test(test_look),
		machine_test(test_stale_and_damaged),
		machine_test(test_others_could_have_written),
		machine_test(test_machine_changed_meanwhile),
		machine_test(test_foreign_root),
		cmocka_unit_test(test_discover_live),
		cmocka_unit_test(test_discover_foreign),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
