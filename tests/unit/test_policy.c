#include "policy.h"
#include "topology.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define CLASSES "\"classes\":{\"web\":{}}"
#define RULES "\"rules\":[{\"match\":{},\"tenant\":\"${id}\",\"class\":\"web\"}]"
#define WHOLE "{\"version\":1," CLASSES "," RULES "}"
/* A whole policy around the members of its class, of its node, of its only rule, and around a tenant. */
#define CLASS(members) "{\"version\":1,\"classes\":{\"web\":{" members "}}," RULES "}"
#define NODE(members) "{\"version\":1,\"node\":{" members "}," CLASSES "," RULES "}"
#define RULE(members) "{\"version\":1," CLASSES ",\"rules\":[{" members ",\"class\":\"web\"}]}"
#define MATCH(members) RULE("\"match\":{" members "},\"tenant\":\"x\"")
#define TENANT(tenant) RULE("\"match\":{},\"tenant\":\"" tenant "\"")

static int parse_two(const char *text, const char *drop_in, struct policy **ret, struct error *err)
{
	const struct policy_source sources[] = {
		{ "p.json", text, strlen(text) },
		{ "d.json", drop_in ? drop_in : "", drop_in ? strlen(drop_in) : 0 },
	};

	return policy_parse(sources, drop_in ? 2 : 1, ret, err);
}

static struct policy *parse_ok(const char *text, const char *drop_in)
{
	cleanup_error struct error err = { 0 };
	struct policy *p = NULL;

	if (parse_two(text, drop_in, &p, &err) != 0)
		fail_msg("%s\nwas refused: %s", text, error_text(&err));
	assert_null(err.text);
	return p;
}

static void expect_refused(const char *text, const char *drop_in, int code, const char *message)
{
	cleanup_error struct error err = { 0 };
	cleanup_policy struct policy *p = NULL;
	int r = parse_two(text, drop_in, &p, &err);

	if (r != code || strcmp(error_text(&err), message) != 0)
		fail_msg("%s\n%s\ngot  %d %s\nwant %d %s", text, drop_in ? drop_in : "", r, error_text(&err), code,
			 message);
	assert_null(p);
}

static const struct {
	const char *text, *message;
} refused[] = {
	{ "", "p.json:1:1: empty: a JSON document is expected" },
	{ "[]", "p.json:1:1: the document: found an empty array, expected an object" },
	{ "{}", "p.json:1:1: the document: key \"version\" is missing" },
	{ "{\"version\":2}", "p.json:1:12: version: found 2, expected the number 1" },
	{ "{\"version\":1,\n \"ruls\":[]}",
	  "p.json:2:2: ruls: unknown key \"ruls\"; known here: $schema, version, node, classes, rules, on_error "
	  "(did you mean \"rules\"?)" },
	{ "{\"version\":1,\"x\x1b[2Jy\":1}", NULL }, /* json.c's own message */
	{ "{\"version\":1,\"\\u001b\":1}", "p.json:1:14: [\"\\x1b\"]: unknown key \"\\x1b\"; known here: $schema, "
					   "version, node, classes, rules, on_error" },
	{ "{\"version\":1," CLASSES ",\"rules\":[]}", "p.json:1:1: the document: there is no rule, so no container "
						      "could start; a last rule with \"match\": {} is for "
						      "all others" },
	{ "{\"version\":1," RULES "}",
	  "p.json:1:1: the document: no class is defined; a policy needs at least one in \"classes\"" },
	{ "{\"version\":1,\"classes\":[],\"rules\":[]}",
	  "p.json:1:24: classes: found an empty array, expected an object of classes by name" },
	{ "{\"version\":1,\"classes\":{\"a b\":{}}}",
	  "p.json:1:25: classes[\"a b\"]: a class's name has 1 to 64 letters, digits and any of \"._-\"" },

	{ CLASS("\"isolaton\":{}"),
	  "p.json:1:32: classes.web.isolaton: unknown key \"isolaton\"; known here: isolation, cpu, memory, rebalance, "
	  "on_error (did you mean \"isolation\"?)" },
	{ CLASS("\"isolation\":{\"mode\":\"coookie\"}"),
	  "p.json:1:52: classes.web.isolation.mode: found \"coookie\", expected one of: cookie, cores, auto, none "
	  "(did you mean \"cookie\"?)" },
	{ CLASS("\"isolation\":{\"mode\":3}"),
	  "p.json:1:52: classes.web.isolation.mode: found 3, expected one of: cookie, cores, auto, none" },
	{ CLASS("\"isolation\":{\"guard\":[\"cokie\"]}"),
	  "p.json:1:54: classes.web.isolation.guard[0]: found \"cokie\", expected true, false, or an array of: cookie, "
	  "memory, affinity (did you mean \"cookie\"?)" },
	{ CLASS("\"isolation\":{\"guard\":1}"),
	  "p.json:1:53: classes.web.isolation.guard: found 1, expected true, false, or an array of: cookie, memory, "
	  "affinity" },
	{ CLASS("\"cpu\":{\"exclusive\":\"yes\"}"),
	  "p.json:1:51: classes.web.cpu.exclusive: found \"yes\", expected true or false" },
	{ CLASS("\"cpu\":{\"count\":0}"),
	  "p.json:1:47: classes.web.cpu.count: found 0, expected a number from 0.001 to 4096" },
	{ CLASS("\"cpu\":{\"count\":4096.5}"),
	  "p.json:1:47: classes.web.cpu.count: found 4096.5, expected a number from 0.001 to 4096" },
	{ CLASS("\"cpu\":{\"level\":\"llc\"}"),
	  "p.json:1:39: classes.web.cpu.level: is for placement spread only; cpu.placement is auto" },
	{ CLASS("\"rebalance\":{\"min_gain\":2}"),
	  "p.json:1:56: classes.web.rebalance.min_gain: found 2, expected a number from 0 to 1" },
	{ CLASS("\"rebalance\":{\"min_dwell\":\"60s\"}"),
	  "p.json:1:57: classes.web.rebalance.min_dwell: found \"60s\", expected a whole number from 0 to 86400" },
	{ CLASS("\"rebalance\":{\"max_moves_per_minute\":0}"),
	  "p.json:1:68: classes.web.rebalance.max_moves_per_minute: found 0, expected a whole number from 1 to 1000" },
	{ CLASS("\"memory\":{\"tiers\":[\"dram\"]}"),
	  "p.json:1:42: classes.web.memory.tiers: memory policy inherit takes no nodes; set memory.policy to bind, "
	  "preferred, interleave or weighted-interleave" },
	{ CLASS("\"memory\":{\"policy\":\"local\",\"nodes\":\"0\"}"),
	  "p.json:1:59: classes.web.memory.nodes: memory policy local takes no nodes; set memory.policy to bind, "
	  "preferred, interleave or weighted-interleave" },
	{ CLASS("\"memory\":{\"policy\":\"bind\",\"weights\":{\"dram\":1}}"),
	  "p.json:1:58: classes.web.memory.weights: memory policy bind takes no weights; set memory.policy to "
	  "weighted-interleave" },
	{ CLASS("\"memory\":{\"policy\":\"bind\",\"tiers\":[\"dram\"],\"nodes\":\"0\"}"),
	  "p.json:1:75: classes.web.memory.nodes: memory.tiers names the nodes already; keep one of the two" },
	{ CLASS("\"memory\":{\"policy\":\"bind\",\"tiers\":[\"cxl\",\"cxl\"]}"),
	  "p.json:1:73: classes.web.memory.tiers[1]: \"cxl\" is named twice" },
	{ CLASS("\"memory\":{\"policy\":\"bind\",\"nodes\":\"\"}"),
	  "p.json:1:66: classes.web.memory.nodes: found \"\", expected a list of NUMA nodes such as \"0,2-3\"" },
	{ CLASS("\"memory\":{\"policy\":\"weighted-interleave\",\"weights\":{\"cxl\":1}}"),
	  "p.json:1:84: classes.web.memory.weights.cxl: tier cxl is not one of this class's memory.tiers" },
	{ CLASS("\"memory\":{\"policy\":\"weighted-interleave\",\"nodes\":\"0-1\",\"weights\":{\"0\":3,\"2\":1}}"),
	  "p.json:1:104: classes.web.memory.weights.2: node 2 is not one of this class's memory.nodes" },

	{ NODE("\"weights\":{\"dram\":0}"),
	  "p.json:1:40: node.weights.dram: found 0, expected a weight from 1 to 255" },
	{ NODE("\"weights\":{\"dram\":256}"),
	  "p.json:1:40: node.weights.dram: found 256, expected a weight from 1 to 255" },
	{ NODE("\"weights\":{\"dram\":5,\"2\":1}"),
	  "p.json:1:42: node.weights.2: weights are either all by tier or all by node number" },
	{ NODE("\"weights\":{\"64\":1}"), "p.json:1:33: node.weights.64: \"64\" is neither a memory tier (dram, hbm, "
					  "cxl, pmem) nor a node number up to 63" },
	{ NODE("\"weights\":{\"drm\":1}"), "p.json:1:33: node.weights.drm: \"drm\" is neither a memory tier (dram, "
					   "hbm, cxl, pmem) nor a node number up to "
					   "63; did you mean \"dram\"?" },
	{ NODE("\"weights\":{\"01\":1}"), "p.json:1:33: node.weights.01: \"01\" is neither a memory tier (dram, hbm, "
					  "cxl, pmem) nor a node number up to 63" },
	{ NODE("\"weights\":{\"18446744073709551616\":1}"),
	  "p.json:1:33: node.weights.18446744073709551616: \"18446744073709551616\" is neither a memory tier (dram, "
	  "hbm, cxl, "
	  "pmem) nor a node number up to 63" },
	{ NODE("\"weights\":\"autoo\""), "p.json:1:32: node.weights: found \"autoo\", expected one of: keep, auto; or "
					 "an object of weights by tier or by "
					 "node number (did you mean \"auto\"?)" },
	{ NODE("\"weights\":{}"), "p.json:1:32: node.weights: found an empty object, expected one of: keep, auto; or "
				  "an object of weights by tier "
				  "or by node number" },
	{ NODE("\"reserved_cpus\":\"3-1\""),
	  "p.json:1:38: node.reserved_cpus: found \"3-1\", expected a list of CPUs such as \"0-3,8\"" },
	{ NODE("\"reserved_cpus\":\"5000\""),
	  "p.json:1:38: node.reserved_cpus: \"5000\" names a CPU above 4095, the highest that is supported" },
	{ NODE("\"tiers\":{\"cxl\":\"2\",\"hbm\":\"1-2\"}"),
	  "p.json:1:37: node.tiers.cxl: node 2 is in tier hbm already" },
	{ NODE("\"tiers\":{\"cxl\":\"64\"}"),
	  "p.json:1:37: node.tiers.cxl: \"64\" names a node above 63, the highest that is supported" },

	{ RULE("\"match\":{}"), "p.json:1:44: rules[0]: key \"tenant\" is missing" },
	{ RULE("\"tenant\":\"x\""), "p.json:1:44: rules[0]: key \"match\" is missing" },
	{ MATCH("\"id\":{\"regx\":\"a\"}"),
	  "p.json:1:59: rules[0].match.id: found an object, expected a string (* stands for any text) or "
	  "{\"regex\": \"...\"}" },
	{ MATCH("\"id\":\"a\\\\b\""), "p.json:1:59: rules[0].match.id: a backslash may only stand before * or another "
				      "backslash; for more than globs "
				      "use {\"regex\": \"...\"}" },
	{ MATCH("\"annotation\":{\"k\":1}"),
	  "p.json:1:72: rules[0].match.annotation.k: found 1, expected a string (* stands for any text) or "
	  "{\"regex\": \"...\"}" },
	{ MATCH("\"uid\":{\"min\":5,\"max\":4}"), "p.json:1:60: rules[0].match.uid: min 5 is above max 4" },
	{ MATCH("\"uid\":{\"max\":4294967296}"),
	  "p.json:1:67: rules[0].match.uid.max: found 4294967296, expected a whole number from 0 to 4294967295" },
	{ MATCH("\"imge\":\"x\""), "p.json:1:54: rules[0].match.imge: unknown key \"imge\"; known here: annotation, "
				   "id, cgroup, image, stage, uid "
				   "(did you mean \"image\"?)" },
	{ TENANT(""), "p.json:1:65: rules[0].tenant: a tenant has 1 to 4096 bytes, this has 0" },
	{ TENANT("${idd}"),
	  "p.json:1:65: rules[0].tenant: \"${idd}\": unknown variable; known are: ${id}, ${annotation:KEY}, ${cgroup}, "
	  "${image}, ${uid}" },
	{ TENANT("${annotation:}"),
	  "p.json:1:65: rules[0].tenant: \"${annotation:}\": unknown variable; known are: ${id}, ${annotation:KEY}, "
	  "${cgroup}, ${image}, ${uid}" },
	{ TENANT("a-${id"), "p.json:1:65: rules[0].tenant: \"${id\": the brace is not closed" },
	{ TENANT("a$b"), "p.json:1:65: rules[0].tenant: \"$b\": a lone $; write $$ for a dollar" },
	{ TENANT("a\\u200b"), "p.json:1:65: rules[0].tenant: U+200B is not allowed in a tenant's name: it does not show, so "
			      "that two names could look alike" },
	{ TENANT("${id}\\udb40\\udc41"), "p.json:1:65: rules[0].tenant: U+E0041 is not allowed in a tenant's name: it does "
					 "not show, so that two names could look alike" },
	{ TENANT("a "), "p.json:1:65: rules[0].tenant: a tenant's name must not begin or end with a space or hold two in "
			"a row, so that no two look alike" },
	{ "{\"version\":1,\"classes\":{\"we\\u00adb\":{}},\"rules\":[]}",
	  "p.json:1:25: classes[\"we\\xc2\\xadb\"]: U+00AD is not allowed in a class's name: it does not show, so that two "
	  "names could look alike" },
	{ TENANT("a\\u0007"), "p.json:1:65: rules[0].tenant: control characters are not allowed in a tenant's name" },
	{ "{\"version\":1," CLASSES ",\"rules\":[{\"match\":{},\"tenant\":\"x\",\"class\":\"wbe\"}]}",
	  "p.json:1:77: rules[0].class: there is no class \"wbe\"; defined are: web (did you mean \"web\"?)" },
};

static void test_refused(void **state)
{
	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		cleanup_error struct error err = { 0 };
		cleanup_policy struct policy *p = NULL;

		if (refused[i].message) {
			expect_refused(refused[i].text, NULL, -EINVAL, refused[i].message);
			continue;
		}
		assert_int_equal(parse_two(refused[i].text, NULL, &p, &err), -EINVAL);
		assert_null(strchr(error_text(&err), '\x1b'));
	}
}

/* What json.c refuses comes through with the file's name and place. */
static void test_refused_documents(void **state)
{
	static const char *const texts[] = {
		"{",
		"{\"version\":1,}",
		"{\"version\":1,\"version\":1}",
		WHOLE WHOLE,
		"{\"version\":1,\"x\":\"\xff\"}",
		"{\"version\":1,\"x\":\"a\\u0000b\"}",
		"/* no end",
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		cleanup_error struct error err = { 0 };
		cleanup_policy struct policy *p = NULL;

		assert_int_equal(parse_two(texts[i], NULL, &p, &err), -EINVAL);
		assert_true(str_starts(error_text(&err), "p.json:1:"));
		assert_null(p);
	}
}

static void test_limits(void **state)
{
	enum { DEPTH = 10000, BIG = POLICY_MAX + 1 };
	cleanup_free char *deep = malloc(DEPTH + 1), *big = malloc(BIG + 1);

	(void) state;
	memset(deep, '[', DEPTH);
	deep[DEPTH] = '\0';
	memset(big, ' ', BIG);
	big[BIG] = '\0';
	for (size_t i = 0; i < 2; i++) {
		cleanup_error struct error err = { 0 };
		cleanup_policy struct policy *p = NULL;

		assert_int_equal(parse_two(i ? big : deep, NULL, &p, &err), -E2BIG);
		assert_true(str_starts(error_text(&err), "p.json:"));
	}
}

static void test_too_many_rules(void **state)
{
	static const char head[] = "{\"version\":1," CLASSES ",\"rules\":[", item[] = "{},";
	enum { COUNT = 4097 };
	cleanup_free char *text = malloc(sizeof(head) + COUNT * sizeof(item) + sizeof("]}"));
	char *at = text;

	(void) state;
	at = (char *) memcpy(at, head, strlen(head)) + strlen(head);
	for (int i = 0; i < COUNT; i++)
		at = (char *) memcpy(at, item, strlen(item)) + strlen(item);
	memcpy(at - 1, "]}", sizeof("]}"));
	expect_refused(text, NULL, -E2BIG,
		       "p.json and its drop-ins: 1 classes and 4097 rules; at most 256 and 4096 are supported");
}

static void test_defaults(void **state)
{
	cleanup_policy struct policy *p = parse_ok(WHOLE, NULL);
	const struct policy_class *c = p->classes[0];

	(void) state;
	assert_int_equal(p->n_classes, 1);
	assert_int_equal(p->n_rules, 1);
	assert_int_equal(p->on_error, ON_ERROR_REFUSE);
	assert_int_equal(p->node.weights_mode, WEIGHTS_KEEP);
	assert_true(mask_empty(&p->node.reserved));
	assert_false(p->node.confine_unmanaged);
	assert_string_equal(c->name, "web");
	assert_int_equal(c->isolation.mode, ISOLATION_COOKIE);
	assert_int_equal(c->isolation.scope, SCOPE_TENANT);
	assert_int_equal(c->isolation.on_unsupported, UNSUPPORTED_REFUSE);
	assert_int_equal(c->isolation.guard, GUARD_COOKIE);
	assert_int_equal(c->isolation.exec, EXEC_GATE);
	assert_int_equal(c->cpu.span, SPAN_NODE);
	assert_int_equal(c->cpu.placement, PLACEMENT_AUTO);
	assert_int_equal(c->cpu.level, LEVEL_LLC);
	assert_false(c->cpu.exclusive);
	assert_int_equal(c->cpu.smt, SMT_USE);
	assert_int_equal(c->cpu.count_mcpu, 0);
	assert_int_equal(c->memory.policy, MEMORY_INHERIT);
	assert_int_equal(c->memory.n_tiers, 0);
	assert_true(c->memory.nodes == 0);
	assert_false(c->memory.has_weights);
	assert_false(c->memory.migrate);
	assert_true(c->rebalance.enabled);
	assert_int_equal(c->rebalance.min_dwell_s, 60);
	assert_int_equal(c->rebalance.max_moves_per_minute, 6);
	assert_float_equal(c->rebalance.min_gain, 0.05, 1e-9);
	assert_int_equal(c->on_error, ON_ERROR_REFUSE);
	assert_false(p->rules[0].trust);
	assert_ptr_equal(p->rules[0].class, c);
	assert_int_equal(p->n_warnings, 0);
}

static void test_class_values(void **state)
{
	cleanup_policy struct policy *p = parse_ok(
		CLASS("\"isolation\":{\"mode\":\"cores\",\"scope\":\"pod\",\"on_unsupported\":\"degrade\","
		      "\"guard\":[\"memory\",\"affinity\"],\"exec\":\"poll\"},"
		      "\"cpu\":{\"span\":\"machine\",\"placement\":\"spread\",\"level\":\"core\",\"exclusive\":true,"
		      "\"smt\":\"leave-idle\",\"count\":0.5},"
		      "\"memory\":{\"policy\":\"weighted-interleave\",\"tiers\":[\"cxl\",\"dram\"],"
		      "\"weights\":{\"dram\":5,\"cxl\":255},\"migrate\":true},"
		      "\"rebalance\":{\"enabled\":false,\"min_dwell\":0,\"max_moves_per_minute\":1000,\"min_gain\":1},"
		      "\"on_error\":\"admit\""),
		NULL);
	const struct policy_class *c = p->classes[0];

	(void) state;
	assert_int_equal(c->isolation.mode, ISOLATION_CORES);
	assert_int_equal(c->isolation.scope, SCOPE_POD);
	assert_int_equal(c->isolation.on_unsupported, UNSUPPORTED_DEGRADE);
	assert_int_equal(c->isolation.guard, GUARD_MEMORY | GUARD_AFFINITY);
	assert_int_equal(c->isolation.exec, EXEC_POLL);
	assert_int_equal(c->cpu.span, SPAN_MACHINE);
	assert_int_equal(c->cpu.placement, PLACEMENT_SPREAD);
	assert_int_equal(c->cpu.level, LEVEL_CORE);
	assert_true(c->cpu.exclusive);
	assert_int_equal(c->cpu.smt, SMT_LEAVE_IDLE);
	assert_int_equal(c->cpu.count_mcpu, 500);
	assert_int_equal(c->memory.policy, MEMORY_WEIGHTED);
	assert_int_equal(c->memory.n_tiers, 2);
	assert_int_equal(c->memory.tiers[0], TIER_CXL);
	assert_int_equal(c->memory.tiers[1], TIER_DRAM);
	assert_true(c->memory.has_weights);
	assert_false(c->memory.weights.by_node);
	assert_int_equal(c->memory.weights.tier[TIER_DRAM], 5);
	assert_int_equal(c->memory.weights.tier[TIER_CXL], 255);
	assert_true(c->memory.migrate);
	assert_false(c->rebalance.enabled);
	assert_int_equal(c->rebalance.min_dwell_s, 0);
	assert_int_equal(c->rebalance.max_moves_per_minute, 1000);
	assert_float_equal(c->rebalance.min_gain, 1, 1e-9);
	assert_int_equal(c->on_error, ON_ERROR_ADMIT);
}

static void test_node_values(void **state)
{
	cleanup_policy struct policy *p =
		parse_ok("// comment\n" NODE("\"reserved_cpus\":\"0,64\", /* two */ \"weights\":{\"0\":5,\"63\":1},"
					     "\"confine_unmanaged\":true,\"tiers\":{\"cxl\":\"2-3\",\"hbm\":\"4\"}"),
			 NULL);

	(void) state;
	assert_int_equal(mask_weight(&p->node.reserved), 2);
	assert_true(mask_test(&p->node.reserved, 64));
	assert_int_equal(p->node.weights_mode, WEIGHTS_FIXED);
	assert_true(p->node.weights.by_node);
	assert_int_equal(p->node.weights.node[0], 5);
	assert_int_equal(p->node.weights.node[63], 1);
	assert_true(p->node.confine_unmanaged);
	assert_true(p->node.tiers[TIER_CXL] == 0xc);
	assert_true(p->node.tiers[TIER_HBM] == 0x10);
}

static void test_defaults_that_depend(void **state)
{
	static const struct {
		const char *text;
		unsigned guard;
		size_t n_tiers;
	} cases[] = {
		{ CLASS("\"isolation\":{\"mode\":\"none\"}"), 0, 0 },
		{ CLASS("\"isolation\":{\"mode\":\"none\",\"guard\":true}"), GUARD_COOKIE, 0 },
		{ CLASS("\"isolation\":{\"mode\":\"cores\"}"), GUARD_COOKIE, 0 },
		{ CLASS("\"isolation\":{\"mode\":\"auto\"}"), GUARD_COOKIE, 0 },
		{ CLASS("\"isolation\":{\"guard\":false}"), 0, 0 },
		{ CLASS("\"isolation\":{\"guard\":[]}"), 0, 0 },
		{ CLASS("\"memory\":{\"policy\":\"bind\"}"), GUARD_COOKIE, 1 },
		{ CLASS("\"memory\":{\"policy\":\"bind\",\"nodes\":\"1\"}"), GUARD_COOKIE, 0 },
		{ CLASS("\"memory\":{\"policy\":\"local\"}"), GUARD_COOKIE, 0 },
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		cleanup_policy struct policy *p = parse_ok(cases[i].text, NULL);

		assert_int_equal(p->classes[0]->isolation.guard, cases[i].guard);
		assert_int_equal(p->classes[0]->memory.n_tiers, cases[i].n_tiers);
		if (cases[i].n_tiers)
			assert_int_equal(p->classes[0]->memory.tiers[0], TIER_DRAM);
	}
}

/* ---- drop-ins ---- */

static void test_drop_ins(void **state)
{
	cleanup_policy struct policy *p =
		parse_ok("{\"version\":1,\"$schema\":\"x\",\"on_error\":\"admit\",\"classes\":{\"web\":{}},\"rules\":["
			 "{\"match\":{\"id\":\"a\"},\"tenant\":\"x\",\"class\":\"later\"}]}",
			 "{\"version\":1,\"node\":{\"tiers\":{\"cxl\":\"2\"}},\"classes\":{\"later\":{\"on_error\":"
			 "\"refuse\"}}," RULES "}");

	(void) state;
	assert_int_equal(p->n_classes, 2);
	assert_int_equal(p->n_rules, 2);
	assert_ptr_equal(p->rules[0].class, p->classes[1]); /* defined in a later file */
	assert_ptr_equal(p->rules[1].class, p->classes[0]);
	assert_string_equal(p->rules[0].file, "p.json");
	assert_string_equal(p->rules[1].file, "d.json");
	assert_int_equal(p->classes[0]->on_error, ON_ERROR_ADMIT);
	assert_int_equal(p->classes[1]->on_error, ON_ERROR_REFUSE);
}

static void test_drop_ins_refused(void **state)
{
	(void) state;
	expect_refused(WHOLE, "{\"version\":1,\n\"classes\":{\"web\":{}}}", -EINVAL,
		       "d.json:2:12: classes.web: class \"web\" is defined twice; the first is at p.json:1:25");
	expect_refused(WHOLE, "{\"rules\":[]}", -EINVAL, "d.json:1:1: the document: key \"version\" is missing");
	expect_refused(NODE("\"weights\":\"auto\""), "{\"version\":1,\"node\":{\"weights\":\"auto\"}}", -EINVAL,
		       "d.json:1:22: node.weights: is set twice; the first is at p.json:1:22");
	expect_refused(NODE("\"tiers\":{\"cxl\":\"1\"}"), "{\"version\":1,\"node\":{\"tiers\":{\"cxl\":\"2\"}}}",
		       -EINVAL, "d.json:1:31: node.tiers.cxl: is set twice; the first is at p.json:1:31");
	expect_refused(NODE("\"tiers\":{\"cxl\":\"1\"}"), "{\"version\":1,\"node\":{\"tiers\":{\"hbm\":\"1\"}}}",
		       -EINVAL, "p.json:1:37: node.tiers.cxl: node 1 is in tier hbm already");
	expect_refused("{\"version\":1,\"on_error\":\"admit\"," CLASSES "," RULES "}",
		       "{\"version\":1,\"on_error\":\"admit\"}", -EINVAL,
		       "d.json:1:14: on_error: is set twice; the first is at p.json:1:14");
	expect_refused(WHOLE, "{\"version\":1,\"rules\":[{\"match\":{},\"tenant\":\"x\",\"class\":\"db\"}]}", -EINVAL,
		       "d.json:1:56: rules[0].class: there is no class \"db\"; defined are: web");
}

/* ---- trust, warnings ---- */

static void expect_warning(const char *text, const char *drop_in, const char *warning)
{
	cleanup_policy struct policy *p = parse_ok(text, drop_in);

	assert_int_equal(p->n_warnings, warning ? 1 : 0);
	if (warning)
		assert_string_equal(p->warnings[0], warning);
}

static void test_trust(void **state)
{
	static const char *const forged[] = {
		"com.example.tenant",
		"io.kubernetes.cri-o.Labels",
		"io.kubernetes.cri-o.Annotations",
		"io.kubernetes.cri-o.Metadata",
		"io.kubernetes.cri-o.Namespace", /* CRI-O writes it for sandboxes only */
		"io.kubernetes.cri.sandbox-namespace2",
		"io.podman.annotations.userns",
		"io.kubernetes.pod.name", /* alone: another namespace may have a pod of the same name */
		"io.kubernetes.cri.image-name",
	};
	static const char *const bound[] = {
		"io.kubernetes.cri.sandbox-namespace",
		"io.kubernetes.cri.sandbox-uid",
		"io.kubernetes.cri.sandbox-id",
		"io.kubernetes.pod.namespace",
		"io.kubernetes.pod.uid",
		"io.kubernetes.cri-o.SandboxID",
		"io.kubernetes.cri-o.ContainerID",
		"io.kubernetes.cri-o.Name",
		"io.kubernetes.cri-o.SandboxName",
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(forged); i++) {
		cleanup_arena struct arena a = { 0 };
		const char *why = arena_printf(
			&a,
			"p.json:1:65: rules[0].tenant: %s is chosen by whoever starts the container, who could thus "
			"join "
			"any tenant; use what the runtime writes, such as io.kubernetes.cri.sandbox-namespace or "
			"io.kubernetes.pod.namespace, or say \"trust\": true",
			forged[i]);
		const char *warning = arena_printf(&a,
						   "p.json:1:65: rules[0].tenant: %s is trusted, so whoever starts a "
						   "container chooses its tenant, "
						   "that of others included",
						   forged[i]);

		expect_refused(arena_printf(&a, TENANT("${annotation:%s}"), forged[i]), NULL, -EINVAL, why);
		expect_warning(arena_printf(&a, RULE("\"match\":{},\"tenant\":\"${annotation:%s}\",\"trust\":true"),
					    forged[i]),
			       NULL, warning);
	}
	for (size_t i = 0; i < ARRAY_LEN(bound); i++) {
		cleanup_arena struct arena a = { 0 };

		expect_warning(arena_printf(&a, TENANT("${annotation:%s}"), bound[i]), NULL, NULL);
	}
	expect_warning(TENANT("${annotation:io.kubernetes.pod.namespace}/${annotation:io.kubernetes.pod.name}"), NULL,
		       NULL);
	expect_warning(TENANT("${id}-${cgroup}-${uid}-${image}-$$"), NULL, NULL);
}

static void test_warnings(void **state)
{
	(void) state;
	expect_warning(
		MATCH("\"annotation\":{\"a.b\":\"c\"}"), NULL,
		"p.json:1:74: rules[0].match.annotation[\"a.b\"]: whoever starts a container can write a.b, and so "
		"choose this rule or avoid it");
	expect_warning(MATCH("\"annotation\":{\"io.kubernetes.pod.namespace\":\"c\"}"), NULL, NULL);
	expect_warning(WHOLE, "{\"version\":1," RULES "}",
		       "d.json:1:23: rules[0]: is never reached: the rule at p.json:1:44 matches every container");
}

static void test_digest(void **state)
{
	cleanup_policy struct policy *a = parse_ok(WHOLE, NULL), *b = parse_ok(WHOLE, NULL),
				     *c = parse_ok(WHOLE " ", NULL);
	cleanup_policy struct policy *d = parse_ok(WHOLE, "{\"version\":1}");

	(void) state;
	assert_int_equal(strlen(a->digest), 16);
	assert_int_equal(strspn(a->digest, "0123456789abcdef"), 16);
	assert_string_equal(a->digest, b->digest);
	assert_string_not_equal(a->digest, c->digest);
	assert_string_not_equal(a->digest, d->digest);
}

/* ---- the machine ---- */

static void test_machine(void **state)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{ WHOLE, NULL },
		{ NODE("\"reserved_cpus\":\"0-2,9\""), NULL },
		{ NODE("\"reserved_cpus\":\"0-7\""),
		  "p.json:1:38: node.reserved_cpus: leaves no CPU for containers: the machine's online CPUs are 0-3" },
		{ NODE("\"weights\":{\"0\":1,\"5\":1}"),
		  "p.json:1:32: node.weights: this machine has no NUMA node 5; it has: 0,2" },
		{ NODE("\"weights\":{\"dram\":1,\"pmem\":1}"), NULL },
		{ NODE("\"tiers\":{\"cxl\":\"2-3\"}"),
		  "p.json:1:37: node.tiers.cxl: this machine has no NUMA node 3; it has: 0,2" },
		{ CLASS("\"memory\":{\"policy\":\"bind\",\"nodes\":\"0-2\"}"),
		  "p.json:1:66: classes.web.memory.nodes: this machine has no NUMA node 1; it has: 0,2" },
		{ CLASS("\"memory\":{\"policy\":\"weighted-interleave\",\"weights\":{\"1\":3}}"),
		  "p.json:1:83: classes.web.memory.weights: this machine has no NUMA node 1; it has: 0,2" },
		{ CLASS("\"memory\":{\"policy\":\"bind\",\"tiers\":[\"pmem\"]}"), NULL },
	};
	struct topo_node nodes[] = { { .id = 0, .has_cpus = true }, { .id = 2 } };
	struct topology topo = { .nodes = nodes, .n_nodes = ARRAY_LEN(nodes), .online = { .w = { 0xf } } };

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		cleanup_policy struct policy *p = parse_ok(cases[i].text, NULL);
		cleanup_error struct error err = { 0 };

		assert_int_equal(policy_check_machine(p, &topo, &err), cases[i].message ? -EINVAL : 0);
		if (cases[i].message)
			assert_string_equal(error_text(&err), cases[i].message);
		else
			assert_null(err.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),     cmocka_unit_test(test_refused_documents),
		cmocka_unit_test(test_limits),      cmocka_unit_test(test_too_many_rules),
		cmocka_unit_test(test_defaults),    cmocka_unit_test(test_class_values),
		cmocka_unit_test(test_node_values), cmocka_unit_test(test_defaults_that_depend),
		cmocka_unit_test(test_drop_ins),    cmocka_unit_test(test_drop_ins_refused),
		cmocka_unit_test(test_trust),       cmocka_unit_test(test_warnings),
		cmocka_unit_test(test_digest),      cmocka_unit_test(test_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
