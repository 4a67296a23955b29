#include "machine.h"
#include "plan.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

static const struct json_limits limits = { .max_bytes = 1 << 16, .max_values = 4096, .max_depth = 8 };

/* A plan as the ledger has it. Each line can be taken out or replaced, and reading must then name it. */
static const char *const lines[][2] = {
	{ "mechanism", "\"cookie\"" },
	{ "memory_policy", "\"weighted-interleave\"" },
	{ "exec", "\"watch\"" },
	{ "set_cpus", "true" },
	{ "set_mems", "false" },
	{ "cpus", "\"0-3,8\"" },
	{ "wish", "\"0-15\"" },
	{ "mems", "\"0-2\"" },
	{ "bound", "true" },
	{ "exclusive", "false" },
	{ "streams", "true" },
	{ "mcpu", "4294967295" },
	{ "memory", "9223372036854775807" },
	{ "memory_nodes", "\"0,2\"" },
	{ "set_weights", "true" },
	{ "guard", "5" },
	{ "migrate", "true" },
	{ "rebalance.enabled", "true" },
	{ "rebalance.min_dwell_s", "60" },
	{ "rebalance.max_moves_per_minute", "6" },
	{ "rebalance.min_gain", "50000" },
	{ "confine_unmanaged", "true" },
	{ "degraded", "true" },
	{ "weights", "{\"0\":5,\"63\":255}" },
	{ "ratio", "{\"0\":9,\"2\":2}" },
	{ "reasons", "[\"because\",\"\"]" },
	{ "rejects", "[{\"candidate\":\"node 1\",\"why\":\"full\"}]" },
	{ "adjusts", "[{\"id\":\"c1\",\"cpus\":\"4-7\"}]" },
};

static char *document(const char *name, const char *value)
{
	char *text = strdup("");

	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		const char *v = str_eq(lines[i][0], name) ? value : lines[i][1];
		char *more = NULL;

		if (!v)
			continue;
		assert_true(asprintf(&more, "%s%s\"%s\":%s", text, *text ? "," : "{", lines[i][0], v) > 0);
		free(text);
		text = more;
	}
	return text;
}

static int read_text(const char *text, struct plan **ret, struct error *err)
{
	cleanup_arena struct arena arena = { 0 };
	cleanup_free char *closed = NULL;
	const struct json *root;

	assert_true(asprintf(&closed, "%s}", text) > 0);
	if (json_parse(&arena, "entry", closed, strlen(closed), 0, &limits, &root, err) < 0)
		fail_msg("%s", error_text(err));
	return plan_read(root, ret, err);
}

static char *written(const struct plan *p)
{
	cleanup_json_writer struct json_writer *w = json_writer_new(false);
	char *text;
	size_t len;

	json_open_object(w, NULL);
	plan_write(w, p);
	json_close(w);
	assert_int_equal(json_writer_take(w, &text, &len), 0);
	return text;
}

/* The linker puts this in its place. */
char *__real_nodemask_format(nodemask nodes);
char *__wrap_nodemask_format(nodemask nodes);
static bool no_memory_for_nodes;

char *__wrap_nodemask_format(nodemask nodes)
{
	return no_memory_for_nodes ? NULL : __real_nodemask_format(nodes);
}

static void test_written_without_memory(void **state)
{
	cleanup_json_writer struct json_writer *w = json_writer_new(false);
	struct plan plan = { .mcpu = 1 };
	char *text = NULL;
	size_t len;

	(void) state;
	json_open_object(w, NULL);
	no_memory_for_nodes = true;
	plan_write(w, &plan);
	no_memory_for_nodes = false;
	json_close(w);
	assert_int_equal(json_writer_take(w, &text, &len), -ENOMEM);
	assert_null(text);
}

static void test_written_with_unknown_name(void **state)
{
	cleanup_json_writer struct json_writer *w = json_writer_new(false);
	struct plan plan = { .mcpu = 1, .mechanism = (enum mechanism) 99 };
	char *text = NULL;
	size_t len;

	(void) state;
	json_open_object(w, NULL);
	plan_write(w, &plan);
	json_close(w);
	assert_int_equal(json_writer_take(w, &text, &len), -EINVAL);
}

/* Entries that an older version wrote. */
static void test_optional_members(void **state)
{
	cleanup_free char *text = document("streams", NULL);
	cleanup_plan struct plan *p = NULL;

	(void) state;
	assert_int_equal(read_text(text, &p, NULL), 0);
	assert_false(p->streams);
}

static void test_round_trip(void **state)
{
	cleanup_free char *text = document("", ""), *back = NULL, *want = NULL;
	cleanup_error struct error err = { 0 };
	cleanup_plan struct plan *p = NULL;
	struct mask cpus = cpus_of("0-3,8"), moved = cpus_of("4-7");

	(void) state;
	if (read_text(text, &p, &err) < 0)
		fail_msg("%s", error_text(&err));
	assert_int_equal(p->mechanism, MECHANISM_COOKIE);
	assert_int_equal(p->memory_policy, MEMORY_WEIGHTED);
	assert_int_equal(p->exec, EXEC_WATCH);
	assert_true(p->set_cpus && !p->set_mems && p->bound && !p->exclusive && p->streams && p->migrate && p->degraded);
	assert_true(mask_equal(&p->cpus, &cpus));
	assert_true(p->mems == 7 && p->memory_nodes == 5);
	assert_true(p->mcpu == UINT32_MAX && p->memory == INT64_MAX);
	assert_true(p->set_weights && p->weights[0] == 5 && p->weights[1] == 0 && p->weights[63] == 255);
	assert_true(p->ratio[0] == 9 && p->ratio[2] == 2 && p->confine_unmanaged);
	assert_true(p->rebalance.enabled && p->rebalance.min_dwell_s == 60 && p->rebalance.max_moves_per_minute == 6);
	assert_true(p->rebalance.min_gain > 0.0499 && p->rebalance.min_gain < 0.0501);
	assert_int_equal(p->guard, GUARD_COOKIE | GUARD_AFFINITY);
	assert_int_equal(p->n_reasons, 2);
	assert_string_equal(p->rejects[0].candidate, "node 1");
	assert_string_equal(p->adjusts[0].id, "c1");
	assert_true(mask_equal(&p->adjusts[0].cpus, &moved));
	back = written(p);
	assert_true(asprintf(&want, "%s}\n", text) > 0);
	assert_string_equal(back, want);
	/* More memory than the document can hold is no negative number. */
	p->memory = UINT64_MAX;
	free(back);
	back = written(p);
	assert_string_equal(back, want);
}

static const char *const damaged[][2] = {
	{ "mechanism", "\"magic\"" },
	{ "mechanism", "1" },
	{ "memory_policy", "\"weighted\"" },
	{ "exec", "null" },
	{ "set_cpus", "1" },
	{ "degraded", "\"true\"" },
	{ "cpus", "\"\"" },
	{ "cpus", "\"4096\"" },
	{ "cpus", "[0]" },
	{ "wish", "\"\"" },
	{ "wish", "\"3-1\"" },
	{ "mems", "\"64\"" },
	{ "memory_nodes", "2" },
	{ "mcpu", "0" },
	{ "mcpu", "4294967296" },
	{ "mcpu", "1.5" },
	{ "memory", "-1" },
	{ "guard", "8" },
	{ "guard", "-1" },
	{ "weights", "[]" },
	{ "weights", "{\"0\":0}" },
	{ "weights", "{\"0\":256}" },
	{ "weights", "{\"64\":1}" },
	{ "weights", "{\"0-1\":1}" },
	{ "weights", "{\"\":1}" },
	{ "weights", "{\"0\":\"1\"}" },
	{ "ratio", "{\"0\":256}" },
	{ "rebalance.min_gain", "1000001" },
	{ "rebalance.enabled", "1" },
	{ "streams", "1" },
	{ "reasons", "\"because\"" },
	{ "reasons", "[1]" },
	{ "rejects", "[\"node 1\"]" },
	{ "rejects", "[{\"candidate\":\"node 1\"}]" },
	{ "adjusts", "[{\"id\":\"c1\"}]" },
	{ "adjusts", "[{\"id\":\"c1\",\"cpus\":\"\"}]" },
	{ "adjusts", "[{\"id\":\"../c1\",\"cpus\":\"0\"}]" },
	{ "adjusts", "[{\"id\":\"\",\"cpus\":\"0\"}]" },
	{ "adjusts", "{}" },
};

static void must_fail(const char *name, const char *value)
{
	cleanup_free char *text = document(name, value), *quoted = NULL;
	cleanup_error struct error err = { 0 };
	struct plan *p = NULL;
	int r = read_text(text, &p, &err);

	assert_true(asprintf(&quoted, "\"%s\"", name) > 0);
	if (r != -EINVAL || p || !err.text || !strstr(err.text, quoted))
		fail_msg("%s = %s: %d %s", name, value ? value : "(missing)", r, error_text(&err));
}

static void test_damaged(void **state)
{
	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(damaged); i++)
		must_fail(damaged[i][0], damaged[i][1]);
	for (size_t i = 0; i < ARRAY_LEN(lines); i++)
		if (!str_eq(lines[i][0], "streams"))
			must_fail(lines[i][0], NULL);
	assert_int_equal(plan_read(NULL, NULL, NULL), -EINVAL);
}

static void test_names(void **state)
{
	enum mechanism m;

	(void) state;
	for (unsigned i = MECHANISM_NONE; i <= MECHANISM_NO_SIBLINGS; i++) {
		assert_int_equal(mechanism_from_name(mechanism_name((enum mechanism) i), &m), 0);
		assert_int_equal(m, i);
	}
	assert_null(mechanism_name(MECHANISM_NO_SIBLINGS + 1));
	assert_int_equal(mechanism_from_name("", &m), -EINVAL);
	for (unsigned i = CORESCHED_SUPPORTED; i <= CORESCHED_KNOWN_BAD; i++) {
		assert_non_null(coresched_support_name((enum coresched_support) i));
		for (unsigned k = CORESCHED_SUPPORTED; k < i; k++)
			assert_string_not_equal(coresched_support_text((enum coresched_support) i),
						coresched_support_text((enum coresched_support) k));
	}
	assert_null(coresched_support_name(CORESCHED_KNOWN_BAD + 1));
	assert_non_null(coresched_support_text(CORESCHED_KNOWN_BAD + 1));
}

static void test_explain(void **state)
{
	static const char want[] = "container new: tenant a\\x1bb, class web\n"
				   "isolation: cookie of group a\\x1bb\n"
				   "degraded: something that the class asks for is not enforced\n"
				   "cpus: 0-3,8\n"
				   "cpus once tenants with cores of their own are gone: 0-15\n"
				   "memory nodes: 0-2 (left as they are)\n"
				   "memory policy: weighted-interleave on nodes 0,2\n"
				   "interleave weight of node 0: 5\n"
				   "interleave weight of node 63: 255\n"
				   "guard: the container may not change its cookie affinity\n"
				   "exec: watch\n"
				   "cost: 0.500000 CPUs lost, 0.400000 to memory of slower tiers, 0.100000 to CPUs that are wanted by others too\n"
				   "because: because\n"
				   "because: \n"
				   "not node 1: full\n"
				   "neighbour c1: moves to cpus 4-7\n";
	const struct policy_class class = { .name = "web" };
	const struct place_facts facts = { .class = &class, .id = "new", .tenant = "a\033b", .group = "a\033b" };
	cleanup_free char *text = document("", ""), *said = NULL;
	cleanup_plan struct plan *p = NULL;

	(void) state;
	assert_int_equal(read_text(text, &p, NULL), 0);
	p->cost.terms[COST_CPU] = 100000;
	p->cost.terms[COST_TIER] = 400000;
	said = plan_explain(p, &facts);
	assert_string_equal(said, want);
}

static void test_explain_json(void **state)
{
	const struct policy_class class = { .name = "web" };
	const struct place_facts facts = { .class = &class, .id = "new", .tenant = "a\033b", .group = "a\033b" };
	cleanup_json_writer struct json_writer *w = json_writer_new(false);
	cleanup_free char *text = document("", ""), *said = NULL;
	cleanup_arena struct arena arena = { 0 };
	cleanup_plan struct plan *p = NULL;
	const struct json *root;
	size_t len;

	(void) state;
	assert_int_equal(read_text(text, &p, NULL), 0);
	p->cost.terms[COST_CPU] = 100000;
	p->rejects[0].cost.terms[COST_TIER] = 400000;
	plan_explain_json(w, p, &facts);
	assert_int_equal(json_writer_take(w, &said, &len), 0);
	assert_int_equal(json_parse(&arena, "plan", said, len, 0, &limits, &root, NULL), 0);
	assert_string_equal(json_get(root, "tenant")->string, "a\033b");
	assert_string_equal(json_get(root, "class")->string, "web");
	assert_int_equal(json_find(root, "cost.sum")->integer, 100000);
	assert_int_equal(json_find(root, "cost.cpu")->integer, 100000);
	assert_null(json_find(root, "cost.tier"));
	assert_int_equal(json_get(json_get(root, "reject_costs")->first, "tier")->integer, 400000);
	assert_string_equal(json_get(json_get(root, "rejects")->first, "candidate")->string, "node 1");
}

/* What is lacking comes before all other reasons, in its own order, and is told in one line. */
static void test_lacks(void **state)
{
	static const char *const want[] = { "no cookie", "no node 1", "near its memory", "alone there" };
	cleanup_plan struct plan *p = calloc(1, sizeof(*p));
	cleanup_free char *nothing = NULL, *line = NULL;

	(void) state;
	assert_non_null(p);
	plan_reason(p, "near its %s", "memory");
	nothing = plan_lacks(p);
	assert_null(nothing);
	assert_false(p->degraded);
	plan_lack(p, "no %s", "cookie");
	plan_reason(p, "alone there");
	plan_lack(p, "no node %d", 1);
	assert_true(p->degraded);
	assert_int_equal(p->n_reasons, ARRAY_LEN(want));
	for (size_t i = 0; i < ARRAY_LEN(want); i++)
		assert_string_equal(p->reasons[i], want[i]);
	line = plan_lacks(p);
	assert_string_equal(line, "no cookie; no node 1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_written_without_memory),
		cmocka_unit_test(test_written_with_unknown_name),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_optional_members),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_explain),
		cmocka_unit_test(test_explain_json),
		cmocka_unit_test(test_lacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
