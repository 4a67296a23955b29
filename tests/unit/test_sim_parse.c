/* Scenarios: what is read of them, and word for word what is said of bad ones. */
#include "machine.h"
#include "sim.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#define POLICY \
	"{\"version\":1,\"classes\":{\"web\":{}},\"rules\":[{\"match\":{},\"tenant\":\"${id}\",\"class\":\"web\"}]}"
#define HEAD "{\"topology\":{\"synthetic\":\"core:2 pu:2\"},\"policy\":\"p.json\",\n"
#define EVENTS(list) HEAD "\"events\":[" list "]}"
#define MACHINE(members) HEAD "\"machine\":{" members "},\"events\":[" A "]}"
#define A "{\"at\":1,\"arrive\":\"a\",\"cpus\":1}"

static void read_whole(void **state)
{
	static const char text[] =
		"// two tenants\n"
		"{\"name\":\"two\", \"topology\":{\"xml\":\"m.xml\"}, \"policy\":\"p.json\",\n"
		" \"machine\":{\"smt_gain\":0.2,\"llc_bandwidth\":36,\"link_bandwidth\":50,\n"
		"  \"nodes\":{\"2\":{\"memory\":\"96GiB\",\"bandwidth\":56.5,\"latency\":250,\"tier\":\"cxl\"}}},\n"
		" \"strategies\":[\"none\",\"hard-bind\"], \"until\":60, \"rebalance\":2.5,\n"
		" \"events\":[\n"
		"  {\"at\":0,\"arrive\":\"a\",\"tenant\":\"acme\",\"class\":\"web\",\"cpus\":4,\"threads\":8,\n"
		"   \"memory\":\"4GiB\",\"traffic\":2.5,\"sensitivity\":0.3,\"switching\":0.1,\"limit\":true,\n"
		"   \"bind\":\"0-3\",\"annotations\":{\"b\":\"2\",\"a\":\"1\"}},\n"
		"  {\"at\":1.5,\"load\":\"a\",\"cpus\":2}, {\"at\":2,\"leave\":\"a\"},\n"
		"  {\"at\":2,\"arrive\":\"a\",\"cpus\":1,\"memory\":4096}]}";
	cleanup_sim_scenario struct sim_scenario *s = NULL;
	cleanup_error struct error err = { 0 };
	const struct sim_container *c;
	struct mask bind = cpus_of("0-3");

	(void) state;
	if (sim_parse("s.json", text, strlen(text), &s, &err) < 0)
		fail_msg("%s", error_text(&err));
	assert_string_equal(s->name, "two");
	assert_int_equal(s->topology_kind, SIM_TOPOLOGY_XML);
	assert_string_equal(s->topology, "m.xml");
	assert_string_equal(s->policy_file, "p.json");
	assert_null(s->policy_text);
	assert_float_equal(s->model.smt_gain, 0.2, 0);
	assert_float_equal(s->model.link_bandwidth, 50, 0);
	assert_true(s->nodes[2].given && s->nodes[2].has_tier && !s->nodes[0].given);
	assert_int_equal(s->nodes[2].tier, TIER_CXL);
	assert_true(s->nodes[2].memory == UINT64_C(96) << 30);
	assert_true(s->strategies[SIM_NONE] && s->strategies[SIM_HARD_BIND] && !s->strategies[SIM_ENGINE]);
	assert_float_equal(s->until, 60, 0);
	assert_float_equal(s->rebalance, 2.5, 0);
	assert_int_equal(s->n_containers, 2);
	assert_int_equal(s->n_events, 4);
	c = &s->containers[0];
	assert_string_equal(c->tenant, "acme");
	assert_string_equal(c->class, "web");
	assert_float_equal(c->cpus, 4, 0);
	assert_float_equal(c->threads, 8, 0);
	assert_true(c->memory == UINT64_C(4) << 30);
	assert_float_equal(c->switching, 0.1, 0);
	assert_true(c->limit && c->has_bind && mask_equal(&c->bind, &bind));
	assert_string_equal(oci_annotation(&c->annotations, "a"), "1");
	assert_int_equal(s->events[1].kind, SIM_LOAD);
	assert_float_equal(s->events[1].cpus, 2, 0);
	assert_int_equal(s->events[2].kind, SIM_LEAVE);
	assert_int_equal(s->events[3].container, 1);
	assert_true(s->containers[1].memory == 4096 && !s->containers[1].tenant);
}

static const struct {
	const char *text, *message;
} refused[] = {
	{ "", "s.json:1:1: empty: a JSON document is expected" },
	{ "[]", "s.json:1:1: the document: found an empty array, expected an object" },
	{ "{\"policy\":\"p\",\"events\":[" A "]}", "s.json:1:1: the document: key \"topology\" is missing" },
	{ "{\"topology\":{\"xml\":\"m\"},\"events\":[" A "]}", "s.json:1:1: the document: key \"policy\" is missing" },
	{ "{\"topology\":{\"xml\":\"m\"},\"policy\":\"p\"}", "s.json:1:1: the document: key \"events\" is missing" },
	{ "{\"topolgy\":1}", "s.json:1:2: topolgy: unknown key \"topolgy\"; known here: $schema, name, topology, "
			     "machine, policy, strategies, until, rebalance, events (did you mean \"topology\"?)" },
	{ "{\"topology\":\"m.xml\"}", "s.json:1:13: topology: found \"m.xml\", expected an object with one of: xml (a "
				      "file), synthetic (a description), root (a directory)" },
	{ "{\"topology\":{\"xml\":\"\"}}", "s.json:1:13: topology: found an object, expected an object with one of: "
					   "xml (a file), synthetic (a description), root (a directory)" },
	{ "{\"topology\":{\"lstopo\":\"m\"}}",
	  "s.json:1:14: topology.lstopo: unknown key \"lstopo\"; known here: xml, synthetic, root" },
	{ "{\"policy\":7}", "s.json:1:11: policy: found 7, expected a policy, or the name of its file" },
	{ "{\"strategies\":[]}",
	  "s.json:1:15: strategies: found an empty array, expected an array of at least one strategy" },
	{ "{\"strategies\":[\"ballons\"]}",
	  "s.json:1:16: strategies[0]: found \"ballons\", expected one of: engine, none, round-robin, kubelet-static, "
	  "balloons, hard-bind, exhaustive (did you mean \"balloons\"?)" },
	{ EVENTS(""), "s.json:2:10: events: there is no event, so nothing happens" },
	{ EVENTS("7"), "s.json:2:11: events[0]: found 7, expected an object" },
	{ EVENTS("{\"at\":1}"), "s.json:2:11: events[0]: an event has one of the keys: arrive, load, leave" },
	{ EVENTS("{\"at\":-1,\"arrive\":\"a\",\"cpus\":1}"),
	  "s.json:2:17: events[0].at: found -1, expected seconds from 0 to 1000000000" },
	{ EVENTS("{\"at\":-0.5,\"arrive\":\"a\",\"cpus\":1}"),
	  "s.json:2:17: events[0].at: found -0.5, expected seconds from 0 to 1000000000" },
	{ EVENTS("{\"arrive\":\"a\",\"cpus\":1}"), "s.json:2:11: events[0]: key \"at\" is missing" },
	{ EVENTS("{\"at\":1,\"arrive\":\"a\"}"), "s.json:2:11: events[0]: key \"cpus\" is missing" },
	{ EVENTS("{\"at\":1,\"arrive\":\"a/b\",\"cpus\":1}"),
	  "s.json:2:28: events[0].arrive: found \"a/b\", expected a container's id: up to 255 letters, digits and "
	  "\"_+-.\"" },
	{ EVENTS("{\"at\":1,\"arrive\":\"a\",\"cpus\":5000}"),
	  "s.json:2:39: events[0].cpus: found 5000, expected a number of CPUs from 0 to 4096" },
	{ EVENTS("{\"at\":1,\"arrive\":\"a\",\"cpus\":1,\"memory\":\"4GB\"}"),
	  "s.json:2:50: events[0].memory: found \"4GB\", expected bytes, or a size such as \"4GiB\"" },
	{ EVENTS("{\"at\":1,\"arrive\":\"a\",\"cpus\":1,\"memory\":\"99999999TiB\"}"),
	  "s.json:2:50: events[0].memory: found \"99999999TiB\", expected bytes, or a size such as \"4GiB\"" },
	{ EVENTS("{\"at\":1,\"arrive\":\"a\",\"cpus\":1,\"trafic\":1}"),
	  "s.json:2:41: events[0].trafic: unknown key \"trafic\"; known here: at, arrive, tenant, class, cpus, "
	  "threads, memory, traffic, sensitivity, switching, limit, bind, annotations (did you mean \"traffic\"?)" },
	{ EVENTS("{\"at\":1,\"arrive\":\"a\",\"cpus\":1,\"bind\":\"3-1\"}"),
	  "s.json:2:48: events[0].bind: found \"3-1\", expected a list of CPUs below 4096, such as \"0-3,8\"" },
	{ EVENTS("{\"at\":1,\"arrive\":\"a\",\"cpus\":1,\"annotations\":{\"x\":1}}"),
	  "s.json:2:60: events[0].annotations.x: found 1, expected a string" },
	{ EVENTS(A ",{\"at\":1,\"arrive\":\"a\",\"cpus\":1}"),
	  "s.json:2:59: events[1].arrive: container a is there already; it has to leave first" },
	{ EVENTS(A ",{\"at\":2,\"load\":\"b\",\"cpus\":1}"),
	  "s.json:2:57: events[1].load: there is no container b at this time: no event before has it arrive" },
	{ EVENTS(A ",{\"at\":2,\"leave\":\"a\"},{\"at\":3,\"leave\":\"a\"}"),
	  "s.json:2:79: events[2].leave: container a has left already" },
	{ EVENTS(A ",{\"at\":0.5,\"leave\":\"a\"}"),
	  "s.json:2:48: events[1].at: 0.5 s is before the event above it, at 1 s; events stand in the order of their "
	  "times" },
	{ EVENTS(A ",{\"at\":2,\"leave\":\"a\",\"cpus\":1}"),
	  "s.json:2:62: events[1].cpus: unknown key \"cpus\"; known here: at, leave" },
	{ MACHINE("\"smt_gain\":9"), "s.json:2:23: machine.smt_gain: found 9, expected a number from 0 to 8" },
	{ MACHINE("\"nodes\":{\"0-1\":{}}"),
	  "s.json:2:21: machine.nodes.0-1: keys here are the numbers of nodes, 0 to 63" },
	{ MACHINE("\"nodes\":{\"0\":{\"tier\":\"clx\"}}"),
	  "s.json:2:33: machine.nodes.0.tier: found \"clx\", expected one of: dram, hbm, cxl, pmem (did you mean "
	  "\"cxl\"?)" },
	{ HEAD "\"rebalance\":0.001,\"until\":1000,\"events\":[" A "]}",
	  "s.json:2:13: rebalance: comes to more than 100000 passes until 1000 s" },
};

static void refuse_bad(void **state)
{
	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		cleanup_error struct error err = { 0 };
		struct sim_scenario *s = NULL;
		int r = sim_parse("s.json", refused[i].text, strlen(refused[i].text), &s, &err);

		if (r != -EINVAL || strcmp(error_text(&err), refused[i].message) != 0)
			fail_msg("%s\ngot  %d %s\nwant %s", refused[i].text, r, error_text(&err), refused[i].message);
		assert_null(s);
	}
}

/* "HEAD [A, load, load, …]}" with n events. malloc'd. */
static char *many_events(size_t n, size_t *ret_len)
{
	static const char load[] = ",\n{\"at\":2,\"load\":\"a\",\"cpus\":1}";
	char *text = malloc(sizeof(EVENTS(A)) + n * sizeof(load)), *at = text;

	assert_non_null(text);
	at = stpcpy(at, HEAD "\"events\":[" A);
	for (size_t i = 1; i < n; i++)
		at = stpcpy(at, load);
	at = stpcpy(at, "]}");
	*ret_len = (size_t) (at - text);
	return text;
}

static void limit_events(void **state)
{
	static const struct {
		size_t n;
		const char *message; /* NULL: they are read */
	} cases[] = {
		{ SIM_EVENTS_MAX, NULL },
		{ SIM_EVENTS_MAX + 1, "s.json:2:10: events: 100001 events are too many; at most 100000 are supported" },
		{ 1000000, "more than 1300000 values; a scenario has at most 100000 events in 64 MiB" },
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		cleanup_error struct error err = { 0 };
		cleanup_sim_scenario struct sim_scenario *s = NULL;
		size_t len;
		cleanup_free char *text = many_events(cases[i].n, &len);
		int r = sim_parse("s.json", text, len, &s, &err);

		assert_int_equal(r, cases[i].message ? -E2BIG : 0);
		if (cases[i].message && !strstr(error_text(&err), cases[i].message))
			fail_msg("%s", error_text(&err));
		if (!cases[i].message)
			assert_int_equal(s->n_events, cases[i].n);
	}
}

/* The places in an inline policy are those of the scenario's file. */
static void inline_policy(void **state)
{
	static const struct {
		const char *policy, *message;
	} cases[] = {
		{ POLICY, NULL },
		{ "{ // }\n /* } */ \"version\":1,\"on_error\":\"a\\\"}\"}",
		  "s.json:3:33: on_error: found \"a\"}\", expected one of: refuse, admit" },
		{ "{\n\n\"versoin\":1}", "s.json:4:1: versoin: unknown key" },
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		cleanup_sim_scenario struct sim_scenario *s = NULL;
		cleanup_policy struct policy *p = NULL;
		cleanup_error struct error err = { 0 };
		cleanup_free char *text = NULL;
		int r;

		assert_true(asprintf(&text, "{\"topology\":{\"xml\":\"m\"},\n \"policy\": %s, \"events\":[" A "]}",
				     cases[i].policy) > 0);
		r = sim_parse("s.json", text, strlen(text), &s, &err);
		if (r == 0)
			r = sim_policy(s, &p, &err);
		if (cases[i].message ? r != -EINVAL || !str_starts(error_text(&err), cases[i].message) : r != 0)
			fail_msg("%d %s\nwant %s", r, error_text(&err), cases[i].message);
	}
}

static void machine_overrides(void **state)
{
	static const struct machine m = { .packages = 1, .nodes = 1, .llcs = 1, .cores = 2, .smt = 2 };
	static const char good[] =
		MACHINE("\"nodes\":{\"0\":{\"bandwidth\":298.8,\"latency\":90,\"memory\":\"2GiB\"}}");
	static const char bad[] = MACHINE("\"nodes\":{\"5\":{\"latency\":90}}");
	cleanup_sim_scenario struct sim_scenario *s = NULL, *t = NULL;
	cleanup_topology struct topology *topo = machine_topology(&m);
	cleanup_error struct error err = { 0 };

	(void) state;
	assert_int_equal(sim_parse("s.json", good, strlen(good), &s, &err), 0);
	assert_int_equal(sim_topology(s, topo, &err), 0);
	assert_int_equal(topo->nodes[0].read_bandwidth, 298800);
	assert_int_equal(topo->nodes[0].read_latency, 90);
	assert_true(topo->nodes[0].memory == UINT64_C(2) << 30);
	assert_int_equal(topo->nodes[0].tier, TIER_DRAM);
	assert_int_equal(sim_parse("s.json", bad, strlen(bad), &t, &err), 0);
	assert_int_equal(sim_topology(t, topo, &err), -EINVAL);
	assert_string_equal(error_text(&err), "s.json:2:21: machine.nodes: the topology has no node 5");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(read_whole),   cmocka_unit_test(refuse_bad),	  cmocka_unit_test(limit_events),
		cmocka_unit_test(inline_policy), cmocka_unit_test(machine_overrides),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
