#include "../../sys/discover.h"
#include "tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define NODES "/sys/devices/system/node"
#define TIERS "/sys/devices/virtual/memory_tiering"

/* Nodes 0 and 2 have two CPUs each, 1 and 3 have none. Node 1 is the smaller, 3 the larger: size must not matter. */
struct machine {
	char *root;
	struct sys sys;
	struct topology *topo;
};

static int setup(void **state)
{
	struct machine *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	m->root = tree_new();
	assert_int_equal(sys_open(m->root, &m->sys, NULL), 0);
	assert_int_equal(topology_from_synthetic("pack:2 [numa] [numa] core:2 pu:1", &m->topo, NULL), 0);
	m->topo->nodes[1].memory = 1 << 20;
	tree_file(m->root, NODES "/online", "0-3\n");
	tree_file(m->root, NODES "/node0/cpulist", "0-1\n");
	tree_file(m->root, NODES "/node1/cpulist", "\n");
	tree_file(m->root, NODES "/node2/cpulist", "2-3\n");
	tree_file(m->root, NODES "/node3/cpulist", "\n");
	*state = m;
	return 0;
}

static int teardown(void **state)
{
	struct machine *m = *state;

	topology_free(m->topo);
	sys_done(&m->sys);
	tree_free(m->root);
	free(m);
	return 0;
}

static void expect_tiers(struct machine *m, const enum memory_tier expected[4])
{
	tiers_fill(&m->sys, m->topo);
	for (unsigned i = 0; i < 4; i++)
		if (m->topo->nodes[i].tier != expected[i])
			fail_msg("node %u is %s, not %s", i, memory_tier_name(m->topo->nodes[i].tier),
				 memory_tier_name(expected[i]));
}

static void hmat(struct machine *m, unsigned node, unsigned access, const char *initiator, const char *bandwidth,
		 const char *latency)
{
	cleanup_free char *dir = NULL, *path = NULL;

	assert_true(asprintf(&dir, NODES "/node%u/access%u/initiators", node, access) > 0);
	assert_true(asprintf(&path, "%s/read_bandwidth", dir) > 0);
	tree_file(m->root, path, bandwidth);
	free(TAKE_PTR(path));
	assert_true(asprintf(&path, "%s/read_latency", dir) > 0);
	tree_file(m->root, path, latency);
	free(TAKE_PTR(path));
	assert_true(asprintf(&path, "%s/%s", dir, initiator) > 0);
	tree_dir(m->root, path);
}

static void test_nothing_known(void **state)
{
	expect_tiers(*state, (enum memory_tier[]){ TIER_DRAM, TIER_CXL, TIER_DRAM, TIER_CXL });
}

static void test_no_sysfs(void **state)
{
	struct machine *m = *state;

	/* A kernel without NUMA: what hwloc said stands. */
	tree_free(m->root);
	sys_done(&m->sys);
	m->root = tree_new();
	assert_int_equal(sys_open(m->root, &m->sys, NULL), 0);
	tiers_fill(&m->sys, m->topo);
	assert_int_equal(m->topo->cpus[0].node, 0);
	assert_true(m->topo->nodes[0].has_cpus);
}

static void test_kernel_tiers(void **state)
{
	struct machine *m = *state;

	tree_file(m->root, TIERS "/memory_tier4/nodelist", "0,2\n");
	tree_file(m->root, TIERS "/memory_tier2/nodelist", "1\n");
	tree_file(m->root, TIERS "/memory_tier13/nodelist", "3\n");
	tree_file(m->root, TIERS "/uevent", "");
	expect_tiers(m, (enum memory_tier[]){ TIER_DRAM, TIER_HBM, TIER_DRAM, TIER_CXL });
}

static void test_same_tier_says_nothing(void **state)
{
	struct machine *m = *state;

	tree_file(m->root, TIERS "/memory_tier4/nodelist", "0-3\n");
	hmat(m, 0, 1, "node0", "100000", "100");
	hmat(m, 3, 1, "node2", "400000", "100");
	expect_tiers(m, (enum memory_tier[]){ TIER_DRAM, TIER_CXL, TIER_DRAM, TIER_HBM });
}

/* A dax device in the CXL core's part of the device tree, whose memory became that node. */
static void cxl_region(struct machine *m, unsigned region, const char *node)
{
#define REGION "devices/platform/ACPI0017:00/root0/decoder0.0/region%u/dax_region%u/dax%u.0"
	cleanup_free char *file = NULL, *link = NULL, *target = NULL;

	assert_true(asprintf(&file, "/sys/" REGION "/target_node", region, region, region) > 0);
	assert_true(asprintf(&target, "../../../" REGION, region, region, region) > 0);
	assert_true(asprintf(&link, "/sys/bus/dax/devices/dax%u.0", region) > 0);
	tree_file(m->root, file, node);
	tree_link(m->root, link, target);
}

static void nvdimm(struct machine *m, unsigned region, const char *node)
{
#define NDBUS "devices/LNXSYSTM:00/ndbus0/region%u/dax%u.0"
	cleanup_free char *file = NULL, *link = NULL, *target = NULL;

	assert_true(asprintf(&file, "/sys/" NDBUS "/target_node", region, region) > 0);
	assert_true(asprintf(&target, "../../../" NDBUS, region, region) > 0);
	assert_true(asprintf(&link, "/sys/bus/dax/devices/dax%u.0", region) > 0);
	tree_file(m->root, file, node);
	tree_link(m->root, link, target);
}

/* ---- the ladder: each rung alone, and against the next ---- */

static void test_dax_refines(void **state)
{
	struct machine *m = *state;

	tree_file(m->root, TIERS "/memory_tier4/nodelist", "0,2\n");
	tree_file(m->root, TIERS "/memory_tier13/nodelist", "1,3\n");
	nvdimm(m, 3, "3\n");
	tree_file(m->root, "/sys/devices/platform/hmem.0/dax1.0/target_node", "1\n");
	tree_link(m->root, "/sys/bus/dax/devices/dax1.0", "../../../devices/platform/hmem.0/dax1.0");
	expect_tiers(m, (enum memory_tier[]){ TIER_DRAM, TIER_CXL, TIER_DRAM, TIER_PMEM });
}

static void test_kernel_before_hmat(void **state)
{
	struct machine *m = *state;

	tree_file(m->root, TIERS "/memory_tier4/nodelist", "0,2\n");
	tree_file(m->root, TIERS "/memory_tier2/nodelist", "1\n");
	tree_file(m->root, TIERS "/memory_tier13/nodelist", "3\n");
	hmat(m, 0, 1, "node0", "100000", "100");
	hmat(m, 1, 1, "node0", "10000", "400"); /* slow, says the firmware */
	hmat(m, 3, 1, "node2", "400000", "50"); /* and fast */
	expect_tiers(m, (enum memory_tier[]){ TIER_DRAM, TIER_HBM, TIER_DRAM, TIER_CXL });
}

static void test_hmat_before_dax(void **state)
{
	struct machine *m = *state;

	hmat(m, 0, 1, "node0", "100000", "100");
	hmat(m, 1, 1, "node0", "200000", "100");
	hmat(m, 3, 1, "node2", "100000", "100"); /* as good as DRAM, whatever it is made of */
	cxl_region(m, 1, "1\n");
	cxl_region(m, 3, "3\n");
	expect_tiers(m, (enum memory_tier[]){ TIER_DRAM, TIER_HBM, TIER_DRAM, TIER_DRAM });
}

/* How slow is HMAT's to say, and made of what the device's. */
static void test_dax_names_what_is_slower(void **state)
{
	struct machine *m = *state;

	hmat(m, 0, 1, "node0", "100000", "100");
	hmat(m, 1, 1, "node0", "30000", "300");
	hmat(m, 3, 1, "node2", "30000", "300");
	nvdimm(m, 1, "1\n");
	expect_tiers(m, (enum memory_tier[]){ TIER_DRAM, TIER_PMEM, TIER_DRAM, TIER_CXL });
}

static void set_distances(struct machine *m, size_t node, uint8_t distance)
{
	for (size_t i = 0; i < 4; i++)
		if (i != node)
			m->topo->distances[i * 4 + node] = m->topo->distances[node * 4 + i] = distance;
}

static void test_dax_before_slit(void **state)
{
	struct machine *m = *state;

	nvdimm(m, 1, "1\n");
	cxl_region(m, 3, "3\n");
	set_distances(m, 1, 10);
	set_distances(m, 3, 10);
	expect_tiers(m, (enum memory_tier[]){ TIER_DRAM, TIER_PMEM, TIER_DRAM, TIER_CXL });
}

static void test_slit(void **state)
{
	static const struct {
		uint8_t distance;
		enum memory_tier tier;
	} cases[] = { { 10, TIER_DRAM }, { 11, TIER_CXL }, { 14, TIER_CXL }, { 20, TIER_CXL }, { 255, TIER_CXL } };
	struct machine *m = *state;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		set_distances(m, 3, cases[i].distance);
		expect_tiers(m, (enum memory_tier[]){ TIER_DRAM, TIER_CXL, TIER_DRAM, cases[i].tier });
	}
	/* Near to another node without CPUs is near to nobody. */
	set_distances(m, 3, 20);
	m->topo->distances[1 * 4 + 3] = 10;
	expect_tiers(m, (enum memory_tier[]){ TIER_DRAM, TIER_CXL, TIER_DRAM, TIER_CXL });
}

/* Whatever its size, from nothing known to each of the rungs. */
static void test_never_by_size(void **state)
{
	static const uint64_t sizes[] = { 1, UINT64_C(1) << 20, UINT64_C(1) << 34, UINT64_C(1) << 50, UINT64_MAX };
	struct machine *m = *state;

	hmat(m, 0, 1, "node0", "100000", "100");
	hmat(m, 1, 1, "node0", "200000", "100");
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
			m->topo->nodes[0].memory = sizes[k];
			m->topo->nodes[1].memory = m->topo->nodes[3].memory = sizes[i];
			expect_tiers(m, (enum memory_tier[]){ TIER_DRAM, TIER_HBM, TIER_DRAM, TIER_CXL });
		}
}

static void test_hmat(void **state)
{
	static const struct {
		const char *bandwidth, *latency;
		enum memory_tier tier;
	} cases[] = {
		{ "150000", "300", TIER_HBM },  { "149999", "120", TIER_DRAM }, { "90000", "125", TIER_DRAM },
		{ "90000", "126", TIER_CXL },   { "89999", "100", TIER_CXL },   { "30000", "250", TIER_CXL },
		{ "0", "0", TIER_CXL },
	};
	struct machine *m = *state;

	hmat(m, 0, 1, "node0", "100000", "100");
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		hmat(m, 1, 1, "node0", cases[i].bandwidth, cases[i].latency);
		expect_tiers(m, (enum memory_tier[]){ TIER_DRAM, cases[i].tier, TIER_DRAM, TIER_CXL });
	}
}

static void test_access_classes(void **state)
{
	struct machine *m = *state;

	/* access0 speaks of an accelerator's node 9, or of slower figures; only CPUs count, and access1 first. */
	hmat(m, 1, 0, "node9", "999", "9");
	hmat(m, 3, 0, "node0", "1000", "90");
	hmat(m, 3, 1, "node0", "2000", "80");
	tree_dir(m->root, NODES "/node3/access1/initiators/node2");
	tree_dir(m->root, NODES "/node3/access1/initiators/node1");
	tiers_fill(&m->sys, m->topo);
	assert_int_equal(m->topo->nodes[1].read_bandwidth, 0);
	assert_int_equal(m->topo->nodes[1].initiators, 0);
	assert_int_equal(m->topo->nodes[3].read_bandwidth, 2000);
	assert_int_equal(m->topo->nodes[3].read_latency, 80);
	assert_int_equal(m->topo->nodes[3].initiators, 1 << 0 | 1 << 2);
}

static void test_cpus_offline(void **state)
{
	struct machine *m = *state;

	tree_dir(m->root, NODES "/node3/cpu7");
	expect_tiers(m, (enum memory_tier[]){ TIER_DRAM, TIER_CXL, TIER_DRAM, TIER_DRAM });
}

static void test_kernel_maps_cpus(void **state)
{
	struct machine *m = *state;

	/* Unlike hwloc's guess: CPUs 0-1 belong to node 1, CPU 2 to memory-less node 2, CPU 3 to node 3. */
	tree_file(m->root, NODES "/node0/cpulist", "\n");
	tree_file(m->root, NODES "/node1/cpulist", "0-1\n");
	tree_file(m->root, NODES "/node2/cpulist", "2\n");
	tree_file(m->root, NODES "/node3/cpulist", "3,9\n");
	m->topo->nodes[2].memory = 0;
	tiers_fill(&m->sys, m->topo);
	assert_int_equal(m->topo->cpus[0].node, 1);
	assert_int_equal(m->topo->cpus[1].node, 1);
	assert_int_equal(m->topo->cpus[2].node, -1);
	assert_int_equal(m->topo->cpus[3].node, 3);
	assert_false(m->topo->nodes[0].has_cpus);
	assert_true(m->topo->nodes[1].has_cpus && m->topo->nodes[2].has_cpus && m->topo->nodes[3].has_cpus);
	assert_int_equal(m->topo->nodes[0].tier, TIER_CXL);
	assert_int_equal(m->topo->nodes[1].tier, TIER_DRAM);
}

#define machine_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		machine_test(test_nothing_known), machine_test(test_no_sysfs),
		machine_test(test_kernel_tiers),  machine_test(test_same_tier_says_nothing),
		machine_test(test_dax_refines),   machine_test(test_kernel_before_hmat),
		machine_test(test_hmat_before_dax), machine_test(test_dax_names_what_is_slower),
		machine_test(test_dax_before_slit), machine_test(test_slit),
		machine_test(test_never_by_size),
		machine_test(test_hmat),          machine_test(test_access_classes),
		machine_test(test_cpus_offline),  machine_test(test_kernel_maps_cpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
