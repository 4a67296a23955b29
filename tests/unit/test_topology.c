#include "machine.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

static const struct machine two_sockets = {
	.packages = 2, .nodes = 1, .llcs = 2, .cores = 4, .smt = 2, .slow_nodes = 1, .memory = UINT64_C(64) << 30,
};

static void test_lookups(void **state)
{
	cleanup_topology struct topology *t = machine_topology(&two_sockets);
	struct mask offline = cpus_of("3"), touched = cpus_of("17,2"), whole;

	(void) state;
	machine_offline(t, &offline);
	assert_int_equal(cpu_of(t, 31)->core, 15);
	assert_int_equal(topology_node(t, 2)->tier, TIER_CXL);
	assert_null(topology_node(t, 3));
	assert_null(topology_node(t, NODE_MAX));
	assert_int_equal(topology_distance(t, 0, 0), 10);
	assert_int_equal(topology_distance(t, 0, 1), 21);
	assert_int_equal(topology_distance(t, 1, 2), 26);
	assert_int_equal(topology_distance(t, 0, 9), 255);
	topology_whole_cores(t, &touched, &whole);
	cleanup_free char *text = mask_format(&whole);

	assert_string_equal(text, "1-2,17-18");
	topology_whole_cores(t, &touched, &touched);
	assert_true(mask_equal(&touched, &whole));
}

static void same_topology(const struct topology *a, const struct topology *b)
{
	assert_int_equal(a->n_cpus, b->n_cpus);
	assert_memory_equal(a->cpus, b->cpus, a->n_cpus * sizeof(*a->cpus));
	assert_int_equal(a->n_nodes, b->n_nodes);
	for (size_t i = 0; i < a->n_nodes; i++) {
		assert_int_equal(a->nodes[i].id, b->nodes[i].id);
		assert_int_equal(a->nodes[i].has_cpus, b->nodes[i].has_cpus);
		assert_int_equal(a->nodes[i].tier, b->nodes[i].tier);
		assert_int_equal(a->nodes[i].package, b->nodes[i].package);
		assert_true(a->nodes[i].memory == b->nodes[i].memory);
		assert_int_equal(a->nodes[i].read_bandwidth, b->nodes[i].read_bandwidth);
		assert_int_equal(a->nodes[i].read_latency, b->nodes[i].read_latency);
		assert_true(a->nodes[i].initiators == b->nodes[i].initiators);
	}
	assert_memory_equal(a->distances, b->distances, a->n_nodes * a->n_nodes);
	assert_int_equal(a->n_cores, b->n_cores);
	assert_int_equal(a->n_llcs, b->n_llcs);
	assert_int_equal(a->n_packages, b->n_packages);
	assert_int_equal(a->smt, b->smt);
	assert_true(mask_equal(&a->online, &b->online));
	assert_true(a->memory_nodes == b->memory_nodes);
	assert_string_equal(a->key, b->key);
}

static void test_round_trip(void **state)
{
	cleanup_topology struct topology *t = machine_topology(&two_sockets), *back = NULL;
	cleanup_error struct error err = { 0 };
	cleanup_free char *text = NULL;
	size_t len;

	(void) state;
	t->key = strdup("boot/0-31/0-2");
	t->cpus[5].kind = t->cpus[21].kind = 2; /* both threads of core 5 */
	t->cpus[7].node = t->cpus[23].node = -1;
	t->nodes[2].read_bandwidth = 50000;
	t->nodes[2].read_latency = 250;
	t->nodes[2].initiators = 1;
	assert_int_equal(topology_format(t, &text, &len), 0);
	assert_int_equal(topology_parse("cache", text, len, &back, &err), 0);
	same_topology(t, back);
}

/* The largest machine we can hold has to pass through its own text. */
static void test_largest(void **state)
{
	const struct machine big = { .packages = 32, .nodes = 1, .llcs = 64, .cores = 1, .smt = 2, .slow_nodes = 32,
				     .memory = INT64_MAX / 4 };
	cleanup_topology struct topology *t = machine_topology(&big), *back = NULL;
	cleanup_error struct error err = { 0 };
	cleanup_free char *text = NULL;
	size_t len;

	(void) state;
	assert_int_equal(t->n_cpus, CPU_MAX);
	t->key = strdup("");
	assert_int_equal(topology_format(t, &text, &len), 0);
	if (topology_parse("cache", text, len, &back, &err) < 0)
		fail_msg("%s", error_text(&err));
	same_topology(t, back);
}

static void test_mixed_core(void **state)
{
	cleanup_topology struct topology *t = machine_topology(&two_sockets);
	char *text = NULL;
	size_t len = 0;

	(void) state;
	t->cpus[0].llc = 1;
	assert_int_equal(topology_format(t, &text, &len), -EINVAL);
	assert_null(text);
}

#define CORE "{\"package\":0,\"node\":0,\"llc\":0,\"kind\":0,\"threads\":[\"0,2\",\"1,3\"]}"
#define NODE                                                                                                 \
	"{\"id\":0,\"has_cpus\":true,\"tier\":\"dram\",\"package\":0,\"memory\":1,\"read_bandwidth\":0," \
	"\"read_latency\":0,\"initiators\":\"\"}"
#define DOC(cores, nodes, distances) \
	"{\"cores\":[" cores "],\"nodes\":[" nodes "],\"distances\":[" distances "]}"

static const char *const damaged[] = {
	"[]",
	"{}",
	DOC("", NODE, "[10]"),
	DOC(CORE, "", ""),
	DOC(CORE, NODE, "[10],[10]"),
	DOC(CORE, NODE, "[10,10]"),
	DOC(CORE, NODE, "[256]"),
	DOC(CORE, NODE, "10"),
	DOC(CORE "," CORE, NODE, "[10]"),
	DOC("7", NODE, "[10]"),
	DOC("{\"package\":0,\"node\":0,\"llc\":0,\"kind\":0,\"threads\":[\"4096\"]}", NODE, "[10]"),
	DOC("{\"package\":0,\"node\":0,\"llc\":0,\"kind\":0,\"threads\":[\"\"]}", NODE, "[10]"),
	DOC("{\"package\":4096,\"node\":0,\"llc\":0,\"kind\":0,\"threads\":[\"0\"]}", NODE, "[10]"),
	DOC("{\"package\":0,\"node\":64,\"llc\":0,\"kind\":0,\"threads\":[\"0\"]}", NODE, "[10]"),
	DOC("{\"package\":0,\"node\":1,\"llc\":0,\"kind\":0,\"threads\":[\"0\"]}", NODE, "[10]"),
	DOC("{\"package\":0,\"node\":0,\"llc\":-1,\"kind\":0,\"threads\":[\"0\"]}", NODE, "[10]"),
	DOC("{\"package\":0,\"node\":0,\"llc\":0,\"kind\":256,\"threads\":[\"0\"]}", NODE, "[10]"),
	DOC(CORE, NODE "," NODE, "[10,10],[10,10]"),
	DOC(CORE, "{\"id\":0}", "[10]"),
	"{\"key\":1,\"cores\":[" CORE "],\"nodes\":[" NODE "],\"distances\":[[10]]}",
};

static void test_damaged(void **state)
{
	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(damaged); i++) {
		cleanup_error struct error err = { 0 };
		struct topology *t = NULL;
		int r = topology_parse("cache", damaged[i], strlen(damaged[i]), &t, &err);

		if (r != -EINVAL || t || !err.text || !str_starts(err.text, "cache:"))
			fail_msg("%s: %d %s", damaged[i], r, error_text(&err));
	}
	/* The frame itself is good. */
	const char *good = DOC(CORE, NODE, "[10]");
	cleanup_topology struct topology *t = NULL;

	assert_int_equal(topology_parse("cache", good, strlen(good), &t, NULL), 0);
	assert_int_equal(t->n_cores, 2);
	assert_int_equal(t->smt, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lookups),	   cmocka_unit_test(test_round_trip), cmocka_unit_test(test_largest),
		cmocka_unit_test(test_mixed_core), cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
