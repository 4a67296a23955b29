/* The machine model against numbers worked out by hand. */
#include "machine.h"
#include "sim.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#define GIB (UINT64_C(1) << 30)

struct bench {
	struct topology *topo;
	struct sim_model model;
	struct mask sets[8];
	struct sim_load loads[8];
	size_t n;
	struct sim_state *state;
};

/* Two packages of one node and one cache of two cores each, two threads: node 0 is CPUs 0, 1, 4, 5. */
static int setup(void **state)
{
	static const struct machine m = {
		.packages = 2,
		.nodes = 1,
		.llcs = 1,
		.cores = 2,
		.smt = 2,
		.slow_nodes = 1,
		.memory = 64 * GIB,
	};
	struct bench *b = calloc(1, sizeof(*b));

	if (!b)
		return -1;
	b->topo = machine_topology(&m);
	b->model.smt_gain = 0.2;
	*state = b;
	return 0;
}

static int teardown(void **state)
{
	struct bench *b = *state;

	sim_state_free(b->state);
	topology_free(b->topo);
	free(b);
	return 0;
}

/* Of a group and tenant of its own, unless `group` is 0. */
static struct sim_load *add(struct bench *b, const char *cpus, double demand, unsigned group)
{
	struct sim_load *l = &b->loads[b->n];

	b->sets[b->n] = cpus_of(cpus);
	*l = (struct sim_load){
		.cpus = &b->sets[b->n],
		.demand = demand,
		.threads = demand,
		.group = group,
		.tenant = (unsigned) b->n,
		.local = true,
	};
	b->n++;
	return l;
}

static void look(struct bench *b)
{
	sim_state_free(b->state);
	b->state = NULL;
	assert_int_equal(sim_fluid(&b->model, b->topo, b->loads, b->n, &b->state), 0);
}

#define near(a, b) assert_float_equal((a), (b), 1e-4)
#define speed(i) (b->state->speeds[i].speed)

static void test_idle_machine(void **state)
{
	struct bench *b = *state;

	look(b);
	near(b->state->work, 0);
	near(b->state->forced_idle, 0);
	for (size_t i = 0; i < b->topo->n_cpus; i++)
		assert_true(b->state->cpus[i].load == SIZE_MAX);
}

static void test_threads_of_a_core(void **state)
{
	struct bench *b = *state;

	/* A core each. */
	add(b, "0-1", 1, 0);
	add(b, "0-1", 1, 0);
	look(b);
	near(speed(0), 1);
	near(speed(1), 1);
	near(b->state->insecure, 0);
	/* Both threads of one core do 1.2 together. */
	b->n = 0;
	add(b, "0", 1, 0);
	add(b, "4", 1, 0);
	look(b);
	near(speed(0), 0.6);
	near(speed(1), 0.6);
	near(b->state->work, 1.2);
	near(b->state->insecure, 1);
	near(b->state->forced_idle, 0);
	assert_true(b->state->cpus[0].load == 0 && b->state->cpus[4].load == 1);
	near(b->state->cpus[4].busy, 1);
	/* Both on one thread. */
	b->n = 0;
	add(b, "0", 1, 0);
	add(b, "0", 1, 0);
	look(b);
	near(speed(0), 0.5);
	near(speed(1), 0.5);
}

static void test_cookies(void **state)
{
	struct bench *b = *state;

	add(b, "0,4", 1, 1);
	add(b, "0,4", 1, 2);
	look(b);
	near(speed(0), 0.5);
	near(speed(1), 0.5);
	near(b->state->forced_idle, 1);
	near(b->state->insecure, 0);
	/* Of one group they run beside each other. */
	b->loads[1].group = 1;
	look(b);
	near(speed(0), 0.6);
	near(b->state->forced_idle, 0);
	/* Three groups, a third each; the one that uses both threads wastes nothing when it runs. */
	b->loads[1].group = 2;
	add(b, "0,4", 2, 3);
	look(b);
	near(speed(0), 1.0 / 3);
	near(speed(2), 1.2 / 3 / 2);
	near(b->state->forced_idle, 2.0 / 3);
	near(b->state->work, 2.0 / 3 + 1.2 / 3);
}

static void test_switching(void **state)
{
	struct bench *b = *state;

	add(b, "0,4", 1, 1)->switching = 0.7;
	look(b);
	near(speed(0), 0.3);
	b->loads[0].group = 0;
	look(b);
	near(speed(0), 1);
}

static void test_fair(void **state)
{
	struct bench *b = *state;

	/* One CPU: the one that wants little gets all of it. */
	add(b, "0", 0.2, 0);
	add(b, "0", 1, 0);
	look(b);
	near(speed(0), 1);
	near(speed(1), 0.8);
	/* More threads than CPUs: four CPUs of two cores do 2.4 of 8. */
	b->n = 0;
	add(b, "0-1,4-5", 8, 0);
	look(b);
	near(speed(0), 2.4 / 8);
	near(b->state->speeds[0].busy, 4);
}

static void test_caches(void **state)
{
	struct bench *b = *state;

	/* 20 GB/s each, 30 for a cache. */
	b->model.llc_bandwidth = 30;
	add(b, "0", 1, 0)->traffic = 20;
	add(b, "1", 1, 0)->traffic = 20;
	add(b, "2", 1, 0)->traffic = 20;
	look(b);
	near(speed(0), 0.75);
	near(speed(1), 0.75);
	near(speed(2), 1);
	/* Who does not stream does not care. */
	b->loads[1].traffic = 0;
	look(b);
	near(speed(0), 1);
	near(speed(1), 1);
}

static void test_node_bandwidth(void **state)
{
	struct bench *b = *state;

	/* The cache takes 36.28, the node 16. */
	b->topo->nodes[0].read_bandwidth = 16000;
	add(b, "0", 1, 0)->traffic = 20;
	add(b, "1", 1, 0)->traffic = 20;
	look(b);
	near(speed(0), 0.4);
	near(speed(1), 0.4);
	/* 3:1 over both nodes: the first limits to 16 of 30. */
	b->n = 1;
	b->loads[0].traffic = 30;
	b->loads[0].local = false;
	b->loads[0].weights[0] = 3;
	b->loads[0].weights[1] = 1;
	look(b);
	near(speed(0), 16 / 22.5);
	near(b->state->remote, 0.25);
	/* 1:1 is as slow as its slower half. */
	b->loads[0].weights[0] = 1;
	b->topo->nodes[1].read_bandwidth = 4200; /* and 2 by distance 2.1 */
	look(b);
	near(speed(0), 2 / 15.0);
	/* Unless a link is told. */
	b->model.link_bandwidth = 3;
	look(b);
	near(speed(0), 3 / 15.0);
}

static void test_distance(void **state)
{
	struct bench *b = *state;

	add(b, "0", 1, 0)->sensitivity = 0.5;
	look(b);
	near(speed(0), 1);
	near(b->state->speeds[0].remote, 0);
	/* Distance 21: 1.1 further, felt half of the time. */
	b->loads[0].local = false;
	b->loads[0].weights[1] = 1;
	look(b);
	near(speed(0), 1 / (1 + 0.5 * 1.1));
	near(b->state->speeds[0].remote, 1);
	/* The CXL node hangs on package 0: twice DRAM's latency, and no nearer one of its kind. */
	b->loads[0].weights[1] = 0;
	b->loads[0].weights[2] = 1;
	look(b);
	near(speed(0), 1 / 1.5);
	near(b->state->speeds[0].remote, 0);
	/* From package 1 it is further. */
	b->sets[0] = cpus_of("2");
	look(b);
	near(speed(0), 1 / (1 + 0.5 * (2 * 26.0 / 17 - 1)));
	near(b->state->speeds[0].remote, 1);
}

static void test_same_twice(void **state)
{
	struct bench *b = *state;
	struct sim_state *first;

	add(b, "0-7", 3.3, 1)->traffic = 11;
	add(b, "0-3", 2.7, 2)->sensitivity = 0.4;
	add(b, "0-1,4-5", 1.9, 3)->traffic = 7;
	add(b, "2,6", 1, 1);
	look(b);
	first = TAKE_PTR(b->state);
	look(b);
	assert_memory_equal(first->speeds, b->state->speeds, b->n * sizeof(*first->speeds));
	assert_memory_equal(first->cpus, b->state->cpus, b->topo->n_cpus * sizeof(*first->cpus));
	assert_memory_equal(&first->forced_idle, &b->state->forced_idle, sizeof(double));
	sim_state_free(first);
	for (size_t i = 0; i < b->n; i++)
		assert_true(speed(i) > 0 && speed(i) <= 1);
}

static unsigned rand_below(uint64_t *seed, unsigned end)
{
	*seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (unsigned) (*seed >> 33) % end;
}

/* Whatever the loads: nobody is faster than alone, and cores never do more than they can. */
static void test_bounds(void **state)
{
	struct bench *b = *state;
	uint64_t seed = 1;

	for (unsigned round = 0; round < 2000; round++) {
		double busy = 0, demand = 0;

		b->n = 0;
		for (unsigned i = 1 + rand_below(&seed, 8); i > 0; i--) {
			struct sim_load *l = add(b, "0", rand_below(&seed, 5000) / 1000.0, rand_below(&seed, 4));

			b->sets[b->n - 1].w[0] = 1 + rand_below(&seed, 255);
			l->threads = l->demand + rand_below(&seed, 4);
			l->traffic = rand_below(&seed, 30);
			demand += l->demand;
		}
		look(b);
		for (size_t i = 0; i < b->n; i++) {
			assert_true(speed(i) >= 0 && speed(i) <= 1);
			assert_true(b->state->speeds[i].busy <= b->loads[i].demand + 1e-6);
			busy += b->state->speeds[i].busy;
		}
		assert_true(b->state->work <= (demand < 4.8 ? demand : 4.8) + 1e-6);
		assert_true(busy + b->state->forced_idle <= 8 + 1e-6);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
		TEST(test_idle_machine), TEST(test_threads_of_a_core), TEST(test_cookies), TEST(test_switching),
		TEST(test_fair), TEST(test_caches), TEST(test_node_bandwidth), TEST(test_distance),
		TEST(test_same_twice), TEST(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
