/* The facts of machines of every make, as numbers: from roots that stand for them, and from descriptions. */
#include "place_world.h"
#include "roots.h"
#include "topology_check.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define TIERS "/sys/devices/virtual/memory_tiering"

static int setup(void **state)
{
	*state = tree_new();
	return 0;
}

static int teardown(void **state)
{
	tree_free(*state);
	return 0;
}

static struct topology *found(const char *root, const char *name)
{
	struct topology *t = root_topology(root);

	topology_check(name, t);
	return t;
}

static const struct root_node one_node = { .id = 0, .mib = 1024, .distances = "10\n" };

/* ---- threads and cores ---- */

/* Two cores of 1, 2, 4 and 8 threads. The threads of a core are apart, and the numbers have gaps. */
static void test_smt(void **state)
{
	(void) state;
	for (unsigned smt = 1; smt <= 8; smt *= 2) {
		struct root_cpu cpus[16];
		char *root = tree_new();
		cleanup_topology struct topology *t = NULL;

		for (unsigned i = 0; i < 2 * smt; i++)
			cpus[i] = (struct root_cpu){ .id = 5 + 3 * i, .core = (int) i % 2 };
		root_build(root, cpus, 2 * smt, &one_node, 1);
		t = found(root, "threads of a core");
		tree_free(root);
		assert_int_equal(t->smt, smt);
		assert_int_equal(t->n_cores, 2);
		assert_int_equal(t->n_cpus, 2 * smt);
		for (unsigned i = 0; i < 2 * smt; i++)
			assert_int_equal(cpu_of(t, 5 + 3 * i)->core, cpu_of(t, 5 + 3 * (i % 2))->core);
		assert_int_not_equal(cpu_of(t, 5)->core, cpu_of(t, 8)->core);
	}
}

/* One thread of the first core, and all of the second, are offline. */
static void test_offline(void **state)
{
	static const struct root_cpu cpus[] = {
		{ .id = 0, .core = 0 }, { .id = 4, .core = 0, .offline = true },
		{ .id = 1, .core = 1, .offline = true }, { .id = 5, .core = 1, .offline = true },
		{ .id = 2, .core = 2 }, { .id = 6, .core = 2 },
	};
	cleanup_topology struct topology *t = NULL;

	root_build(*state, cpus, ARRAY_LEN(cpus), &one_node, 1);
	t = found(*state, "offline CPUs");
	has_cpus(&t->online, "0,2,6");
	assert_int_equal(t->n_cores, 2);
	assert_int_equal(t->smt, 2);
	assert_null(cpu_of(t, 1));
	assert_null(cpu_of(t, 4));
	assert_int_equal(cpu_of(t, 2)->core, cpu_of(t, 6)->core);
	assert_int_not_equal(cpu_of(t, 0)->core, cpu_of(t, 2)->core);
}

/* Two fast cores of two threads, and four slow ones of one. */
static void test_hybrid(void **state)
{
	static const struct root_cpu cpus[] = {
		{ .id = 0, .core = 0, .mhz = 5000 }, { .id = 1, .core = 0, .mhz = 5000 },
		{ .id = 2, .core = 1, .mhz = 5000 }, { .id = 3, .core = 1, .mhz = 5000 },
		{ .id = 4, .core = 2, .mhz = 3800 }, { .id = 5, .core = 3, .mhz = 3800 },
		{ .id = 6, .core = 4, .mhz = 3800 }, { .id = 7, .core = 5, .mhz = 3800 },
	};
	cleanup_topology struct topology *t = NULL;

	root_build(*state, cpus, ARRAY_LEN(cpus), &one_node, 1);
	tree_file(*state, "/sys/devices/cpu_core/cpus", "0-3\n");
	tree_file(*state, "/sys/devices/cpu_atom/cpus", "4-7\n");
	t = found(*state, "hybrid");
	assert_int_equal(t->smt, 2);
	assert_int_equal(t->n_cores, 6);
	for (unsigned cpu = 0; cpu < 8; cpu++)
		assert_int_equal(cpu_of(t, cpu)->kind, cpu < 4);
}

/* The same clock everywhere, and told: no kinds. */
static void test_alike(void **state)
{
	static const struct root_cpu cpus[] = { { .id = 0, .core = 0, .mhz = 4500 },
						{ .id = 1, .core = 1, .mhz = 4500 } };
	cleanup_topology struct topology *t = NULL;

	root_build(*state, cpus, ARRAY_LEN(cpus), &one_node, 1);
	t = found(*state, "alike");
	assert_int_equal(t->cpus[0].kind, 0);
	assert_int_equal(t->cpus[1].kind, 0);
}

/* ---- caches and nodes ---- */

/* As Zen with NPS1: two caches in each node. */
static void test_caches_of_a_node(void **state)
{
	static const struct root_node nodes[] = { { 0, 2048, "10 32\n" }, { 1, 2048, "32 10\n" } };
	struct root_cpu cpus[16];
	cleanup_topology struct topology *t = NULL;

	for (unsigned i = 0; i < 16; i++)
		cpus[i] = (struct root_cpu){ .id = i, .package = (int) i / 8, .core = (int) i / 2,
					     .l3 = (int) i / 4, .node = (int) i / 8 };
	root_build(*state, cpus, 16, nodes, 2);
	t = found(*state, "caches of a node");
	assert_int_equal(t->n_llcs, 4);
	assert_int_equal(t->n_packages, 2);
	for (unsigned i = 0; i < 16; i++) {
		assert_int_equal(cpu_of(t, i)->llc, i / 4);
		assert_int_equal(cpu_of(t, i)->node, i / 8);
	}
	assert_int_equal(topology_distance(t, 0, 1), 32);
	assert_int_equal(topology_node(t, 1)->package, 1);
}

/* Sub-NUMA clusters: two nodes share the package's one cache. */
static void test_nodes_of_a_cache(void **state)
{
	static const struct root_node nodes[] = {
		{ 0, 512, "10 12 21 21\n" }, { 1, 512, "12 10 21 21\n" },
		{ 2, 512, "21 21 10 12\n" }, { 3, 512, "21 21 12 10\n" },
	};
	struct root_cpu cpus[16];
	cleanup_topology struct topology *t = NULL;

	for (unsigned i = 0; i < 16; i++)
		cpus[i] = (struct root_cpu){ .id = i, .package = (int) i / 8, .core = (int) i / 2,
					     .l3 = (int) i / 8, .node = (int) i / 4 };
	root_build(*state, cpus, 16, nodes, 4);
	t = found(*state, "nodes of a cache");
	assert_int_equal(t->n_llcs, 2);
	assert_int_equal(t->n_nodes, 4);
	for (unsigned i = 0; i < 16; i++) {
		assert_int_equal(cpu_of(t, i)->llc, i / 8);
		assert_int_equal(cpu_of(t, i)->node, i / 4);
	}
	assert_int_equal(topology_distance(t, 0, 1), 12);
	assert_int_equal(topology_distance(t, 1, 2), 21);
	for (unsigned node = 0; node < 4; node++)
		assert_int_equal(topology_node(t, node)->package, node / 2);
}

/* Without any cache told, as in many guests, the package stands for it. */
static void test_no_caches(void **state)
{
	struct root_cpu cpus[4];
	cleanup_topology struct topology *t = NULL;

	for (unsigned i = 0; i < 4; i++)
		cpus[i] = (struct root_cpu){ .id = i, .package = (int) i / 2, .core = (int) i, .l3 = -1 };
	root_build(*state, cpus, 4, &one_node, 1);
	t = found(*state, "no caches");
	assert_int_equal(t->n_llcs, 2);
	assert_int_equal(cpu_of(t, 1)->llc, 0);
	assert_int_equal(cpu_of(t, 2)->llc, 1);
}

/* A kernel without CONFIG_NUMA: node 0 has everything. */
static void test_no_numa(void **state)
{
	static const struct root_cpu cpus[] = { { .id = 0, .core = 0 }, { .id = 1, .core = 1 } };
	cleanup_topology struct topology *t = NULL;

	root_build(*state, cpus, ARRAY_LEN(cpus), NULL, 0);
	t = found(*state, "no NUMA");
	assert_int_equal(t->n_nodes, 1);
	assert_int_equal(t->cpus[1].node, 0);
	assert_true(t->nodes[0].memory == UINT64_C(1) << 30);
}

/* From 0 to 1 is near, and the way back is far: both are kept. Node numbers have gaps up to the last one. */
static void test_distances(void **state)
{
	static const struct root_node nodes[] = { { 0, 512, "10 17 40\n" }, { 9, 512, "28 10 255\n" },
						  { 63, 512, "41 12 10\n" } };
	static const struct root_cpu cpus[] = { { .id = 0, .core = 0, .l3 = -1 },
						{ .id = 1, .package = 1, .core = 1, .l3 = -1, .node = 9 },
						{ .id = 4095, .package = 2, .core = 2, .l3 = -1, .node = 63 } };
	static const unsigned ids[] = { 0, 9, 63 };
	static const unsigned expected[3][3] = { { 10, 17, 40 }, { 28, 10, 255 }, { 41, 12, 10 } };
	cleanup_topology struct topology *t = NULL;

	root_build(*state, cpus, ARRAY_LEN(cpus), nodes, ARRAY_LEN(nodes));
	t = found(*state, "distances");
	for (size_t i = 0; i < 3; i++)
		for (size_t k = 0; k < 3; k++)
			assert_int_equal(topology_distance(t, ids[i], ids[k]), expected[i][k]);
	assert_int_equal(cpu_of(t, 4095)->node, 63);
	assert_true(t->memory_nodes == (node_bit(0) | node_bit(9) | node_bit(63)));
	assert_int_equal(topology_words(t), 64);
}

/* Node 1 has CPUs and no memory; its CPUs have no node of their own. */
static void test_memoryless(void **state)
{
	static const struct root_node nodes[] = { { 0, 512, "10 20\n" }, { 1, 0, "20 10\n" } };
	static const struct root_cpu cpus[] = { { .id = 0, .core = 0 },
						{ .id = 1, .package = 1, .core = 1, .l3 = 1, .node = 1 } };
	cleanup_topology struct topology *t = NULL;

	root_build(*state, cpus, ARRAY_LEN(cpus), nodes, ARRAY_LEN(nodes));
	t = found(*state, "memory-less node");
	assert_int_equal(t->n_nodes, 2);
	assert_true(topology_node(t, 1)->has_cpus && topology_node(t, 1)->memory == 0);
	assert_int_equal(cpu_of(t, 0)->node, 0);
	assert_int_equal(cpu_of(t, 1)->node, -1);
	assert_true(t->memory_nodes == 1);
}

static void attributes(const char *root, unsigned node, const char *initiator, const char *bandwidth,
		       const char *latency)
{
	const struct {
		const char *name, *text;
	} files[] = { { "read_bandwidth", bandwidth }, { "read_latency", latency } };
	cleanup_free char *dir = NULL;

	assert_true(asprintf(&dir, "/sys/devices/system/node/node%u/access1/initiators/%s", node, initiator) > 0);
	tree_dir(root, dir);
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		cleanup_free char *path = NULL;

		assert_true(asprintf(&path, "/sys/devices/system/node/node%u/access1/initiators/%s", node,
				     files[i].name) > 0);
		tree_file(root, path, files[i].text);
	}
}

/* Two packages of DRAM; 2 and 3 are HBM of each, 4 is CXL behind the first, 5 an NVDIMM of the second. */
static void test_nodes_without_cpus(void **state)
{
	static const struct root_node nodes[] = {
		{ 0, 1024, "10 21 13 23 14 26\n" }, { 1, 1024, "21 10 23 13 24 17\n" },
		{ 2, 64, "13 23 10 23 24 28\n" },   { 3, 64, "23 13 23 10 26 28\n" },
		{ 4, 4096, "14 24 24 26 10 28\n" }, { 5, 4096, "26 17 28 28 28 10\n" },
	};
	static const enum memory_tier tiers[] = { TIER_DRAM, TIER_DRAM, TIER_HBM, TIER_HBM, TIER_CXL, TIER_PMEM };
	static const struct root_cpu cpus[] = { { .id = 0, .core = 0 },
						{ .id = 1, .package = 1, .core = 1, .l3 = 1, .node = 1 } };
	cleanup_topology struct topology *t = NULL;

	root_build(*state, cpus, ARRAY_LEN(cpus), nodes, ARRAY_LEN(nodes));
	tree_file(*state, TIERS "/memory_tier4/nodelist", "0-1\n");
	tree_file(*state, TIERS "/memory_tier2/nodelist", "2-3\n");
	tree_file(*state, TIERS "/memory_tier22/nodelist", "4-5\n");
	tree_file(*state, "/sys/devices/LNXSYSTM:00/ndbus0/region0/dax0.0/target_node", "5\n");
	tree_link(*state, "/sys/bus/dax/devices/dax0.0", "../../../devices/LNXSYSTM:00/ndbus0/region0/dax0.0");
	attributes(*state, 0, "node0", "120000", "90");
	attributes(*state, 4, "node0", "30000", "250");
	t = found(*state, "nodes without CPUs");
	for (unsigned node = 0; node < 6; node++) {
		assert_int_equal(topology_node(t, node)->tier, tiers[node]);
		assert_int_equal(topology_node(t, node)->has_cpus, node < 2);
		assert_int_equal(topology_node(t, node)->package, node % 2);
	}
	assert_int_equal(topology_node(t, 4)->read_bandwidth, 30000);
	assert_int_equal(topology_node(t, 4)->read_latency, 250);
	assert_true(topology_node(t, 4)->initiators == 1);
	assert_int_equal(cpu_of(t, 0)->node, 0);
	assert_int_equal(cpu_of(t, 1)->node, 1);
}

/* All CPUs of node 1 are offline: plain memory, not a slow tier. */
static void test_node_of_offline_cpus(void **state)
{
	static const struct root_node nodes[] = { { 0, 512, "10 21\n" }, { 1, 512, "21 10\n" } };
	static const struct root_cpu cpus[] = {
		{ .id = 0, .core = 0 },
		{ .id = 1, .package = 1, .core = 1, .l3 = 1, .node = 1, .offline = true },
	};
	cleanup_topology struct topology *t = NULL;

	root_build(*state, cpus, ARRAY_LEN(cpus), nodes, ARRAY_LEN(nodes));
	t = found(*state, "node of offline CPUs");
	assert_int_equal(topology_node(t, 1)->tier, TIER_DRAM);
	assert_false(topology_node(t, 1)->has_cpus);
}

/* The machine is what there is, not what the caller's own cgroup leaves it. */
static void test_restricted_view(void **state)
{
	static const struct root_node nodes[] = { { 0, 512, "10 21\n" }, { 1, 512, "21 10\n" } };
	struct root_cpu cpus[8];
	cleanup_topology struct topology *t = NULL;

	for (unsigned i = 0; i < 8; i++)
		cpus[i] = (struct root_cpu){ .id = i, .package = (int) i / 4, .core = (int) i / 2, .l3 = (int) i / 4,
					     .node = (int) i / 4 };
	root_build(*state, cpus, 8, nodes, 2);
	tree_file(*state, "/proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
	tree_file(*state, "/proc/self/cgroup", "0::/box\n");
	tree_file(*state, "/sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n");
	tree_file(*state, "/sys/fs/cgroup/box/cpuset.cpus.effective", "0-1\n");
	tree_file(*state, "/sys/fs/cgroup/box/cpuset.mems.effective", "0\n");
	t = found(*state, "restricted view");
	has_cpus(&t->online, "0-7");
	assert_int_equal(t->n_nodes, 2);
	assert_true(t->memory_nodes == 3);
}

/* Some hypervisors put the threads of a core into different nodes; the kernel complains and goes on. */
static void test_core_across_nodes(void **state)
{
	static const struct root_node nodes[] = { { 0, 512, "10 20\n" }, { 1, 512, "20 10\n" } };
	struct root_cpu cpus[4];
	cleanup_topology struct topology *t = NULL;

	for (unsigned i = 0; i < 4; i++)
		cpus[i] = (struct root_cpu){ .id = i, .core = (int) i / 2, .node = (int) i % 2 };
	root_build(*state, cpus, 4, nodes, 2);
	t = found(*state, "core across nodes");
	assert_int_equal(t->n_cpus, 4);
	assert_int_equal(t->smt, 2);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(cpu_of(t, i)->node, 0);
	/* Node 1 keeps its memory, which is no slower for that. */
	assert_false(topology_node(t, 1)->has_cpus);
	assert_int_equal(topology_node(t, 1)->tier, TIER_DRAM);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_smt), TEST(test_offline), TEST(test_hybrid), TEST(test_alike),
		TEST(test_caches_of_a_node), TEST(test_nodes_of_a_cache), TEST(test_no_caches), TEST(test_no_numa),
		TEST(test_distances),	    TEST(test_memoryless), TEST(test_nodes_without_cpus),
		TEST(test_node_of_offline_cpus), TEST(test_restricted_view), TEST(test_core_across_nodes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
