/* Scenarios played under each strategy on a small machine. */
#include "machine.h"
#include "sim.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#define GIB (UINT64_C(1) << 30)
#define POLICY                                                                                              \
	"{\"version\":1,\"classes\":{\"web\":{},\"db\":{\"isolation\":{\"mode\":\"cores\"},"                \
	"\"cpu\":{\"span\":\"machine\"}},"                                                                \
	"\"free\":{\"isolation\":{\"mode\":\"none\"}},\"lone\":{\"isolation\":{\"scope\":\"container\"}}}," \
	"\"rules\":[{\"match\":{},\"tenant\":\"${id}\",\"class\":\"web\"}]}"
#define SCENARIO(events)                                                                                    \
	"{\"topology\":{\"xml\":\"-\"},\"machine\":{\"smt_gain\":0.2},\"policy\":" POLICY ",\"until\":10,"  \
	"\"events\":[" events "]}"
#define COME(at, id, tenant, class, cpus, more)                                                             \
	"{\"at\":" #at ",\"arrive\":\"" id "\",\"tenant\":\"" tenant "\",\"class\":\"" class                \
	"\",\"cpus\":" #cpus more "}"
#define LEAVE(at, id) "{\"at\":" #at ",\"leave\":\"" id "\"}"
#define LOAD(at, id, cpus) "{\"at\":" #at ",\"load\":\"" id "\",\"cpus\":" #cpus "}"

struct played {
	struct topology *topo;
	struct sim_scenario *s;
	struct policy *policy;
	struct sim_result *r;
};

static void forget(struct played *p)
{
	sim_result_free(p->r);
	sim_scenario_free(p->s);
	policy_free(p->policy);
	p->r = NULL;
	p->s = NULL;
	p->policy = NULL;
}

/* Two packages of one node and one cache of two cores each, two threads: node 0 is CPUs 0, 1, 4, 5. */
static int setup(void **state)
{
	static const struct machine m = {
		.packages = 2, .nodes = 1, .llcs = 1, .cores = 2, .smt = 2, .memory = 64 * GIB
	};
	struct played *p = calloc(1, sizeof(*p));

	if (!p)
		return -1;
	p->topo = machine_topology(&m);
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct played *p = *state;

	forget(p);
	topology_free(p->topo);
	free(p);
	return 0;
}

static void play(struct played *p, const char *text, enum sim_strategy strategy)
{
	cleanup_error struct error err = { 0 };
	int r;

	forget(p);
	r = sim_parse("s.json", text, strlen(text), &p->s, &err);
	if (r == 0)
		r = sim_policy(p->s, &p->policy, &err);
	if (r == 0)
		r = sim_run(p->s, p->topo, p->policy, strategy, &p->r, &err);
	if (r < 0)
		fail_msg("%s", error_text(&err));
}

#define near(a, b) assert_float_equal((a), (b), 1e-4)

/* Which tenant has each CPU at a time, as digits from 1, "." for idle. */
static void owners(const struct played *p, double at, const char *expected)
{
	char text[16] = "";

	for (size_t i = 0; i < p->r->n_columns; i++) {
		const struct sim_column *c = &p->r->columns[i];

		if (at < c->from || at >= c->to)
			continue;
		for (size_t k = 0; k < p->topo->n_cpus; k++)
			text[k] = c->cells[k].tenant ? (char) ('0' + c->cells[k].tenant) : '.';
	}
	assert_string_equal(text, expected);
}

/* Two tenants with two threads each. */
static const char two[] = SCENARIO(COME(0, "a", "acme", "web", 2, "") "," COME(0, "b", "bolt", "web", 2, ""));

static void engine(void **state)
{
	struct played *p = *state;

	play(p, two, SIM_ENGINE);
	assert_null(p->r->skipped);
	near(p->r->seconds, 10);
	assert_int_equal(p->r->n_tenants, 2);
	assert_string_equal(p->r->tenants[1].name, "bolt");
	near(p->r->tenants[0].speed, 1);
	near(p->r->speed, 1);
	near(p->r->worst, 1);
	near(p->r->forced_idle, 0);
	near(p->r->insecure, 0);
	near(p->r->work, 40);
	assert_int_equal(p->r->migrations, 0);
	owners(p, 5, "1122....");
	/* Twice as much as there are cores: cookies cost, and are kept. */
	play(p, SCENARIO(COME(0, "a", "a", "web", 4, "") "," COME(0, "b", "b", "web", 4, "") ","
			 COME(0, "c", "c", "web", 4, "")), SIM_ENGINE);
	near(p->r->insecure, 0);
	assert_true(p->r->speed < 0.7);
}

/* Whoever shares a node with a tenant that gets cores of its own moves aside, and comes back. */
static void engine_moves_aside(void **state)
{
	struct played *p = *state;

	play(p, SCENARIO(COME(0, "a", "acme", "web", 2, "") "," COME(1, "b", "bolt", "db", 5, "") "," LEAVE(5, "b")),
	     SIM_ENGINE);
	if (p->r->refused)
		fail_msg("%s", p->r->first_refusal);
	assert_int_equal(p->r->migrations, 2);
	near(p->r->forced_idle, 0);
	near(p->r->insecure, 0);
	near(p->r->tenants[1].seconds, 4);
	/* acme's two threads on one core do 1.2 of 2 for four of ten seconds. */
	near(p->r->tenants[0].speed, 0.6 + 0.4 * 0.6);
	near(p->r->tenants[0].worst, 0.6);
	/* No room is left for a second one. */
	play(p, SCENARIO(COME(0, "a", "a", "db", 8, "") "," COME(0, "b", "b", "db", 4, "")), SIM_ENGINE);
	assert_int_equal(p->r->refused, 1);
	assert_non_null(strstr(p->r->first_refusal, "no room"));
	near(p->r->tenants[1].speed, 0);
	near(p->r->tenants[1].seconds, 10);
	near(p->r->worst, 0);
}

static void none(void **state)
{
	struct played *p = *state;

	play(p, two, SIM_NONE);
	near(p->r->speed, 1);
	near(p->r->remote, 0.5);
	/* Eight threads on four cores: each does 0.6, and all that is not of the tenant with the most is seen. */
	play(p, SCENARIO(COME(0, "a", "acme", "web", 4, "") "," COME(0, "b", "bolt", "web", 4, "")), SIM_NONE);
	near(p->r->speed, 0.6);
	near(p->r->forced_idle, 0);
	near(p->r->insecure, 40);
	/* Half of the memory is 2.1 times as far, for the half of the time that is waited for memory. */
	play(p, SCENARIO(COME(0, "a", "acme", "web", 1, ",\"sensitivity\":0.5")), SIM_NONE);
	near(p->r->speed, 1 / (1 + 0.5 * 0.55));
}

static void round_robin(void **state)
{
	struct played *p = *state;

	play(p, SCENARIO(COME(0, "a", "a", "web", 3, "") "," COME(0, "b", "b", "web", 2, "") ","
			 COME(0, "c", "c", "web", 4, "")), SIM_ROUND_ROBIN);
	/* c is on 5, 6, 7 and 0, the last of which is a's too. */
	owners(p, 5, "11122333");
	assert_true(p->r->insecure > 30);
}

static void kubelet_static(void **state)
{
	struct played *p = *state;

	play(p, SCENARIO(COME(0, "a", "a", "web", 1, "") "," COME(0, "b", "b", "web", 4, "") ","
			 COME(0, "c", "c", "web", 3, "") "," LEAVE(5, "b") "," COME(5, "d", "d", "web", 2, "")),
	     SIM_KUBELET_STATIC);
	/* a has a core for its one thread, b two cores on two nodes, and c is one core short. */
	owners(p, 2, "122..22.");
	owners(p, 7, "14...4..");
	assert_int_equal(p->r->refused, 1);
	near(p->r->tenants[1].speed, 0.6);
	near(p->r->insecure, 0);
}

static void balloons(void **state)
{
	struct played *p = *state;

	play(p, SCENARIO(COME(0, "a", "a", "web", 1, "") "," COME(0, "b", "b", "web", 2, "") ","
			 COME(1, "a2", "a", "web", 3, "") "," LEAVE(5, "a2")), SIM_BALLOONS);
	owners(p, 0.5, "12...2..");
	/* a grows past b's core to the next one, and shrinks again. */
	owners(p, 3, "121.121.");
	owners(p, 7, "12...2..");
	assert_int_equal(p->r->migrations, 2);
	near(p->r->insecure, 0);
}

static void hard_bind(void **state)
{
	struct played *p = *state;

	play(p, SCENARIO(COME(0, "a", "a", "web", 2, ",\"bind\":\"2,6\"") "," COME(0, "b", "b", "web", 2, "")),
	     SIM_HARD_BIND);
	owners(p, 5, "2.1.2.1.");
	near(p->r->speed, 0.6);
}

static void exhaustive(void **state)
{
	struct played *p = *state;

	play(p, two, SIM_EXHAUSTIVE);
	near(p->r->speed, 1);
	near(p->r->forced_idle, 0);
	/* Two that stream are best off on two caches. */
	play(p, SCENARIO(COME(0, "a", "a", "web", 1, ",\"traffic\":30") ","
			 COME(0, "b", "b", "web", 1, ",\"traffic\":30")),
	     SIM_EXHAUSTIVE);
	near(p->r->speed, 1);
	/* Three domains: the machine and its two nodes. */
	play(p, SCENARIO(COME(0, "a", "a", "web", 1, "") "," COME(1, "b", "a", "web", 1, "") ","
			 COME(1, "c", "a", "web", 1, "") "," COME(1, "d", "a", "web", 1, "") ","
			 COME(1, "e", "a", "web", 1, "") "," COME(1, "f", "a", "web", 1, "") ","
			 COME(1, "g", "a", "web", 1, "") "," COME(1, "h", "a", "web", 1, "") ","
			 COME(1, "i", "a", "web", 1, "") "," COME(1, "j", "a", "web", 1, "")), SIM_EXHAUSTIVE);
	assert_string_equal(p->r->skipped,
			    "too large: 3 domains for each of 10 containers are more than 20000 assignments");
}

static void loads_change(void **state)
{
	struct played *p = *state;

	play(p, SCENARIO(COME(0, "a", "a", "free", 1, "") "," LOAD(4, "a", 0) "," LOAD(6, "a", 4)), SIM_NONE);
	near(p->r->work, 4 + 16);
	near(p->r->busy, 4 + 16);
	near(p->r->tenants[0].cpu_seconds, 4 + 16);
	assert_int_equal(p->r->n_columns, 3);
	owners(p, 1, "1.......");
	owners(p, 5, "........");
	owners(p, 8, "1111....");
}

/*
 * Four containers on two nodes; those of one node leave. Whoever of the others is moved is faster from then on. A class
 * has to stay for the time of its dwell, and may not be moved at all when its policy says so.
 */
static void rebalanced(struct played *p, const char *rebalance, const char *class)
{
	cleanup_free char *text = NULL;

	assert_true(asprintf(&text,
			     "{\"topology\":{\"xml\":\"-\"},\"policy\":{\"version\":1,\"classes\":{\"web\":%s},"
			     "\"rules\":[{\"match\":{},\"tenant\":\"t\",\"class\":\"web\"}]},"
			     "\"until\":100,%s\"events\":[" COME(0, "a", "a", "web", 2, "") ","
			     COME(0, "b", "b", "web", 2, "") "," COME(0, "c", "c", "web", 2, "") ","
			     COME(0, "d", "d", "web", 2, "") "," LEAVE(10, "b") "," LEAVE(10, "d") "]}",
			     class, rebalance) > 0);
	play(p, text, SIM_ENGINE);
}

static void rebalance_moves(void **state)
{
	struct played *p = *state;
	double without, with, late;

	rebalanced(p, "", "{}");
	assert_int_equal(p->r->moves, 0);
	without = p->r->speed;
	rebalanced(p, "\"rebalance\":5,", "{\"rebalance\":{\"min_dwell\":0}}");
	assert_int_equal(p->r->moves, 1);
	with = p->r->speed;
	rebalanced(p, "\"rebalance\":5,", "{}"); /* a dwell of 60 s */
	assert_int_equal(p->r->moves, 1);
	late = p->r->speed;
	assert_true(with > late && late > without);
	rebalanced(p, "\"rebalance\":5,", "{\"rebalance\":{\"enabled\":false}}");
	assert_int_equal(p->r->moves, 0);
	near(p->r->speed, without);
}

/* Every strategy twice, to the last bit; and columns follow each other without gaps, also when many were merged. */
static void same_twice(void **state)
{
	struct played *p = *state;
	cleanup_free char *text = malloc(1 << 20);
	char *at = text;

	assert_non_null(text);
	at = stpcpy(at, "{\"topology\":{\"xml\":\"-\"},\"policy\":" POLICY ",\"rebalance\":7,\"events\":[");
	at = stpcpy(at, COME(0, "a", "a", "web", 2, "") "," COME(0, "b", "b", "lone", 1, ",\"traffic\":9"));
	for (unsigned i = 1; i < 3000; i++)
		at += snprintf(at, 80, ",{\"at\":%u,\"load\":\"%s\",\"cpus\":%u.%u}", i, i % 2 ? "a" : "b", i % 5,
			       i % 7);
	(void) stpcpy(at, "]}");
	for (unsigned s = 0; s < SIM_STRATEGIES; s++) {
		struct sim_result *first;

		play(p, text, (enum sim_strategy) s);
		first = TAKE_PTR(p->r);
		play(p, text, (enum sim_strategy) s);
		assert_memory_equal(&first->speed, &p->r->speed, sizeof(double));
		assert_memory_equal(&first->forced_idle, &p->r->forced_idle, sizeof(double));
		assert_int_equal(first->migrations, p->r->migrations);
		assert_int_equal(first->n_columns, SIM_COLUMNS_MAX);
		near(first->columns[0].from, 0);
		for (size_t i = 0; i + 1 < first->n_columns; i++)
			near(first->columns[i].to, first->columns[i + 1].from);
		near(first->columns[first->n_columns - 1].to, 3000);
		sim_result_free(first);
	}
}

static void refuse_unknown_class(void **state)
{
	struct played *p = *state;
	cleanup_error struct error err = { 0 };
	static const char text[] = SCENARIO(COME(0, "a", "a", "wbe", 1, ""));

	play(p, two, SIM_NONE);
	forget(p);
	assert_int_equal(sim_parse("s.json", text, strlen(text), &p->s, &err), 0);
	assert_int_equal(sim_policy(p->s, &p->policy, &err), 0);
	assert_int_equal(sim_run(p->s, p->topo, p->policy, SIM_ENGINE, &p->r, &err), -EINVAL);
	assert_string_equal(error_text(&err), "s.json: container a: the policy has no class \"wbe\"");
	assert_null(p->r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
		TEST(engine),	 TEST(engine_moves_aside), TEST(none),	     TEST(round_robin), TEST(kubelet_static),
		TEST(balloons), TEST(hard_bind),	   TEST(exhaustive), TEST(loads_change), TEST(same_twice),
		TEST(rebalance_moves),
		TEST(refuse_unknown_class),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
