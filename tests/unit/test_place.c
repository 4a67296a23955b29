#include "place_world.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

/* ---- isolation ---- */

static const struct {
	enum isolation_mode mode;
	enum coresched_support support;
	enum on_unsupported on;
	bool no_cpuset;
	int error;
	enum mechanism mechanism;
	bool degraded;
	const char *words;
} mechanisms[] = {
	{ ISOLATION_NONE, CORESCHED_DENIED, UNSUPPORTED_REFUSE, false, 0, MECHANISM_NONE, false, NULL },
	{ ISOLATION_COOKIE, CORESCHED_SUPPORTED, UNSUPPORTED_REFUSE, false, 0, MECHANISM_COOKIE, false, NULL },
	{ ISOLATION_AUTO, CORESCHED_SUPPORTED, UNSUPPORTED_REFUSE, true, 0, MECHANISM_COOKIE, false, NULL },
	{ ISOLATION_COOKIE, CORESCHED_NO_SIBLINGS, UNSUPPORTED_REFUSE, false, 0, MECHANISM_NO_SIBLINGS, false,
	  "until SMT is switched on" },
	{ ISOLATION_COOKIE, CORESCHED_NO_KERNEL_OPTION, UNSUPPORTED_REFUSE, false, EOPNOTSUPP, 0, false,
	  "CONFIG_SCHED_CORE" },
	{ ISOLATION_AUTO, CORESCHED_DENIED, UNSUPPORTED_REFUSE, false, EOPNOTSUPP, 0, false, "denied" },
	{ ISOLATION_COOKIE, CORESCHED_KNOWN_BAD, UNSUPPORTED_REFUSE, false, EOPNOTSUPP, 0, false, "known-bad" },
	{ ISOLATION_COOKIE, CORESCHED_NO_KERNEL_OPTION, UNSUPPORTED_CORES, false, 0, MECHANISM_CORES, false,
	  "in place of a cookie" },
	{ ISOLATION_COOKIE, CORESCHED_KNOWN_BAD, UNSUPPORTED_CORES, true, EOPNOTSUPP, 0, false, "cpuset" },
	{ ISOLATION_COOKIE, CORESCHED_DENIED, UNSUPPORTED_DEGRADE, false, 0, MECHANISM_NONE, true, "not isolated" },
	{ ISOLATION_CORES, CORESCHED_NO_KERNEL_OPTION, UNSUPPORTED_REFUSE, false, 0, MECHANISM_CORES, false, NULL },
	{ ISOLATION_CORES, CORESCHED_SUPPORTED, UNSUPPORTED_REFUSE, true, EOPNOTSUPP, 0, false, "cpuset" },
	{ ISOLATION_CORES, CORESCHED_SUPPORTED, UNSUPPORTED_CORES, true, EOPNOTSUPP, 0, false, "cpuset" },
	{ ISOLATION_CORES, CORESCHED_SUPPORTED, UNSUPPORTED_DEGRADE, true, 0, MECHANISM_NONE, true, "not isolated" },
};

static void test_mechanism(void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_LEN(mechanisms); i++) {
		w->class.isolation.mode = mechanisms[i].mode;
		w->class.isolation.on_unsupported = mechanisms[i].on;
		w->facts.coresched = mechanisms[i].support;
		w->facts.can_cpuset = !mechanisms[i].no_cpuset;
		if (mechanisms[i].error) {
			refused(w, mechanisms[i].error, mechanisms[i].words);
			continue;
		}
		placed(w);
		assert_int_equal(w->plan->mechanism, mechanisms[i].mechanism);
		assert_int_equal(w->plan->degraded, mechanisms[i].degraded);
		if (mechanisms[i].words)
			has_reason(w, mechanisms[i].words);
	}
}

static void test_guard(void **state)
{
	struct world *w = *state;

	w->class.isolation.guard = GUARD_COOKIE | GUARD_MEMORY;
	w->class.isolation.exec = EXEC_WATCH;
	w->class.memory.migrate = true;
	placed(w);
	assert_int_equal(w->plan->guard, GUARD_COOKIE | GUARD_MEMORY);
	assert_int_equal(w->plan->exec, EXEC_WATCH);
	assert_true(w->plan->migrate);
	w->facts.spec_memory_policy = true;
	placed(w);
	assert_int_equal(w->plan->guard, GUARD_COOKIE);
	has_reason(w, "not guarded");
	/* Degraded: the cookie's guard goes with the cookie. A class of mode none has named what it has. */
	w->facts.coresched = CORESCHED_DENIED;
	w->class.isolation.on_unsupported = UNSUPPORTED_DEGRADE;
	placed(w);
	assert_int_equal(w->plan->guard, 0);
	has_reason(w, "no guard over cookies: the container has none to keep");
	w->class.isolation.mode = ISOLATION_NONE;
	placed(w);
	assert_int_equal(w->plan->guard, GUARD_COOKIE);
}

/* ---- CPUs of containers that own none ---- */

static void test_balance(void **state)
{
	struct world *w = *state;

	placed(w);
	has_cpus(&w->plan->cpus, "0-7,16-23"); /* equal: the lowest */
	assert_true(w->plan->set_cpus);
	add(w, "a", MECHANISM_COOKIE, "0-7,16-23", 4000);
	placed(w);
	has_cpus(&w->plan->cpus, "8-15,24-31");
	has_cpus(&w->plan->wish, "8-15,24-31");
	assert_int_equal(w->plan->n_rejects, 1);
	assert_string_equal(w->plan->rejects[0].candidate, "node 0");
	assert_string_equal(w->plan->rejects[0].why,
			    "would lose 0.10 CPUs to waiting for other tenants on its cores against 0.00");
	/* (4 + 2) of 8 cores' worth 1.6 each, against 2; without a cookie nobody waits. */
	w->class.isolation.mode = ISOLATION_NONE;
	w->occupants[0].mechanism = MECHANISM_NONE;
	placed(w);
	assert_string_equal(w->plan->rejects[0].why, "load would be 47 % against 16 %");
	w->class.isolation.mode = ISOLATION_COOKIE;
	w->occupants[0].mechanism = MECHANISM_COOKIE;
	placed(w);
	has_reason(w, "node 1: containers want 2.00 CPUs there, this one 2.00 of them, and the cores there do the work of "
		      "12.80: load 16 %");
	/* Load on the whole machine counts half on each node. */
	add(w, "b", MECHANISM_COOKIE, "0-31", 20000);
	add(w, "c", MECHANISM_COOKIE, "8-15,24-31", 3000);
	placed(w);
	has_cpus(&w->plan->cpus, "8-15,24-31");
	has_reason(w, "least overloaded");
	has_reason(w, "node 1: containers want 15.00 CPUs there, this one 2.00 of them, and the cores there do the work of "
		      "12.80: load 117 %");
	w->occupants[2].mcpu = 5000;
	placed(w);
	has_cpus(&w->plan->cpus, "0-7,16-23");
	/* Its own old placement does not count. */
	w->occupants[0].id = "new";
	w->occupants[1].mcpu = 0;
	placed(w);
	has_cpus(&w->plan->cpus, "0-7,16-23");
}

static void test_span(void **state)
{
	static const struct {
		enum cpu_span span;
		const char *cpus;
	} spans[] = {
		{ SPAN_MACHINE, "0-31" },   { SPAN_PACKAGE, "8-15,24-31" }, { SPAN_NODE, "8-15,24-31" },
		{ SPAN_LLC, "8-11,24-27" }, { SPAN_CORES, "8,24" },
	};
	struct world *w = *state;

	add(w, "a", MECHANISM_COOKIE, "0-7,16-23", 4000);
	for (size_t i = 0; i < ARRAY_LEN(spans); i++) {
		w->class.cpu.span = spans[i].span;
		placed(w);
		has_cpus(&w->plan->cpus, spans[i].cpus);
	}
	/* What it has anyway is not written. */
	w->class.cpu.span = SPAN_MACHINE;
	placed(w);
	assert_false(w->plan->set_cpus);
}

static void test_memory_room(void **state)
{
	struct world *w = *state;

	add(w, "a", MECHANISM_COOKIE, "0-7,16-23", 1000);
	w->occupants[0].memory = 40 * GIB;
	add(w, "b", MECHANISM_COOKIE, "8-15,24-31", 9000);
	w->occupants[1].memory = 40 * GIB;
	w->occupants[1].mems = 5; /* half of it is on node 0, the rest on node 2 */
	w->facts.memory = 10 * GIB;
	placed(w);
	has_cpus(&w->plan->cpus, "8-15,24-31");
	assert_string_equal(w->plan->rejects[0].why, "4096 MiB of memory left by other limits of 10240 MiB wanted");
	/* Nowhere: where least is lacking. */
	w->facts.memory = 100 * GIB;
	placed(w);
	has_cpus(&w->plan->cpus, "8-15,24-31");
	has_reason(w, "its memory limit of 102400 MiB");
	/* Memory that it may not use is no home, unless others want the CPUs there. */
	w->facts.memory = 0;
	w->facts.allowed_mems = 2;
	placed(w);
	has_cpus(&w->plan->cpus, "0-7,16-23");
	assert_int_equal(cost_deciding(&w->plan->rejects[0].cost, &w->plan->cost), COST_CPU);
	w->occupants[1].mcpu = 5000;
	placed(w);
	has_cpus(&w->plan->cpus, "8-15,24-31");
	assert_int_equal(cost_deciding(&w->plan->rejects[0].cost, &w->plan->cost), COST_DISTANCE);
}

static void test_shape(void **state)
{
	struct world *w = *state;

	w->facts.mcpu_is_limit = true;
	add_group(w, "a", "other", MECHANISM_COOKIE, "0,16", 2000);
	add_group(w, "b", "acme", MECHANISM_COOKIE, "1,17", 500);
	add(w, "c", MECHANISM_COOKIE, "8-15,24-31", 9000);
	placed(w);
	has_cpus(&w->plan->cpus, "4,20"); /* the cache where fewer stream memory */
	has_cpus(&w->plan->wish, "4,20");
	has_reason(w, "its quota allows no more");
	w->facts.mcpu = 2001;
	placed(w);
	has_cpus(&w->plan->cpus, "4-5,20-21");
	w->facts.mcpu = 14000; /* seven cores: all that the other tenant left, own group's among them */
	placed(w);
	has_cpus(&w->plan->cpus, "1-7,17-23");
	w->facts.mcpu = 15000;
	placed(w);
	has_cpus(&w->plan->cpus, "0-7,16-23");
	has_reason(w, "not on cores of its own");
	w->facts.mcpu = 2000;
	w->class.cpu.smt = SMT_LEAVE_IDLE;
	placed(w);
	has_cpus(&w->plan->cpus, "4-5");
}

static void test_leave_idle(void **state)
{
	struct world *w = *state;

	w->class.cpu.smt = SMT_LEAVE_IDLE;
	add_group(w, "a", "other", MECHANISM_CORES, "2", 1000);
	placed(w);
	has_cpus(&w->plan->cpus, "8-15");
	w->class.cpu.span = SPAN_MACHINE;
	placed(w);
	has_cpus(&w->plan->cpus, "0-1,3-15");
	has_cpus(&w->plan->wish, "0-15");
}

static void test_reserved(void **state)
{
	struct world *w = *state;

	w->policy.node.reserved = cpus_of("0,16,31");
	placed(w);
	has_cpus(&w->plan->cpus, "8-15,24-30");
	w->facts.allowed_cpus = cpus_of("0,16");
	refused(w, EINVAL, "reserved");
	w->facts.allowed_cpus = cpus_of("100");
	refused(w, EINVAL, "online");
}

/* ---- owners ---- */

static void test_cores(void **state)
{
	struct world *w = *state;
	struct plan_adjust *back;
	size_t n;

	w->class.isolation.mode = ISOLATION_CORES;
	w->facts.mcpu = 5000;
	add(w, "a", MECHANISM_COOKIE, "8-15,24-31", 1000);
	add(w, "b", MECHANISM_NONE, "0-31", 1000);
	w->policy.node.reserved = cpus_of("17");
	placed(w);
	assert_int_equal(w->plan->mechanism, MECHANISM_CORES);
	/* CPU 17 is reserved, so core 1 is no whole core, and the first cache has less room than the second. */
	has_cpus(&w->plan->cpus, "4-6,20-22");
	assert_true(w->plan->set_cpus);
	assert_int_equal(w->plan->n_adjusts, 1);
	assert_string_equal(w->plan->adjusts[0].id, "b");
	has_cpus(&w->plan->adjusts[0].cpus, "0-3,7-19,23-31");
	/* Once it is gone, the neighbour gets back what it had wished for. */
	w->sets[7] = w->plan->adjusts[0].cpus;
	w->occupants[1].cpus = &w->sets[7];
	assert_int_equal(plan_neighbours(w->topo, w->occupants, 2, &back, &n), 0);
	assert_int_equal(n, 1);
	has_cpus(&back[0].cpus, "0-31");
	plan_adjusts_free(back, n);
}

static void test_cores_family(void **state)
{
	struct world *w = *state;

	w->class.isolation.mode = ISOLATION_CORES;
	w->class.cpu.span = SPAN_MACHINE;
	add_group(w, "a", "other", MECHANISM_CORES, "0-6,8-15,16-22,24-31", 30000);
	placed(w);
	has_cpus(&w->plan->cpus, "7,23");
	add_group(w, "b", "acme", MECHANISM_CORES, "7,23", 2000);
	placed(w);
	has_cpus(&w->plan->cpus, "7,23");
	has_reason(w, "its own group");
	w->class.cpu.exclusive = true;
	refused(w, ENOSPC, "widen cpu.span");
	w->class.cpu.exclusive = false;
	w->occupants[1].exclusive = true;
	refused(w, ENOSPC, "2.00 CPUs");
	/* Nor is there room for anybody else. */
	w->class.isolation.mode = ISOLATION_NONE;
	refused(w, ENOSPC, "own their cores");
}

/* Cores that nobody has to leave come first, whatever their load; and of a starving neighbour's, one is spared. */
static void test_cores_order(void **state)
{
	struct world *w = *state;

	w->class.isolation.mode = ISOLATION_CORES;
	w->facts.mcpu = 4000;
	w->facts.allowed_cpus = cpus_of("0-2,16-18");
	add(w, "a", MECHANISM_COOKIE, "0-1,5,16-17,21", 0);
	add_group(w, "b", "acme", MECHANISM_COOKIE, "2,18", 1000);
	placed(w);
	has_cpus(&w->plan->cpus, "0,2,16,18");
	w->sets[0] = cpus_of("0-1,16-17");
	w->sets[1] = cpus_of("2-3,18-19");
	w->occupants[1].group = "b";
	placed(w);
	has_cpus(&w->plan->cpus, "1-2,17-18");
}

/* Across the machine: neighbours who have room elsewhere move first, then those who have not, one's own group last. */
static void test_cores_stages(void **state)
{
	struct world *w = *state;

	w->class.isolation.mode = ISOLATION_CORES;
	w->class.cpu.span = SPAN_MACHINE;
	w->facts.allowed_cpus = cpus_of("0-3,8-11,16-19,24-27");
	add(w, "a", MECHANISM_COOKIE, "0-3,16-19", 6000);
	add(w, "b", MECHANISM_COOKIE, "0-3,16-19", 6000);
	add(w, "c", MECHANISM_COOKIE, "8-11,24-27", 7000);
	placed(w);
	has_cpus(&w->plan->cpus, "0,16");
	w->occupants[0].mcpu = w->occupants[1].mcpu = 7000;
	placed(w);
	has_cpus(&w->plan->cpus, "8,24");
	w->occupants[2].mechanism = MECHANISM_CORES;
	w->occupants[2].group = "acme";
	placed(w);
	has_cpus(&w->plan->cpus, "0,16");
}

/* A neighbour is moved aside, but never off its last CPU, and never when someone else placed it. */
static void test_cores_spares(void **state)
{
	struct world *w = *state;

	w->class.isolation.mode = ISOLATION_CORES;
	w->facts.allowed_cpus = cpus_of("0-2,16-18");
	add(w, "a", MECHANISM_COOKIE, "0,16", 100);
	add(w, "b", MECHANISM_COOKIE, "1-2,17-18", 4000);
	w->facts.mcpu = 2000;
	placed(w); /* not core 0, although it has less load */
	has_cpus(&w->plan->cpus, "1,17");
	w->facts.mcpu = 4000;
	refused(w, ENOSPC, "last that a neighbour");
	w->facts.mcpu = 2000;
	w->occupants[1].bound = true;
	refused(w, ENOSPC, "0.00");
	/* The same in the eyes of the one who is there first, whose wish is larger than what it has now. */
	w->sets[7] = cpus_of("0-1,16-17");
	w->occupants[0].wish = &w->sets[7];
	placed(w);
	has_cpus(&w->plan->cpus, "0,16");
	has_cpus(&w->plan->adjusts[0].cpus, "1,17");
}

static void test_exclusive(void **state)
{
	struct world *w = *state;

	w->class.cpu.exclusive = true;
	add_group(w, "a", "acme", MECHANISM_COOKIE, "0-3,16-19", 8000);
	add_group(w, "b", "acme", MECHANISM_CORES, "4-6,20-22", 8000);
	w->class.cpu.span = SPAN_LLC;
	w->facts.allowed_cpus = cpus_of("0-7,16-23");
	placed(w);
	assert_int_equal(w->plan->mechanism, MECHANISM_COOKIE);
	assert_true(w->plan->exclusive);
	has_cpus(&w->plan->cpus, "7,23");
	w->facts.mcpu = 4000; /* the group's cores are not to be had, its cookie container moves aside */
	placed(w);
	has_cpus(&w->plan->cpus, "0-1,16-17");
	assert_int_equal(w->plan->n_adjusts, 1);
	has_cpus(&w->plan->adjusts[0].cpus, "2-3,18-19");
	w->facts.can_cpuset = false;
	refused(w, EOPNOTSUPP, "exclusive");
	w->class.isolation.on_unsupported = UNSUPPORTED_DEGRADE;
	placed(w);
	assert_true(w->plan->degraded);
	assert_false(w->plan->exclusive);
}

static void test_pack_spread(void **state)
{
	struct world *w = *state;

	w->class.isolation.mode = ISOLATION_CORES;
	w->facts.mcpu = 4000;
	add(w, "a", MECHANISM_COOKIE, "0,16", 100);
	placed(w);
	has_cpus(&w->plan->cpus, "8-9,24-25");
	w->class.cpu.placement = PLACEMENT_SPREAD;
	placed(w);
	has_cpus(&w->plan->cpus, "8,12,24,28");
	w->class.cpu.smt = SMT_LEAVE_IDLE;
	placed(w);
	has_cpus(&w->plan->cpus, "8-9,12-13");
	/* More than a node: the span says whether that may be. */
	w->class.cpu.placement = PLACEMENT_PACK;
	w->class.cpu.smt = SMT_USE;
	w->facts.mcpu = 18000;
	refused(w, ENOSPC, "16.00");
	w->class.cpu.span = SPAN_MACHINE;
	placed(w);
	assert_int_equal(mask_weight(&w->plan->cpus), 18);
}

/* ---- what others have decided ---- */

static void test_given(void **state)
{
	struct world *w = *state;

	w->facts.cpus_given = true;
	w->facts.allowed_cpus = cpus_of("1,8-9");
	placed(w);
	has_cpus(&w->plan->cpus, "1,8-9");
	assert_true(w->plan->bound);
	assert_false(w->plan->set_cpus);
	w->policy.node.reserved = cpus_of("9");
	add(w, "a", MECHANISM_CORES, "17", 1000);
	placed(w);
	has_cpus(&w->plan->cpus, "8");
	has_cpus(&w->plan->wish, "1,8");
	assert_true(w->plan->set_cpus);
	has_reason(w, "8 are left");
	w->facts.allowed_cpus = cpus_of("1");
	refused(w, ENOSPC, "own their cores");
	w->facts.allowed_cpus = cpus_of("9");
	refused(w, EINVAL, "reserved");
}

static void test_given_cores(void **state)
{
	struct world *w = *state;

	w->facts.cpus_given = true;
	w->class.isolation.mode = ISOLATION_CORES;
	w->facts.allowed_cpus = cpus_of("1-3,17-19");
	add(w, "a", MECHANISM_COOKIE, "0-7", 1000);
	placed(w);
	has_cpus(&w->plan->cpus, "1-3,17-19");
	assert_false(w->plan->set_cpus);
	has_cpus(&w->plan->adjusts[0].cpus, "0,4-7");
	w->facts.allowed_cpus = cpus_of("1-3,17-18");
	refused(w, EINVAL, "CPU 3 and not CPU 19");
	w->facts.allowed_cpus = cpus_of("0-7,16-23");
	refused(w, EINVAL, "the last for another container");
	w->facts.allowed_cpus = cpus_of("1-3,17-19");
	w->policy.node.reserved = cpus_of("1");
	placed(w);
	has_cpus(&w->plan->cpus, "2-3,18-19");
	w->occupants[0].bound = true;
	refused(w, EINVAL, "held by container a");
}

/* Neither shrunk by a newcomer nor by plan_neighbours(), but given back what it lost at its start. */
static void test_bound_neighbour(void **state)
{
	struct world *w = *state;
	struct plan_adjust *back;
	size_t n;

	add(w, "a", MECHANISM_COOKIE, "0-3", 1000);
	w->occupants[0].bound = true;
	w->sets[7] = cpus_of("0-5");
	w->occupants[0].wish = &w->sets[7];
	add(w, "b", MECHANISM_CORES, "4,20", 2000);
	assert_int_equal(plan_neighbours(w->topo, w->occupants, 2, &back, &n), 0);
	assert_int_equal(n, 1);
	has_cpus(&back[0].cpus, "0-3,5");
	plan_adjusts_free(back, n);
	w->sets[1] = cpus_of("3,19");
	assert_int_equal(plan_neighbours(w->topo, w->occupants, 2, &back, &n), 0);
	assert_int_equal(n, 0);
	plan_adjusts_free(back, n);
}

static void test_unwritable(void **state)
{
	struct world *w = *state;

	w->facts.can_cpuset = false;
	placed(w);
	has_cpus(&w->plan->cpus, "0-31");
	assert_false(w->plan->set_cpus);
	assert_true(w->plan->bound);
	assert_false(w->plan->degraded);
	has_reason(w, "stays on CPUs 0-31");
	add(w, "a", MECHANISM_CORES, "4", 1000);
	refused(w, EOPNOTSUPP, "CPUs 4,20");
	w->facts.allowed_cpus = cpus_of("0-3");
	placed(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(test_mechanism),    WORLD_TEST(test_guard),       WORLD_TEST(test_balance),
		WORLD_TEST(test_span),         WORLD_TEST(test_memory_room), WORLD_TEST(test_shape),
		WORLD_TEST(test_leave_idle),   WORLD_TEST(test_reserved),    WORLD_TEST(test_cores),
		WORLD_TEST(test_cores_family), WORLD_TEST(test_cores_order), WORLD_TEST(test_cores_stages),
		WORLD_TEST(test_cores_spares), WORLD_TEST(test_exclusive),   WORLD_TEST(test_pack_spread),
		WORLD_TEST(test_given),        WORLD_TEST(test_given_cores), WORLD_TEST(test_bound_neighbour),
		WORLD_TEST(test_unwritable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
