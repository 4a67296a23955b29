#include "policy.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void test_names(void **state)
{
	enum memory_policy policy = MEMORY_LOCAL;
	enum memory_tier tier = TIER_DRAM;
	enum exec_cover exec = EXEC_GATE;

	(void) state;
	assert_string_equal(cpu_span_name(SPAN_CORES), "cores");
	assert_string_equal(memory_policy_name(MEMORY_WEIGHTED), "weighted-interleave");
	assert_null(memory_tier_name((enum memory_tier) TIER_COUNT));
	assert_int_equal(memory_policy_from_name("bind", &policy), 0);
	assert_int_equal(policy, MEMORY_BIND);
	assert_int_equal(memory_tier_from_name("pmem", &tier), 0);
	assert_int_equal(tier, TIER_PMEM);
	assert_int_equal(exec_cover_from_name("poll", &exec), 0);
	assert_int_equal(exec, EXEC_POLL);
	assert_int_equal(memory_tier_from_name("", &tier), -EINVAL);
	assert_int_equal(tier, TIER_PMEM);
}

static void test_samples(void **state)
{
	static const struct {
		const char *name;
		size_t n_warnings;
	} samples[] = {
		{ "single-tenant-per-namespace", 0 },
		{ "cookie-default", 0 },
		{ "cores-for-databases", 0 },
		{ "dram-cxl-batch", 0 },
		{ "demo", 8 }, /* three tenants and five conditions that are the starter's word, as its comment says */
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
		cleanup_arena struct arena a = { 0 };
		cleanup_free char *text = malloc(POLICY_MAX + 1);
		FILE *f = fopen(arena_printf(&a, "oci-examples/policies/%s.json", samples[i].name), "r");
		cleanup_error struct error err = { 0 };
		cleanup_policy struct policy *p = NULL;
		struct policy_source source;

		assert_non_null(f);
		text[fread(text, 1, POLICY_MAX, f)] = '\0';
		fclose(f);
		source = (struct policy_source){ samples[i].name, text, strlen(text) };
		if (policy_parse(&source, 1, &p, &err) < 0)
			fail_msg("%s", error_text(&err));
		assert_int_equal(p->n_warnings, samples[i].n_warnings);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_samples),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
