#include "policy.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define RULE(match, tenant, rest) "{\"match\":{" match "},\"tenant\":\"" tenant "\",\"class\":\"t\"" rest "}"
#define POLICY(rules)                                                                                                  \
	"{\"version\":1,\"classes\":{\"t\":{},\"p\":{\"isolation\":{\"scope\":\"pod\"}},"                              \
	"\"c\":{\"isolation\":{\"scope\":\"container\"}}},\"rules\":[" rules "]}"
#define SCOPE(class, tenant) POLICY("{\"match\":{},\"tenant\":\"" tenant "\",\"class\":\"" class "\",\"trust\":true}")

static struct policy *parse_ok(const char *text)
{
	const struct policy_source source = { "p.json", text, strlen(text) };
	cleanup_error struct error err = { 0 };
	struct policy *p = NULL;

	if (policy_parse(&source, 1, &p, &err) != 0)
		fail_msg("%s\nwas refused: %s", text, error_text(&err));
	return p;
}

static void expect_match(const char *text, const struct match_facts *facts, size_t rule, const char *tenant,
			 const char *group)
{
	cleanup_policy struct policy *p = parse_ok(text);
	cleanup_arena struct arena a = { 0 };
	cleanup_error struct error err = { 0 };
	struct policy_match m = { 0 };

	if (policy_match(p, facts, &a, &m, &err) != 0)
		fail_msg("%s\nno match: %s", text, error_text(&err));
	assert_int_equal(m.rule_index, rule);
	assert_ptr_equal(m.rule, &p->rules[rule]);
	assert_ptr_equal(m.class, p->rules[rule].class);
	assert_string_equal(m.tenant, tenant);
	assert_string_equal(m.group, group);
}

static void expect_none(const char *text, const struct match_facts *facts, int code, const char *message)
{
	cleanup_policy struct policy *p = parse_ok(text);
	cleanup_arena struct arena a = { 0 };
	cleanup_error struct error err = { 0 };
	struct policy_match m = { .rule_index = 77 };

	assert_int_equal(policy_match(p, facts, &a, &m, &err), code);
	assert_string_equal(error_text(&err), message);
	assert_int_equal(m.rule_index, 77);
	assert_null(m.tenant);
}

/* ---- patterns ---- */

static const struct {
	const char *pattern, *value;
	bool matches;
} patterns[] = {
	{ "\"abc\"", "abc", true },
	{ "\"abc\"", "abcd", false },
	{ "\"abc\"", "ab", false },
	{ "\"\"", "", true },
	{ "\"\"", "a", false },
	{ "\"*\"", "", true },
	{ "\"*\"", "anything/at.all", true },
	{ "\"a*\"", "a", true },
	{ "\"a*\"", "ba", false },
	{ "\"*a\"", "bba", true },
	{ "\"*a\"", "ab", false },
	{ "\"a*b*c\"", "abxbc", true },
	{ "\"a*b*c\"", "acb", false },
	{ "\"**a**\"", "xax", true },
	{ "\"a?c\"", "abc", false },
	{ "\"a?c\"", "a?c", true },
	{ "\"[ab]*\"", "a", false },
	{ "\"[ab]*\"", "[ab]x", true },
	{ "\"a\\\\*\"", "a*", true },
	{ "\"a\\\\*\"", "ab", false },
	{ "\"a\\\\\\\\\"", "a\\", true },
	{ "\"*\\\\*\"", "x*", true },
	{ "\"*\\\\*\"", "x", false },
	{ "\"*\\\\**\"", "x*y", true },
	{ "\"*\\\\\\\\*\"", "x\\y", true },
	{ "\"*\\\\\\\\*\"", "xy", false },
};

static void test_patterns(void **state)
{
	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
		cleanup_arena struct arena a = { 0 };
		const char *text = arena_printf(&a, POLICY(RULE("\"image\":%s", "yes", "") "," RULE("", "no", "")),
						patterns[i].pattern);
		const struct match_facts facts = { .id = "c1", .image = patterns[i].value };
		const char *want = patterns[i].matches ? "yes" : "no";

		print_message("%s on %s\n", patterns[i].pattern, patterns[i].value);
		expect_match(text, &facts, patterns[i].matches ? 0 : 1, want, want);
	}
}

/* A pattern of many stars on a long value: backtracking into every star would not end in a lifetime. */
static void test_glob_is_not_exponential(void **state)
{
	enum { STARS = 200, LEN = 20000 };
	cleanup_arena struct arena a = { 0 };
	char *stars = arena_alloc(&a, 2 * STARS + 1), *value = arena_alloc(&a, LEN + 1);
	const struct match_facts facts = { .id = "c1", .image = value };

	(void) state;
	for (size_t i = 0; i < STARS; i++)
		memcpy(stars + 2 * i, "*a", 2);
	memset(value, 'a', LEN);
	expect_match(arena_printf(&a, POLICY(RULE("\"image\":\"%sb\"", "yes", "") "," RULE("", "no", "")), stars),
		     &facts, 1, "no", "no");
}

/* ---- conditions ---- */

static void test_every_fact(void **state)
{
	static const char text[] =
		POLICY(RULE("\"id\":\"i*\"", "id", "") "," RULE("\"cgroup\":\"/a/*\"", "cgroup", "") "," RULE(
			"\"stage\":\"poststop\"", "stage",
			"") "," RULE("\"uid\":{\"min\":100,\"max\":200}", "uid",
				     "") "," RULE("\"annotation\":{\"k\":\"v\",\"l\":\"*\"}", "annotation", ""));
	static struct oci_annotation both[] = { { "k", "v" }, { "l", "" } };
	const struct oci_annotations two = { both, 2 }, one = { both, 1 };
	const struct {
		struct match_facts facts;
		size_t rule;
		const char *tenant;
	} cases[] = {
		{ { .id = "i1", .cgroup_path = "/a/b" }, 0, "id" },
		{ { .id = "x", .cgroup_path = "/a/b" }, 1, "cgroup" },
		{ { .id = "x", .cgroup_path = "/b", .stage = "poststop" }, 2, "stage" },
		{ { .id = "x", .has_host_uid = true, .host_uid = 100 }, 3, "uid" },
		{ { .id = "x", .has_host_uid = true, .host_uid = 200 }, 3, "uid" },
		{ { .id = "x", .has_host_uid = true, .host_uid = 201, .annotations = &two }, 4, "annotation" },
	};
	const struct match_facts unmatched[] = {
		{ .id = "x" },
		{ .id = "x", .has_host_uid = true, .host_uid = 99 },
		{ .id = "x", .host_uid = 150 },
		{ .id = "x", .annotations = &one },
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		expect_match(text, &cases[i].facts, cases[i].rule, cases[i].tenant, cases[i].tenant);
	for (size_t i = 0; i < ARRAY_LEN(unmatched); i++)
		expect_none(text, &unmatched[i], -ENOENT,
			    "container x: none of the 5 rules of p.json matches; add a rule for it, or a last one with "
			    "\"match\": {}");
}

static void test_all_conditions_must_hold(void **state)
{
	static const char text[] = POLICY(RULE("\"id\":\"a\",\"image\":\"b\"", "both", "") "," RULE("", "rest", ""));

	(void) state;
	expect_match(text, &(struct match_facts){ .id = "a", .image = "b" }, 0, "both", "both");
	expect_match(text, &(struct match_facts){ .id = "a", .image = "c" }, 1, "rest", "rest");
	expect_match(text, &(struct match_facts){ .id = "a" }, 1, "rest", "rest");
}

static void test_hostile_id_is_shown_safely(void **state)
{
	(void) state;
	expect_none(POLICY(RULE("\"id\":\"a\"", "x", "")), &(struct match_facts){ .id = "\x1b[2J" }, -ENOENT,
		    "container \\x1b[2J: none of the 1 rules of p.json matches; add a rule for it, or a last one with "
		    "\"match\": {}");
	expect_none(POLICY(RULE("\"id\":\"a\"", "x", "")), &(struct match_facts){ .id = NULL }, -ENOENT,
		    "container (no id): none of the 1 rules of p.json matches; add a rule for it, or a last one with "
		    "\"match\": {}");
}

/* ---- tenants ---- */

static void test_templates(void **state)
{
	static struct oci_annotation items[] = { { "io.kubernetes.pod.namespace", "pay" } };
	const struct oci_annotations annotations = { items, 1 };
	const struct match_facts facts = { .id = "c1",
					   .cgroup_path = "/x",
					   .image = "img:1",
					   .has_host_uid = true,
					   .host_uid = 4294967295,
					   .annotations = &annotations };

	(void) state;
	expect_match(SCOPE("t", "plain"), &facts, 0, "plain", "plain");
	expect_match(SCOPE("t", "${id}"), &facts, 0, "c1", "c1");
	expect_match(SCOPE("t", "a${id}b$$c${id}"), &facts, 0, "ac1b$cc1", "ac1b$cc1");
	expect_match(SCOPE("t", "$${id}"), &facts, 0, "${id}", "${id}");
	expect_match(SCOPE("t", "${uid}"), &facts, 0, "4294967295", "4294967295");
	expect_match(SCOPE("t", "${image}${cgroup}"), &facts, 0, "img:1/x", "img:1%2Fx");
	expect_match(SCOPE("t", "${annotation:io.kubernetes.pod.namespace}"), &facts, 0, "pay", "pay");
}

static void test_tenant_cannot_be_told(void **state)
{
	static const struct {
		const char *value, *message;
	} cases[] = {
		{ NULL, "p.json:1:137: rules[0].tenant: container c1 has no annotation k, so its tenant cannot be "
			"told; add a "
			"condition for it, or a rule before this one" },
		{ "", "p.json:1:137: rules[0].tenant: container c1: annotation k is empty" },
		{ "a\nb",
		  "p.json:1:137: rules[0].tenant: container c1: annotation k holds control characters or invalid "
		  "UTF-8" },
		{ "a\x7f",
		  "p.json:1:137: rules[0].tenant: container c1: annotation k holds control characters or invalid "
		  "UTF-8" },
		{ "a\xc2\x9b",
		  "p.json:1:137: rules[0].tenant: container c1: annotation k holds control characters or invalid "
		  "UTF-8" },
#define HIDDEN(bytes, code) \
	{ bytes, "p.json:1:137: rules[0].tenant: container c1: annotation k holds " code \
		 ", which does not show, so that two tenants could look alike" }
		HIDDEN("a\xe2\x80\x8b", "U+200B"),
		HIDDEN("\xef\xbb\xbf" "a", "U+FEFF"),
		HIDDEN("a\xc2\xa0" "b", "U+00A0"),
		HIDDEN("a\xc2\xad", "U+00AD"),
		HIDDEN("a\xe3\x80\x80", "U+3000"),
		HIDDEN("a\xe2\x80\xae", "U+202E"),
		HIDDEN("a\xf3\xa0\x81\x81", "U+E0041"),
		HIDDEN("\xff\xe2\x81\xa0", "U+2060"),
		{ "a  b", "p.json:1:137: rules[0].tenant: container c1: the tenant \"x-a  b\" begins or ends with a space or "
			  "holds two in a row, so that two tenants could look alike" },
		{ "\xff",
		  "p.json:1:137: rules[0].tenant: container c1: annotation k holds control characters or invalid "
		  "UTF-8" },
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct oci_annotation item = { "k", cases[i].value };
		const struct oci_annotations annotations = { &item, cases[i].value ? 1 : 0 };

		expect_none(SCOPE("t", "x-${annotation:k}"),
			    &(struct match_facts){ .id = "c1", .annotations = &annotations }, -EINVAL,
			    cases[i].message);
	}
	expect_none(SCOPE("t", "${uid}"), &(struct match_facts){ .id = "c1" }, -EINVAL,
		    "p.json:1:137: rules[0].tenant: container c1 has no ${uid}, so its tenant cannot be told; add a "
		    "condition "
		    "for it, or a rule before this one");
}

static void test_tenant_length(void **state)
{
	char value[TENANT_MAX + 1] = { 0 }, whole[TENANT_MAX + 1] = { 0 };
	struct oci_annotation item = { "k", value };
	const struct oci_annotations annotations = { &item, 1 };
	const struct match_facts facts = { .id = "c1", .annotations = &annotations };

	(void) state;
	memset(value, 'v', TENANT_MAX - 1);
	memset(whole, 'v', TENANT_MAX);
	whole[0] = 'x';
	expect_match(SCOPE("t", "x${annotation:k}"), &facts, 0, whole, whole);
	value[TENANT_MAX - 1] = 'v';
	expect_none(
		SCOPE("t", "x${annotation:k}"), &facts, -EINVAL,
		"p.json:1:137: rules[0].tenant: container c1: with annotation k the tenant's name is longer than 255 "
		"bytes");
}

/* ---- groups ---- */

static void test_groups(void **state)
{
	static struct oci_annotation containerd[] = { { "io.kubernetes.cri.sandbox-id", "pod1" } };
	static struct oci_annotation crio[] = { { "io.kubernetes.cri-o.ContainerID", "c1" },
						{ "io.kubernetes.cri-o.SandboxID", "pod2" } };
	static struct oci_annotation hidden[] = { { "io.kubernetes.cri.sandbox-id", "p\xe2\x80\x8b" } };
	const struct oci_annotations a = { containerd, 1 }, b = { crio, 2 }, c = { hidden, 1 };
	const struct match_facts odd = { .id = "c1", .annotations = &c };
	const struct match_facts plain = { .id = "c1" }, one = { .id = "c1", .annotations = &a },
				 two = { .id = "c1", .annotations = &b };

	(void) state;
	expect_match(SCOPE("t", "n"), &one, 0, "n", "n");
	expect_match(SCOPE("p", "n"), &one, 0, "n", "n/pod1");
	expect_match(SCOPE("p", "n"), &two, 0, "n", "n/pod2");
	expect_match(SCOPE("p", "n"), &plain, 0, "n", "n/c1");
	expect_match(SCOPE("c", "n"), &one, 0, "n", "n/c1");
	expect_none(SCOPE("p", "n"), &odd, -EINVAL,
		    "container c1: its pod's id \"p\\xe2\\x80\\x8b\" holds characters that do not show");
	/* No tenant's name can look like another's pod. */
	expect_match(SCOPE("t", "n/pod1"), &one, 0, "n/pod1", "n%2Fpod1");
	expect_match(SCOPE("t", "n%2Fpod1"), &one, 0, "n%2Fpod1", "n%252Fpod1");
	expect_none(SCOPE("c", "n"), &(struct match_facts){ .id = NULL }, -EINVAL,
		    "container (no id) has no id, which class c needs to tell it from others");
}

/* podman passes an image's annotations on. CRI-O's own container id is what no image can know. */
static void test_names_of_crio_that_an_image_brings(void **state)
{
	static const char policy[] =
		"{\"version\":1,\"classes\":{\"a\":{},\"p\":{\"isolation\":{\"scope\":\"pod\"}}},\"rules\":["
		"{\"match\":{\"annotation\":{\"io.kubernetes.pod.namespace\":\"kube-system\"}},\"tenant\":\"infra\",\"class\":\"a\"},"
		"{\"match\":{\"annotation\":{\"io.kubernetes.pod.uid\":\"*\"}},"
		"\"tenant\":\"${annotation:io.kubernetes.pod.uid}\",\"class\":\"p\",\"trust\":true},"
		"{\"match\":{},\"tenant\":\"rest\",\"class\":\"p\"}]}";
	static struct oci_annotation image[] = { { "io.kubernetes.cri-o.SandboxID", "pod" },
						 { "io.kubernetes.pod.namespace", "kube-system" } };
	static struct oci_annotation guessed[] = { { "io.kubernetes.cri-o.ContainerID", "c2" },
						   { "io.kubernetes.pod.namespace", "kube-system" } };
	static struct oci_annotation crio[] = { { "io.kubernetes.cri-o.ContainerID", "c1" },
						{ "io.kubernetes.pod.namespace", "kube-system" } };
	static struct oci_annotation trusted[] = { { "io.kubernetes.cri-o.SandboxID", "pod" },
						   { "io.kubernetes.pod.uid", "u" } };
	const struct oci_annotations a = { image, 2 }, b = { guessed, 2 }, c = { crio, 2 }, d = { trusted, 2 };

	(void) state;
	expect_match(policy, &(struct match_facts){ .id = "c1", .annotations = &a }, 2, "rest", "rest/c1");
	expect_match(policy, &(struct match_facts){ .id = "c1", .annotations = &b }, 2, "rest", "rest/c1");
	expect_match(policy, &(struct match_facts){ .id = "c1", .annotations = &c }, 0, "infra", "infra");
	expect_match(policy, &(struct match_facts){ .id = "c1", .annotations = &d }, 1, "u", "u/pod");
	/* A template cannot be filled with it either. */
	expect_none("{\"version\":1,\"classes\":{\"a\":{}},\"rules\":["
		    "{\"match\":{},\"tenant\":\"${annotation:io.kubernetes.pod.namespace}\",\"class\":\"a\"}]}",
		    &(struct match_facts){ .id = "c1", .annotations = &a }, -EINVAL,
		    "p.json:1:63: rules[0].tenant: container c1 has no annotation io.kubernetes.pod.namespace, so its "
		    "tenant cannot be told; add a condition for it, or a rule before this one");
}

static void test_two_runtimes_at_once(void **state)
{
	static struct oci_annotation forged[] = { { "io.kubernetes.cri.sandbox-namespace", "kube-system" },
						  { "io.kubernetes.pod.namespace", "evil" } };
	const struct oci_annotations annotations = { forged, 2 };

	(void) state;
	expect_none(
		SCOPE("t", "x"), &(struct match_facts){ .id = "c1", .annotations = &annotations }, -EINVAL,
		"container c1 carries both io.kubernetes.cri.sandbox-namespace, which containerd writes, and "
		"io.kubernetes.pod.namespace, which CRI-O and the kubelet write: one of them is forged; remove it from "
		"the pod's annotations");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_glob_is_not_exponential),
		cmocka_unit_test(test_every_fact),
		cmocka_unit_test(test_all_conditions_must_hold),
		cmocka_unit_test(test_hostile_id_is_shown_safely),
		cmocka_unit_test(test_templates),
		cmocka_unit_test(test_tenant_cannot_be_told),
		cmocka_unit_test(test_tenant_length),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_names_of_crio_that_an_image_brings),
		cmocka_unit_test(test_two_runtimes_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
