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

static struct policy *parse_sample(const char *name)
{
	cleanup_arena struct arena a = { 0 };
	cleanup_free char *text = malloc(POLICY_MAX + 1);
	FILE *f = fopen(arena_printf(&a, "oci-examples/policies/%s.json", name), "r");
	cleanup_error struct error err = { 0 };
	struct policy *p = NULL;
	struct policy_source source;

	assert_non_null(f);
	text[fread(text, 1, POLICY_MAX, f)] = '\0';
	fclose(f);
	source = (struct policy_source){ name, text, strlen(text) };
	if (policy_parse(&source, 1, &p, &err) < 0)
		fail_msg("%s", error_text(&err));
	return p;
}

static void test_samples(void **state)
{
	static const struct {
		const char *name;
		size_t n_warnings;
	} samples[] = {
		{ "single-tenant-per-namespace", 0 },
		{ "cookie-default", 0 },
		{ "cores-for-databases", 1 }, /* by annotation for podman, which tells no image */
		{ "dram-cxl-batch", 0 },
		{ "demo", 8 }, /* three tenants and five conditions that are the starter's word, as its comment says */
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
		cleanup_policy struct policy *p = parse_sample(samples[i].name);

		assert_int_equal(p->n_warnings, samples[i].n_warnings);
	}
}

#define CRI "io.kubernetes.cri.sandbox-namespace"
#define CRIO_NAMESPACE "io.kubernetes.pod.namespace"
#define CRIO_ID "io.kubernetes.cri-o.ContainerID"
#define CRIO_POD "io.kubernetes.cri-o.SandboxID"
#define TENANT "org.example.tenant"
#define CLASS "org.example.class"

/* Every rule, the last one by a container of which no rule knows anything, and by one that is nearly another's. */
static const struct sample_case {
	const char *sample, *image, *annotations[2][2];
	size_t rule;
	const char *tenant, *class;
} cases[] = {
	{ "cookie-default", NULL, { { 0 } }, 0, "c1", "default" },
	{ "cookie-default", "x", { { CRI, "a" } }, 0, "c1", "default" },

	{ "cores-for-databases", "docker.io/library/postgres:16", { { 0 } }, 0, "database/c1", "database" },
	{ "cores-for-databases", "mysql", { { CRIO_POD, "p1" } }, 0, "database/c1", "database" },
	{ "cores-for-databases", NULL, { { CLASS, "database" } }, 1, "database/c1", "database" },
	{ "cores-for-databases", "web", { { CRIO_POD, "p1" } }, 2, "pod/p1", "shared" },
	{ "cores-for-databases", NULL, { { 0 } }, 3, "container/c1", "shared" },
	{ "cores-for-databases", "notpostgres", { { CRI, "a" } }, 3, "container/c1", "shared" },

	{ "demo", NULL, { { TENANT, "red" }, { CLASS, "batch" } }, 0, "red", "batch" },
	{ "demo", NULL, { { TENANT, "red" }, { CLASS, "db" } }, 1, "red", "db" },
	{ "demo", NULL, { { TENANT, "red" }, { CLASS, "none of them" } }, 2, "red", "web" },
	{ "demo", NULL, { { TENANT, "red" } }, 2, "red", "web" },
	{ "demo", NULL, { { 0 } }, 3, "container/c1", "web" },
	{ "demo", NULL, { { CLASS, "db" } }, 3, "container/c1", "web" },

	{ "dram-cxl-batch", NULL, { { CRI, "batch-7" } }, 0, "batch-7", "batch" },
	{ "dram-cxl-batch", NULL, { { CRI, "a-batch-7" } }, 1, "a-batch-7", "service" },
	{ "dram-cxl-batch", NULL, { { 0 } }, 2, "container/c1", "service" },
	{ "dram-cxl-batch", NULL, { { CRIO_NAMESPACE, "batch-7" } }, 2, "container/c1", "service" },

	{ "single-tenant-per-namespace", NULL, { { CRI, "kube-system" } }, 0, "kube-system", "infra" },
	{ "single-tenant-per-namespace", NULL, { { CRI, "a" } }, 1, "a", "namespace" },
	{ "single-tenant-per-namespace", NULL, { { CRIO_NAMESPACE, "kube-system" }, { CRIO_ID, "c1" } }, 2, "kube-system", "infra" },
	{ "single-tenant-per-namespace", NULL, { { CRIO_NAMESPACE, "a" }, { CRIO_ID, "c1" } }, 3, "a", "namespace" },
	{ "single-tenant-per-namespace", NULL, { { CRIO_NAMESPACE, "kube-system" }, { CRIO_ID, "c2" } }, 4, "container/c1", "namespace" },
	{ "single-tenant-per-namespace", NULL, { { 0 } }, 4, "container/c1", "namespace" },
	{ "single-tenant-per-namespace", "x", { { TENANT, "a" } }, 4, "container/c1", "namespace" },
};

static void expect_case(const struct sample_case *c, const struct policy *p)
{
	cleanup_arena struct arena a = { 0 };
	cleanup_error struct error err = { 0 };
	struct oci_annotation items[2];
	struct oci_annotations annotations = { items, 0 };
	struct match_facts facts = { .id = "c1", .stage = "createRuntime", .image = c->image, .annotations = &annotations };
	struct policy_match m = { 0 };

	/* Sorted by key, as they are looked up. */
	for (size_t i = 2; i-- > 0;)
		if (c->annotations[i][0])
			items[annotations.n++] = (struct oci_annotation){ c->annotations[i][0], c->annotations[i][1] };
	if (policy_match(p, &facts, &a, &m, &err) < 0)
		fail_msg("%s, rule %zu: %s", c->sample, c->rule, error_text(&err));
	if (m.rule_index != c->rule || strcmp(m.tenant, c->tenant) != 0 || strcmp(m.class->name, c->class) != 0)
		fail_msg("%s: rule %zu, %s, %s in place of rule %zu, %s, %s", c->sample, m.rule_index, m.tenant,
			 m.class->name, c->rule, c->tenant, c->class);
}

static void test_rules(void **state)
{
	(void) state;
	for (size_t i = 0, seen = 0; i < ARRAY_LEN(cases); i++) {
		cleanup_policy struct policy *p = parse_sample(cases[i].sample);

		expect_case(&cases[i], p);
		seen |= (size_t) 1 << cases[i].rule;
		if (i + 1 < ARRAY_LEN(cases) && strcmp(cases[i].sample, cases[i + 1].sample) == 0)
			continue;
		assert_int_equal(seen, ((size_t) 1 << p->n_rules) - 1); /* no rule is left out, the last one least of all */
		seen = 0;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_samples),
		cmocka_unit_test(test_rules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
