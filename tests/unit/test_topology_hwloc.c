#include "machine.h"
#include "sys.h"
#include "topology_check.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct topology *synthetic(const char *description)
{
	cleanup_error struct error err = { 0 };
	struct topology *t = NULL;

	if (topology_from_synthetic(description, &t, &err) < 0)
		fail_msg("%s: %s", description, error_text(&err));
	return t;
}

static void test_synthetic(void **state)
{
	static const struct {
		const char *description;
		size_t cpus, nodes;
		unsigned cores, llcs, packages, smt;
	} cases[] = {
		{ "pu:1", 1, 1, 1, 1, 1, 1 },
		{ "pack:1 core:4 pu:1", 4, 1, 4, 1, 1, 1 },
		{ "pack:2 l3:2 core:2 pu:2", 16, 1, 8, 4, 2, 2 },
		{ "pack:2 numa:2 l3:2 core:3 pu:4", 96, 4, 24, 8, 2, 4 },
		{ "numa:4 core:2 pu:8", 64, 4, 8, 1, 1, 8 },
		{ "pack:1 l3:1 l2:4 core:1 pu:2", 8, 1, 4, 1, 1, 2 },
		{ "pack:1 l2:4 core:2 pu:2", 16, 1, 8, 4, 1, 2 },
		{ "pack:2 numa:4 l3:8 core:8 pu:2", 1024, 8, 512, 64, 2, 2 },
		{ "numa:64 pu:1", 64, 64, 64, 1, 1, 1 },
		{ "pack:8 numa:8 l3:4 core:8 pu:2", 4096, 64, 2048, 256, 8, 2 },
		{ "pack:64 numa:1 core:64 pu:1", 4096, 64, 4096, 64, 64, 1 },
		{ "pack:4 numa:2 l3:1 core:64 pu:8", 4096, 8, 512, 8, 4, 8 },
		{ "pack:2 l3:1 numa:2 core:16 pu:4", 256, 4, 64, 2, 2, 4 },
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *name = cases[i].description;
		cleanup_topology struct topology *t = synthetic(name);

		topology_check(name, t);
		check(t->n_cpus == cases[i].cpus && t->n_nodes == cases[i].nodes && t->n_cores == cases[i].cores);
		check(t->n_llcs == cases[i].llcs && t->n_packages == cases[i].packages && t->smt == cases[i].smt);
	}
}

static void test_second_node_is_not_the_cpus(void **state)
{
	cleanup_topology struct topology *t =
		synthetic("pack:2 [numa(memory=64GiB)] [numa(memory=128GiB)] core:2 pu:2");

	(void) state;
	topology_check("two nodes a package", t);
	assert_int_equal(t->n_nodes, 4);
	for (size_t i = 0; i < t->n_cpus; i++)
		assert_int_equal(t->cpus[i].node, t->cpus[i].package * 2);
	for (size_t i = 0; i < t->n_nodes; i++) {
		assert_int_equal(t->nodes[i].has_cpus, i % 2 == 0);
		assert_int_equal(t->nodes[i].package, i / 2);
		assert_int_equal(t->nodes[i].tier, i % 2 ? TIER_CXL : TIER_DRAM);
	}
	assert_int_equal(topology_distance(t, 0, 2), 20);
}

/* A node of the whole machine beside the packages' own. */
static void test_own_node_before_the_machines(void **state)
{
	cleanup_topology struct topology *t =
		synthetic("[numa(memory=1GB)] pack:2 [numa(memory=1GB)] core:2 pu:1");

	(void) state;
	topology_check("a node of the machine", t);
	assert_int_equal(t->n_nodes, 3);
	for (size_t i = 0; i < t->n_cpus; i++) {
		const struct topo_node *node = topology_node(t, (unsigned) t->cpus[i].node);

		assert_int_equal(node->package, t->cpus[i].package);
	}
}

static void test_limits(void **state)
{
	static const struct {
		const char *description, *text;
		int code;
	} cases[] = {
		{ "numa:65 pu:1", "node 64", -ERANGE },
		{ "pack:1 core:4097 pu:1", "CPUs 0-4095", -ERANGE },
		{ "no topology", "hwloc cannot read \"no topology\"", -EINVAL },
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		cleanup_error struct error err = { 0 };
		struct topology *t = NULL;

		assert_int_equal(topology_from_synthetic(cases[i].description, &t, &err), cases[i].code);
		assert_null(t);
		assert_non_null(strstr(error_text(&err), cases[i].text));
	}
}

static void test_missing_file(void **state)
{
	cleanup_error struct error err = { 0 };
	struct topology *t = NULL;

	(void) state;
	assert_true(topology_from_file("/nonexistent/machine.xml", &t, &err) < 0);
	assert_non_null(strstr(error_text(&err), "/nonexistent/machine.xml"));
}

static void test_live(void **state)
{
	cleanup_error struct error err = { 0 };
	cleanup_topology struct topology *t = NULL;

	(void) state;
	if (topology_from_hwloc(TOPOLOGY_LIVE, NULL, &t, &err) < 0)
		fail_msg("%s", error_text(&err));
	topology_check("live", t);
}

/* ---- captured machines ---- */

static void hybrid(const char *name, const struct topology *t)
{
	/* Six fast cores of two threads, then two clusters of four slow ones. */
	check(t->n_cpus == 20 && t->n_cores == 14 && t->smt == 2);
	check(cpu_of(t, 0)->kind > cpu_of(t, 19)->kind);
	check(cpu_of(t, 19)->kind == 0);
}

static void tiers(const char *name, const struct topology *t)
{
	/* Node 2 is HBM and all that CPUs 4-5 have; nodes 8, 6, 9 are NVM, 4 is HBM beside DRAM node 1. */
	check(topology_node(t, 0)->tier == TIER_DRAM && topology_node(t, 1)->tier == TIER_DRAM);
	check(topology_node(t, 2)->tier == TIER_HBM && topology_node(t, 2)->has_cpus);
	check(topology_node(t, 4)->tier == TIER_HBM && !topology_node(t, 4)->has_cpus);
	check(topology_node(t, 8)->tier == TIER_PMEM);
	check(cpu_of(t, 2)->node == 1 && cpu_of(t, 4)->node == 2);
	check(topology_node(t, 4)->read_bandwidth == 10000 && topology_node(t, 4)->initiators == 1 << 1);
}

static void initiators(const char *name, const struct topology *t)
{
	/* Each package has two DRAM nodes and one NVM node that both of them reach. */
	check(topology_node(t, 7)->tier == TIER_PMEM && topology_node(t, 7)->initiators == (1 << 5 | 1 << 6));
	check(topology_node(t, 7)->package == topology_node(t, 5)->package);
	check(topology_node(t, 10)->package == topology_node(t, 8)->package);
	check(topology_node(t, 5)->read_latency == 26 && topology_node(t, 7)->read_bandwidth == 78644);
	check(cpu_of(t, 0)->node == 5 && cpu_of(t, 4)->node == 6);
}

static void llcs(const char *name, const struct topology *t)
{
	check(t->n_packages == 2 && t->n_llcs == 16 && t->n_cores == 128);
	check(t->memory_nodes); /* the file gives no sizes: the node must not pass for memory-less */
}

static void offline(const char *name, const struct topology *t)
{
	check(t->n_cpus == 12 && !cpu_of(t, 2) && cpu_of(t, 15));
}

static const struct {
	const char *file;
	void (*more)(const char *name, const struct topology *t);
	const char *refused; /* NULL: loads */
} machines[] = {
	{ "16em64t-4s2c2t-offlines.xml", offline, NULL },
	{ "16em64t-4s2c2t.xml", NULL, NULL },
	{ "20em64t-hybrid-1p6c2t+2ca4co1t.xml", hybrid, NULL },
	{ "32amd64-4s2n4c-cgroup2.xml", NULL, NULL },
	{ "48amd64-4pa2n6c-sparse.xml", NULL, "NUMA node 72" },
	{ "AMD-17h-Zen-2xEpyc-7451.xml", NULL, NULL },
	{ "AMD-19h-Zen3-2xEpyc-7763.xml", llcs, NULL },
	{ "fakeheteromemtiers.xml", tiers, NULL },
	{ "fakememinitiators-1np2c+1npp+gi.xml", initiators, NULL },
};

static void test_machine(const char *path, size_t i)
{
	const char *name = machines[i].file;
	cleanup_topology struct topology *t = NULL;
	cleanup_error struct error err = { 0 };
	int r = topology_from_file(path, &t, &err);

	if (machines[i].refused) {
		check(r == -ERANGE && strstr(error_text(&err), machines[i].refused));
		return;
	}
	if (r < 0)
		fail_msg("%s", error_text(&err));
	topology_check(name, t);
	if (machines[i].more)
		machines[i].more(name, t);
}

static void test_machines(void **state)
{
	const char *dir = getenv("COTENANT_TOPOLOGIES");
	size_t found = 0;

	(void) state;
	dir = dir ? dir : "../shared/topologies";
	for (size_t i = 0; i < ARRAY_LEN(machines); i++) {
		cleanup_free char *path = NULL;

		assert_true(asprintf(&path, "%s/%s", dir, machines[i].file) > 0);
		if (access(path, R_OK) < 0)
			continue;
		found++;
		test_machine(path, i);
	}
	/* They are no part of this tree: machines made of synthetic strings are tested above in any case. */
	if (!found)
		print_message("no captured machines in %s (COTENANT_TOPOLOGIES names their directory)\n", dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_synthetic), cmocka_unit_test(test_second_node_is_not_the_cpus),
		cmocka_unit_test(test_own_node_before_the_machines),
		cmocka_unit_test(test_limits),    cmocka_unit_test(test_missing_file),
		cmocka_unit_test(test_live),      cmocka_unit_test(test_machines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
