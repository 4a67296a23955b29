#include "place_world.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

static void use_tiers(struct world *w, size_t n, enum memory_tier first, enum memory_tier second)
{
	w->class.memory.n_tiers = n;
	w->class.memory.tiers[0] = first;
	w->class.memory.tiers[1] = second;
}

static void has_memory(struct world *w, enum memory_policy policy, nodemask nodes, bool set_mems, nodemask mems)
{
	placed(w);
	assert_string_equal(memory_policy_name(w->plan->memory_policy), memory_policy_name(policy));
	assert_true(w->plan->memory_nodes == nodes);
	assert_int_equal(w->plan->set_mems, set_mems);
	assert_true(w->plan->mems == mems);
}

static void test_memory_policies(void **state)
{
	struct world *w = *state;

	has_memory(w, MEMORY_INHERIT, 0, false, 7);
	w->class.memory.policy = MEMORY_LOCAL;
	has_memory(w, MEMORY_LOCAL, 0, false, 7);
	w->class.memory.policy = MEMORY_BIND;
	use_tiers(w, 1, TIER_DRAM, 0);
	has_memory(w, MEMORY_BIND, 1, true, 1);
	use_tiers(w, 2, TIER_DRAM, TIER_CXL);
	has_memory(w, MEMORY_BIND, 5, true, 5);
	w->class.memory.policy = MEMORY_PREFERRED;
	has_memory(w, MEMORY_PREFERRED, 5, false, 7);
	w->class.memory.policy = MEMORY_WEIGHTED;
	use_tiers(w, 1, TIER_CXL, 0);
	has_memory(w, MEMORY_WEIGHTED, 4, true, 5); /* the CPUs' node stays for what is not policy's to place */
	w->class.memory.policy = MEMORY_INTERLEAVE;
	w->class.memory.nodes = 2;
	has_memory(w, MEMORY_INTERLEAVE, 2, true, 2); /* on the CPUs beside it */
	w->facts.can_cpuset = false;
	has_memory(w, MEMORY_INTERLEAVE, 2, false, 7);
	w->facts.spec_memory_policy = true;
	has_memory(w, MEMORY_INHERIT, 0, false, 7);
	has_reason(w, "linux.memoryPolicy");
}

static void test_memory_nearest(void **state)
{
	static const struct machine two_cxl = {
		.packages = 2,
		.nodes = 1,
		.llcs = 1,
		.cores = 4,
		.smt = 1,
		.slow_nodes = 2,
		.memory = 64 * GIB,
	};
	struct world *w = *state;

	topology_free(w->topo);
	w->facts.topo = w->topo = machine_topology(&two_cxl);
	w->facts.allowed_cpus = w->topo->online;
	w->facts.allowed_mems = 15;
	w->class.memory.policy = MEMORY_INTERLEAVE;
	use_tiers(w, 1, TIER_CXL, 0);
	has_memory(w, MEMORY_INTERLEAVE, 4, true, 5);
	add(w, "a", MECHANISM_COOKIE, "0-3", 1000);
	has_memory(w, MEMORY_INTERLEAVE, 8, true, 10);
	w->topo->nodes[2].initiators = 2; /* HMAT knows better than SLIT */
	has_memory(w, MEMORY_INTERLEAVE, 4, true, 6);
	w->topo->nodes[2].initiators = 0;
	w->facts.allowed_mems = 7;
	has_memory(w, MEMORY_INTERLEAVE, 4, true, 5); /* nearer by more than the load is worth */
	w->facts.allowed_mems = 15;
	w->class.cpu.span = SPAN_MACHINE; /* each node's own */
	has_memory(w, MEMORY_INTERLEAVE, 12, true, 15);
	w->policy.node.tiers[TIER_PMEM] = 8; /* the operator says that node 3 is something else */
	has_memory(w, MEMORY_INTERLEAVE, 4, true, 7);
	w->topo->nodes[2].memory = 0;
	w->topo->memory_nodes = 11;
	refused(w, EOPNOTSUPP, "tiers cxl");
}

/* Limits that say "as much as there is" fill a node, however many there are of them. */
static void test_memory_limits_without_end(void **state)
{
	static const char *const ids[] = { "a", "b", "c", "d" };
	struct world *w = *state;

	w->facts.memory = GIB;
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		add(w, ids[i], MECHANISM_COOKIE, "0-7,16-23", 1);
		w->occupants[i].memory = UINT64_C(1) << 62;
		w->occupants[i].mems = 1;
	}
	add(w, "e", MECHANISM_COOKIE, "8-15,24-31", 1000);
	placed(w);
	has_cpus(&w->plan->cpus, "8-15,24-31");
	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		w->occupants[i].mems = 0; /* by their CPUs */
	placed(w);
	has_cpus(&w->plan->cpus, "8-15,24-31");
	w->occupants[0].mcpu = 9000;
	w->topo->nodes[1].memory = UINT64_C(1) << 63;
	w->topo->nodes[2].memory = UINT64_C(1) << 63;
	w->class.memory.policy = MEMORY_BIND;
	use_tiers(w, 2, TIER_DRAM, TIER_CXL);
	placed(w);
	has_cpus(&w->plan->cpus, "8-15,24-31");
}

static void test_memory_missing(void **state)
{
	struct world *w = *state;

	w->class.memory.policy = MEMORY_BIND;
	use_tiers(w, 2, TIER_HBM, TIER_DRAM);
	has_memory(w, MEMORY_BIND, 1, true, 1);
	assert_true(w->plan->degraded);
	has_reason(w, "tier hbm");
	use_tiers(w, 2, TIER_HBM, TIER_PMEM);
	refused(w, EOPNOTSUPP, "tiers hbm, pmem");
	w->class.isolation.on_unsupported = UNSUPPORTED_DEGRADE;
	has_memory(w, MEMORY_INHERIT, 0, false, 7);
	assert_true(w->plan->degraded);
	w->facts.mems_given = true;
	w->facts.allowed_mems = 1;
	w->class.memory.nodes = 6;
	refused(w, EINVAL, "memory on nodes 1-2, but the OCI spec allows nodes 0");
	w->facts.allowed_mems = 3;
	has_memory(w, MEMORY_BIND, 2, false, 3);
	has_reason(w, "memory nodes 2");
}

static void test_weighted(void **state)
{
	struct world *w = *state;

	w->class.memory.policy = MEMORY_WEIGHTED;
	use_tiers(w, 2, TIER_DRAM, TIER_CXL);
	w->policy.node.weights_mode = WEIGHTS_FIXED;
	w->policy.node.weights.tier[TIER_DRAM] = 5;
	w->policy.node.weights.tier[TIER_CXL] = 2;
	has_memory(w, MEMORY_WEIGHTED, 5, true, 5);
	assert_true(w->plan->set_weights);
	assert_int_equal(w->plan->weights[0], 5);
	assert_int_equal(w->plan->weights[1], 5);
	assert_int_equal(w->plan->weights[2], 2);
	assert_int_equal(w->plan->n_reasons, 1);
	/* The same ratio in other numbers is the same. */
	w->class.memory.has_weights = true;
	w->class.memory.weights.tier[TIER_DRAM] = 10;
	w->class.memory.weights.tier[TIER_CXL] = 4;
	placed(w);
	assert_int_equal(w->plan->n_reasons, 1);
	w->class.memory.weights.tier[TIER_CXL] = 5;
	placed(w);
	has_reason(w, "one set of weights");
	assert_false(w->plan->degraded);
	w->policy.node.weights_mode = WEIGHTS_KEEP;
	placed(w);
	assert_false(w->plan->set_weights);
	has_reason(w, "one set of weights");
	w->facts.can_weighted = false;
	refused(w, EOPNOTSUPP, "6.9");
	w->class.isolation.on_unsupported = UNSUPPORTED_CORES;
	has_memory(w, MEMORY_BIND, 1, true, 1);
	assert_true(w->plan->degraded);
	assert_false(w->plan->set_weights);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(test_memory_policies),
		WORLD_TEST(test_memory_nearest),
		WORLD_TEST(test_memory_limits_without_end),
		WORLD_TEST(test_memory_missing),
		WORLD_TEST(test_weighted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
