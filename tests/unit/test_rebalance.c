#include "many_world.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

/* Two nodes of four cores with two threads: node 0 is CPUs 0-3 and 8-11. */
static const struct machine two_nodes = {
	.packages = 2, .nodes = 1, .llcs = 1, .cores = 4, .smt = 2, .memory = 128 * GIB
};
#define NODE0 "0-3,8-11"
#define NODE1 "4-7,12-15"

static struct moves *rebalance(const struct crew *c, size_t most)
{
	struct moves *m;

	assert_int_equal(plan_rebalance(&c->facts, most, &m), 0);
	return m;
}

static void is_on(const struct mask *m, const char *list)
{
	cleanup_free char *text = mask_format(m);

	assert_string_equal(text, list);
}

static void nothing(const struct crew *c)
{
	cleanup_moves struct moves *m = rebalance(c, 10);
	cleanup_free char *text = moves_explain(m);

	if (m->n)
		fail_msg("%s", text);
	assert_int_equal(cost_sum(&m->before), cost_sum(&m->after));
	assert_true(str_starts(text, "no moves: "));
}

/* Three of 1.5 CPUs on node 0, nobody on node 1. */
static struct crew *lopsided(void)
{
	struct crew *c = crew_new(&two_nodes);

	for (unsigned i = 0; i < 3; i++) {
		const char *const ids[] = { "a", "b", "c" };

		crew_add(c, ids[i], 1500);
		crew_runs(c, ids[i], NODE0);
	}
	return c;
}

static void test_one_that_helps(void **state)
{
	cleanup_crew struct crew *c = lopsided();
	cleanup_moves struct moves *m = rebalance(c, 10);

	(void) state;
	assert_int_equal(m->n, 1);
	assert_string_equal(m->list[0].id, "a"); /* all alike: the lowest id */
	is_on(&m->list[0].plan->cpus, NODE1);
	assert_true(m->list[0].plan->set_cpus);
	assert_true(m->list[0].gain >= 100000);
	assert_int_equal(m->list[0].gain, cost_sum(&m->before) - cost_sum(&m->after));
	assert_true(cost_sum(&m->list[0].after) < cost_sum(&m->list[0].before));
	assert_non_null(strstr(m->list[0].why, "a moves from node 0 to node 1: gains 0."));
	assert_non_null(strstr(m->list[0].why, "CPUs that are wanted by others too"));
	crew_apply(c, "a", m->list[0].plan);
	nothing(c);
}

static void test_who_may(void **state)
{
	cleanup_crew struct crew *c = lopsided();

	(void) state;
	for (size_t i = 0; i < 3; i++)
		c->classes[i].rebalance.enabled = false;
	nothing(c);
	for (size_t i = 0; i < 3; i++) {
		c->classes[i].rebalance.enabled = true;
		c->containers[i].held = true;
	}
	nothing(c);
	c->containers[2].held = false;
	cleanup_moves struct moves *m = rebalance(c, 10);

	assert_int_equal(m->n, 1);
	assert_int_equal(m->movable, 1);
	assert_string_equal(m->list[0].id, "c");
	c->containers[2].cpus_given = true;
	nothing(c);
	c->containers[2].cpus_given = false;
	c->now[2].bound = true;
	nothing(c);
	c->now[2].bound = false;
	c->now[2].unsynced = true;
	nothing(c);
	c->now[2].unsynced = false;
	c->containers[2].can_cpuset = false;
	nothing(c);
	c->containers[2].can_cpuset = true;
	c->allowed[2] = cpus_of(NODE0);
	nothing(c);
	c->allowed[2] = c->topo->online;
	c->policy.node.reserved = cpus_of(NODE1);
	nothing(c);
}

static void test_most_moves(void **state)
{
	cleanup_crew struct crew *c = crew_new(&two_nodes);

	(void) state;
	for (unsigned i = 0; i < 8; i++) {
		char id[] = { (char) ('a' + i), 0 };

		crew_add(c, id, 1000);
		crew_runs(c, id, NODE0);
		c->containers[i].class = &c->classes[0];
	}
	c->classes[0].rebalance.min_gain = 0.001;
	cleanup_moves struct moves *all = rebalance(c, 10), *two = rebalance(c, 2), *none = rebalance(c, 0);

	assert_int_equal(all->n, 4);
	assert_int_equal(two->n, 2);
	assert_int_equal(none->n, 0);
	/* Of one class, in a minute. */
	c->classes[0].rebalance.max_moves_per_minute = 3;
	cleanup_moves struct moves *three = rebalance(c, 10);

	assert_int_equal(three->n, 3);
	c->containers[5].recent_moves = 2;
	cleanup_moves struct moves *one = rebalance(c, 10);

	assert_int_equal(one->n, 1);
	c->containers[5].recent_moves = 4;
	nothing(c);
}

static void test_gain_against_margin(void **state)
{
	cleanup_crew struct crew *c = lopsided();
	cleanup_moves struct moves *m = rebalance(c, 10);
	double share = (double) m->list[0].gain / 1.5e6;

	(void) state;
	for (size_t i = 0; i < 3; i++)
		c->classes[i].rebalance.min_gain = share + 0.001;
	nothing(c);
	for (size_t i = 0; i < 3; i++)
		c->classes[i].rebalance.min_gain = share - 0.001;
	cleanup_moves struct moves *again = rebalance(c, 10);

	assert_int_equal(again->n, 1);
	/* Never for less than a hundredth of a CPU. */
	for (size_t i = 0; i < 3; i++) {
		c->classes[i].rebalance.min_gain = 0;
		c->containers[i].mcpu = 100;
	}
	nothing(c);
}

static void test_cost_of_memory(void **state)
{
	cleanup_crew struct crew *c = lopsided();

	(void) state;
	for (size_t i = 0; i < 3; i++) {
		c->classes[i].memory.migrate = true;
		crew_memory(c, c->ids[i], 0, 3 + (unsigned) i);
	}
	cleanup_moves struct moves *m = rebalance(c, 10);

	/* The one with the least to move: 3 GiB at 1 CPU second each within 60 seconds. */
	assert_int_equal(m->n, 1);
	assert_string_equal(m->list[0].id, "a");
	assert_int_equal(m->list[0].after.terms[COST_MOVE], 50000);
	assert_int_equal(m->list[0].bytes, 3 * GIB);
	assert_non_null(strstr(m->list[0].why, "; that is after 0.05 CPUs for moving 3.0 GiB"));
	for (size_t i = 0; i < 3; i++)
		crew_memory(c, c->ids[i], 0, 30);
	nothing(c);
	/* Not known: the limit. */
	for (size_t i = 0; i < 3; i++)
		c->containers[i].resident = NULL;
	nothing(c);
	for (size_t i = 0; i < 3; i++)
		c->containers[i].memory = 3 * GIB;
	cleanup_moves struct moves *guessed = rebalance(c, 10);

	assert_int_equal(guessed->n, 1);
	assert_int_equal(guessed->list[0].after.terms[COST_MOVE], 50000);
}

/* What does not migrate is far away after a move, and draws its container back. */
static void test_memory_that_stays(void **state)
{
	cleanup_crew struct crew *c = lopsided();

	(void) state;
	for (size_t i = 0; i < 3; i++)
		crew_memory(c, c->ids[i], 0, 3);
	/* 1.5 CPUs, bound to memory for 0.3 of the time, at 2.1 times the distance: 0.495 CPUs, more than is gained. */
	nothing(c);
	c->resident[1][0] = 0;
	c->resident[1][1] = 3 * GIB;
	cleanup_moves struct moves *m = rebalance(c, 10);

	assert_int_equal(m->n, 1);
	assert_string_equal(m->list[0].id, "b");
	assert_int_equal(m->list[0].before.terms[COST_DISTANCE], 495000);
	assert_int_equal(m->list[0].after.terms[COST_DISTANCE], 0);
	assert_int_equal(m->list[0].after.terms[COST_MOVE], 0);
	assert_non_null(strstr(m->list[0].why, "its memory stays where it is"));
	crew_apply(c, "b", m->list[0].plan);
	nothing(c);
}

/* Of two, each has its memory where the other one is, and there is room for neither to go first. */
static void test_swap(void **state)
{
	cleanup_crew struct crew *c = crew_new(&two_nodes);

	(void) state;
	crew_add(c, "a", 3000);
	crew_add(c, "b", 3000);
	crew_add(c, "c", 2500);
	crew_add(c, "d", 2500);
	for (size_t i = 0; i < 4; i++) {
		c->classes[i].isolation.mode = ISOLATION_NONE;
		crew_memory(c, c->ids[i], i < 2 ? 0 : 1, 1);
		crew_runs(c, c->ids[i], i < 2 ? NODE0 : NODE1);
		c->now[i].mechanism = MECHANISM_NONE;
	}
	nothing(c);
	c->resident[0][0] = 0;
	c->resident[0][1] = GIB;
	c->resident[2][1] = 0;
	c->resident[2][0] = GIB;
	c->classes[0].cpu.span = c->classes[2].cpu.span = SPAN_NODE;
	c->policy.node.model.queueing = 500;
	cleanup_moves struct moves *m = rebalance(c, 10), *one = rebalance(c, 1);

	assert_int_equal(m->n, 2);
	assert_int_equal(m->list[0].swap, 1);
	assert_int_equal(m->list[1].swap, 0);
	assert_int_equal(m->list[0].gain, m->list[1].gain);
	assert_int_equal(m->list[0].gain, cost_sum(&m->before) - cost_sum(&m->after));
	assert_non_null(strstr(m->list[0].why, "in exchange for"));
	assert_int_equal(one->n, 0);
	crew_apply(c, m->list[0].id, m->list[0].plan);
	crew_apply(c, m->list[1].id, m->list[1].plan);
	nothing(c);
}

static void test_full(void **state)
{
	cleanup_crew struct crew *c = lopsided();

	(void) state;
	/* Eight cores do the work of 12.8. */
	c->containers[2].mcpu = 9799;
	cleanup_moves struct moves *m = rebalance(c, 10);

	assert_false(m->full);
	assert_true(m->n > 0);
	c->containers[2].mcpu = 9800;
	cleanup_moves struct moves *full = rebalance(c, 10);
	cleanup_free char *text = moves_explain(full);

	assert_true(full->full);
	assert_int_equal(full->n, 0);
	assert_string_equal(text, "no moves: containers want all that the machine can do\n");
}

/* An owner that wants more gets the cores beside its own, and one that wants less keeps some of its own. */
static void test_owner_resizes(void **state)
{
	cleanup_crew struct crew *c = crew_new(&two_nodes);

	(void) state;
	crew_add(c, "own", 4000);
	crew_owns(c, "own", "6,14");
	crew_memory(c, "own", 1, 4);
	crew_add(c, "web", 1000);
	crew_runs(c, "web", NODE1);
	c->cpus[1] = cpus_of("4-5,7,12-13,15");
	cleanup_moves struct moves *m = rebalance(c, 10);

	assert_int_equal(m->n, 1);
	assert_string_equal(m->list[0].id, "own");
	assert_int_equal(mask_weight(&m->list[0].plan->cpus), 4);
	is_on(&m->list[0].plan->cpus, "4,6,12,14");
	crew_apply(c, "own", m->list[0].plan);
	crew_check(c);
	nothing(c);
	c->allowed[0] = cpus_of(NODE1);
	/* Quiet: what it leaves serves its neighbour, which is short of CPUs. */
	c->containers[0].mcpu = 1000;
	c->containers[1].mcpu = 6000;
	c->classes[1].rebalance.enabled = false;
	cleanup_moves struct moves *back = rebalance(c, 10);

	assert_int_equal(back->n, 1);
	is_on(&back->list[0].plan->cpus, "4,12");
	assert_int_equal(back->list[0].plan->n_adjusts, 1);
	crew_apply(c, "own", back->list[0].plan);
	is_on(&c->cpus[1], "5-7,13-15");
	nothing(c);
}

/* Of free cores, too, it keeps those that it has. */
static void test_owner_keeps(void **state)
{
	cleanup_crew struct crew *c = crew_new(&two_nodes);

	(void) state;
	crew_add(c, "own", 4000);
	crew_owns(c, "own", "6,14");
	c->allowed[0] = cpus_of(NODE1);
	cleanup_moves struct moves *m = rebalance(c, 10);

	assert_int_equal(m->n, 1);
	is_on(&m->list[0].plan->cpus, "4,6,12,14");
}

static void test_input(void **state)
{
	cleanup_crew struct crew *c = lopsided();
	struct moves *m = NULL;

	(void) state;
	c->containers[1].id = "a";
	assert_int_equal(plan_rebalance(&c->facts, 1, &m), -EINVAL);
	c->containers[1].id = "b";
	c->containers[1].now = NULL;
	assert_int_equal(plan_rebalance(&c->facts, 1, &m), -EINVAL);
	assert_null(m);
	c->facts.n = 0;
	nothing(c);
}

static void test_json(void **state)
{
	cleanup_crew struct crew *c = lopsided();
	cleanup_moves struct moves *m = rebalance(c, 1);
	cleanup_json_writer struct json_writer *w = json_writer_new(false);
	cleanup_free char *text = NULL;
	size_t len;

	(void) state;
	moves_write(w, m);
	assert_int_equal(json_writer_take(w, &text, &len), 0);
	assert_non_null(strstr(text, "{\"moves\":[{\"container\":\"a\",\"why\":\"a moves from node 0"));
	assert_non_null(strstr(text, "\"swap\":false,\"before\":{\"sum\":"));
	assert_non_null(strstr(text, "\"movable\":3"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_that_helps), cmocka_unit_test(test_who_may),
		cmocka_unit_test(test_most_moves),     cmocka_unit_test(test_gain_against_margin),
		cmocka_unit_test(test_cost_of_memory), cmocka_unit_test(test_memory_that_stays),
		cmocka_unit_test(test_swap),           cmocka_unit_test(test_full),
		cmocka_unit_test(test_owner_resizes),  cmocka_unit_test(test_owner_keeps),
		cmocka_unit_test(test_input),          cmocka_unit_test(test_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
