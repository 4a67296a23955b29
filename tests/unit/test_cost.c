/*
 * What the cost of places promises, on random machines: the same for whatever the kernel calls CPUs, cores, caches and
 * nodes, for whatever order the containers are listed in, and never more when the machine has more to give.
 */
#include "machine.h"
#include "plan.h"
#include "../../policy/place.h"
#include "../../policy/policy_keys.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#define MACHINES 400
#define RESIDENTS 12
#define QUALITY 1000
#define GIB (UINT64_C(1) << 30)

struct world {
	uint64_t random;
	struct topology *topo;
	struct policy policy;
	struct policy_class class;
	struct mask sets[RESIDENTS];
	struct occupant occupants[RESIDENTS];
	struct place_facts facts;
};

/* What each thing of one machine is called on another. */
struct names {
	unsigned cpu[64], core[64], llc[64], package[8], node[NODE_MAX];
};

static void shuffled(struct world *w, unsigned n, unsigned *ret)
{
	for (unsigned i = 0; i < n; i++)
		ret[i] = i;
	for (unsigned i = n; i > 1; i--) {
		unsigned other = (unsigned) draw(&w->random, i), kept = ret[i - 1];

		ret[i - 1] = ret[other];
		ret[other] = kept;
	}
}

static void draw_world(struct world *w, struct machine *m, bool owners)
{
	static const char *const groups[] = { "a", "b", "c" };
	static const char *const ids[RESIDENTS] = { "r0", "r1", "r2", "r3", "r4",  "r5",
						    "r6", "r7", "r8", "r9", "r10", "r11" };

	*m = (struct machine){
		.packages = 1 + (unsigned) draw(&w->random, 2),
		.nodes = 1 + (unsigned) draw(&w->random, 2),
		.llcs = 1 + (unsigned) draw(&w->random, 3),
		.cores = 1 + (unsigned) draw(&w->random, 2),
		.smt = 1 + (unsigned) draw(&w->random, 2),
		.slow_nodes = (unsigned) draw(&w->random, 3),
		.memory = 16 * GIB,
	};
	w->topo = machine_topology(m);
	w->policy = (struct policy){ 0 };
	policy_key_defaults(SECTION_MODEL, SECTION_MODEL, &w->policy);
	w->class = (struct policy_class){ .name = "class" };
	w->class.isolation.mode = owners && draw(&w->random, 3) == 0 ? ISOLATION_CORES : ISOLATION_COOKIE;
	w->class.isolation.on_unsupported = UNSUPPORTED_DEGRADE;
	w->class.cpu.placement = (enum cpu_placement) draw(&w->random, 3);
	w->class.cpu.level = (enum cpu_level) draw(&w->random, 4);
	w->class.cpu.span = (enum cpu_span) draw(&w->random, 5);
	w->class.memory.policy = (enum memory_policy) draw(&w->random, 3);
	w->facts = (struct place_facts){
		.topo = w->topo,
		.policy = &w->policy,
		.class = &w->class,
		.id = "new",
		.tenant = "a",
		.group = "a",
		.allowed_cpus = w->topo->online,
		.allowed_mems = w->topo->memory_nodes,
		.mcpu = 1 + (unsigned) draw(&w->random, 6000),
		.mcpu_is_limit = draw(&w->random, 2),
		.memory = draw(&w->random, 3) * 5 * GIB,
		.can_cpuset = true,
		.can_weighted = true,
		.coresched = CORESCHED_SUPPORTED,
		.occupants = w->occupants,
		.n_occupants = draw(&w->random, RESIDENTS + 1),
	};
	for (size_t i = 0; i < w->facts.n_occupants; i++) {
		w->sets[i] = draw_cpus(&w->random, w->topo, 1 + (unsigned) draw(&w->random, 3));
		if (mask_empty(&w->sets[i]))
			w->sets[i] = w->topo->online;
		w->occupants[i] = (struct occupant){
			.id = ids[i],
			.group = groups[draw(&w->random, ARRAY_LEN(groups))],
			.mechanism = draw(&w->random, 2) ? MECHANISM_COOKIE : MECHANISM_NONE,
			.streams = draw(&w->random, 2),
			.mcpu = (unsigned) draw(&w->random, 3000),
			.memory = draw(&w->random, 3) * 3 * GIB,
			.cpus = &w->sets[i],
			.wish = &w->sets[i],
		};
	}
}

static struct mask mask_renamed(const struct names *names, const struct mask *m)
{
	struct mask out = { 0 };

	MASK_FOR_EACH(cpu, m)
		mask_set(&out, names->cpu[cpu]);
	return out;
}

static nodemask nodes_renamed(const struct names *names, nodemask nodes)
{
	nodemask out = 0;

	NODEMASK_FOR_EACH (node, nodes)
		out |= node_bit(names->node[node]);
	return out;
}

static struct topology *topology_renamed(struct world *w, const struct machine *m, struct names *names)
{
	const struct topology *from = w->topo;
	struct topology *t = machine_topology(m);

	shuffled(w, (unsigned) from->n_cpus, names->cpu);
	shuffled(w, from->n_cores, names->core);
	shuffled(w, from->n_llcs, names->llc);
	shuffled(w, from->n_packages, names->package);
	shuffled(w, (unsigned) from->n_nodes, names->node);
	for (size_t i = 0; i < from->n_cpus; i++) {
		const struct topo_cpu *old = &from->cpus[i];

		t->cpus[names->cpu[old->id]] = (struct topo_cpu){
			.id = (uint16_t) names->cpu[old->id],
			.core = (uint16_t) names->core[old->core],
			.llc = (uint16_t) names->llc[old->llc],
			.package = (uint16_t) names->package[old->package],
			.node = (int16_t) names->node[old->node],
		};
	}
	t->memory_nodes = nodes_renamed(names, from->memory_nodes);
	for (size_t i = 0; i < from->n_nodes; i++) {
		struct topo_node *node = &t->nodes[names->node[i]];

		*node = from->nodes[i];
		node->id = (uint8_t) names->node[i];
		node->package = (uint16_t) names->package[from->nodes[i].package];
		for (size_t k = 0; k < from->n_nodes; k++)
			t->distances[names->node[i] * from->n_nodes + names->node[k]] =
				from->distances[i * from->n_nodes + k];
	}
	return t;
}

/* What places a container costs, or -1 when it cannot be. */
static int64_t cost_now(const struct place_facts *f, struct cost *ret)
{
	cleanup_error struct error err = { 0 };
	cleanup_plan struct plan *p = NULL;

	if (plan_place(f, &p, &err) < 0)
		return -1;
	*ret = p->cost;
	for (unsigned i = 0; i < COST_TERMS; i++)
		assert_true(p->cost.terms[i] >= 0);
	return cost_sum(&p->cost);
}

static void differ(const struct world *w, const struct machine *m, uint64_t seed, int64_t before, const struct cost *a, int64_t after, const struct cost *b)
{
	for (unsigned i = 0; i < COST_TERMS; i++)
		if (a->terms[i] != b->terms[i])
			print_message("%s: %lld, then %lld\n", cost_term_name(i), (long long) a->terms[i],
				      (long long) b->terms[i]);
	print_message("%u packages of %u nodes of %u caches of %u cores of %u threads, %u slow nodes; span %d, placement %d, level %d, "
		      "memory %d, %u mCPU%s, %zu others\n",
		      m->packages, m->nodes, m->llcs, m->cores, m->smt, m->slow_nodes, w->class.cpu.span,
		      w->class.cpu.placement, w->class.cpu.level, w->class.memory.policy, w->facts.mcpu,
		      w->facts.mcpu_is_limit ? " at most" : "", w->facts.n_occupants);
	fail_msg("seed %llu: %lld, then %lld", (unsigned long long) seed, (long long) before, (long long) after);
}

static void test_names_do_not_matter(void **state)
{
	struct world w = { 0 };
	unsigned placed = 0;

	(void) state;
	for (uint64_t seed = 1; seed <= MACHINES; seed++) {
		struct cost a = { 0 }, b = { 0 };
		struct topology *renamed;
		struct names names;
		struct mask sets[RESIDENTS];
		struct machine m;
		int64_t before, after;

		w.random = seed * UINT64_C(0x9e3779b97f4a7c15);
		draw_world(&w, &m, false);
		before = cost_now(&w.facts, &a);
		renamed = topology_renamed(&w, &m, &names);
		w.facts.topo = renamed;
		w.facts.allowed_cpus = mask_renamed(&names, &w.facts.allowed_cpus);
		w.facts.allowed_mems = nodes_renamed(&names, w.facts.allowed_mems);
		for (size_t i = 0; i < w.facts.n_occupants; i++) {
			sets[i] = mask_renamed(&names, &w.sets[i]);
			w.occupants[i].cpus = w.occupants[i].wish = &sets[i];
		}
		after = cost_now(&w.facts, &b);
		if (before != after)
			differ(&w, &m, seed, before, &a, after, &b);
		placed += before >= 0;
		topology_free(renamed);
		topology_free(w.topo);
	}
	assert_true(placed > MACHINES / 2);
}

static void test_order_does_not_matter(void **state)
{
	struct world w = { 0 };

	(void) state;
	for (uint64_t seed = 1; seed <= MACHINES; seed++) {
		struct occupant mixed[RESIDENTS];
		unsigned order[RESIDENTS];
		struct cost a = { 0 }, b = { 0 };
		struct machine m;
		int64_t before, after;

		w.random = seed * UINT64_C(0x9e3779b97f4a7c15);
		draw_world(&w, &m, true);
		before = cost_now(&w.facts, &a);
		shuffled(&w, (unsigned) w.facts.n_occupants, order);
		for (size_t i = 0; i < w.facts.n_occupants; i++)
			mixed[i] = w.occupants[order[i]];
		w.facts.occupants = mixed;
		after = cost_now(&w.facts, &b);
		if (before != after)
			differ(&w, &m, seed, before, &a, after, &b);
		topology_free(w.topo);
	}
}

/*
 * One more package, as the last, with nobody on it. Owners are left out: they first of all push nobody aside, and pay for
 * that with distance.
 */
static void test_more_is_never_worse(void **state)
{
	struct world w = { 0 };
	unsigned better = 0;

	(void) state;
	for (uint64_t seed = 1; seed <= MACHINES; seed++) {
		struct topology *larger;
		struct cost a = { 0 }, b = { 0 };
		struct machine m;
		struct names names = { .cpu = { 0 } };
		struct mask sets[RESIDENTS];
		int64_t before, after;
		unsigned cores;

		w.random = seed * UINT64_C(0x9e3779b97f4a7c15);
		draw_world(&w, &m, false);
		/* CPU-less nodes are numbered behind the others, so that they would move. */
		m.slow_nodes = 0;
		topology_free(w.topo);
		w.topo = machine_topology(&m);
		w.facts.topo = w.topo;
		w.facts.allowed_mems = w.topo->memory_nodes;
		before = cost_now(&w.facts, &a);
		cores = m.packages * m.nodes * m.llcs * m.cores;
		m.packages++;
		larger = machine_topology(&m);
		for (unsigned i = 0; i < cores * m.smt; i++)
			names.cpu[i] = i % cores + i / cores * larger->n_cores;
		for (size_t i = 0; i < w.facts.n_occupants; i++) {
			sets[i] = mask_renamed(&names, &w.sets[i]);
			w.occupants[i].cpus = w.occupants[i].wish = &sets[i];
		}
		w.facts.topo = larger;
		w.facts.allowed_cpus = larger->online;
		w.facts.allowed_mems = larger->memory_nodes;
		after = cost_now(&w.facts, &b);
		if (after < 0 ? before >= 0 : before >= 0 && after > before)
			differ(&w, &m, seed, before, &a, after, &b);
		better += before < 0 || after < before;
		topology_free(larger);
		topology_free(w.topo);
	}
	assert_true(better > MACHINES / 8);
}

/* Below a thousandth of a CPU nothing is lost. */
static double at_least(double cost)
{
	return cost > MICRO_CPUS / 1000 ? cost : MICRO_CPUS / 1000;
}

static int compare_ratios(const void *a, const void *b)
{
	double x = *(const double *) a, y = *(const double *) b;

	return (x > y) - (x < y);
}

/*
 * Against all sets of CPUs of one domain of the class's span, one by one. The median is held; the
 * worst is only shown: the engine gives a container all of a domain, or whole cores that nobody was given, where a choice
 * of the cores that are least crowded may cost less.
 */
static void test_quality(void **state)
{
	static const enum cpu_span spans[] = { SPAN_MACHINE, SPAN_PACKAGE, SPAN_NODE, SPAN_LLC };
	double ratios[QUALITY];
	struct world w = { 0 };
	unsigned n = 0;

	(void) state;
	for (uint64_t seed = 1; n < QUALITY; seed++) {
		cleanup_error struct error err = { 0 };
		cleanup_plan struct plan *p = NULL;
		cleanup_board struct board *b = NULL;
		struct machine m;
		double best = INFINITY, ours;

		w.random = seed * UINT64_C(0x9e3779b97f4a7c15);
		draw_world(&w, &m, false);
		w.class.cpu.span = spans[draw(&w.random, ARRAY_LEN(spans))];
		if (w.topo->n_cpus > 12 || plan_place(&w.facts, &p, &err) < 0) {
			topology_free(w.topo);
			continue;
		}
		ours = (double) cost_sum(&p->cost);
		assert_int_equal(board_new(&w.facts, p, &b), 0);
		for (unsigned bits = 1; bits < 1u << w.topo->n_cpus; bits++) {
			const struct topo_cpu *first = &w.topo->cpus[__builtin_ctz(bits)];
			struct mask cpus = { .w = { bits } }, domain;
			struct cost cost = { 0 };

			domain_cpus(w.topo, w.class.cpu.span, domain_of(first, w.class.cpu.span), &domain);
			if (!mask_subset(&cpus, &domain))
				continue;
			cost_of_cpus(b, b->all_cores, b->n_cores, &cpus, &cost);
			if ((double) cost_sum(&cost) < best)
				best = (double) cost_sum(&cost);
		}
		ratios[n] = at_least(ours) / at_least(best);
		n++;
		topology_free(w.topo);
	}
	qsort(ratios, n, sizeof(*ratios), compare_ratios);
	print_message("against the best of all sets: median %.3f, one in ten above %.3f, one in a hundred above %.3f, worst %.3f\n",
		      ratios[n / 2], ratios[n * 9 / 10], ratios[n * 99 / 100], ratios[n - 1]);
	assert_true(ratios[n / 2] < 1.0005);
}

/* A core's loss grows with its load, the faster the more there is already, and by no more than the load. */
static void test_loss_of_a_core(void **state)
{
	struct policy policy = { 0 };

	(void) state;
	policy_key_defaults(SECTION_MODEL, SECTION_MODEL, &policy);
	for (unsigned threads = 1; threads <= 8; threads *= 2) {
		int64_t last = core_loss(&policy.node.model, threads, 0), step = 0;

		assert_int_equal(last, 0);
		for (uint64_t load = 10000; load <= 10 * UINT64_C(1000000); load += 10000) {
			int64_t now = core_loss(&policy.node.model, threads, load);

			/* By 2: of truncation. */
			assert_true(now - last >= step - 2 && now - last <= 10000 + 2);
			step = now - last;
			last = now;
		}
		assert_true(last >= 10 * MICRO_CPUS - (int64_t) threads * MICRO_CPUS);
	}
}

static void test_deciding(void **state)
{
	const struct cost worse = { .terms = { [COST_CPU] = 5, [COST_TIER] = 9 } },
			  better = { .terms = { [COST_CPU] = 1, [COST_TIER] = 8, [COST_MOVE] = 2 } };

	(void) state;
	assert_int_equal(cost_sum(&worse), 14);
	assert_int_equal(cost_deciding(&worse, &better), COST_CPU);
	assert_int_equal(cost_deciding(&better, &worse), COST_MOVE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_do_not_matter), cmocka_unit_test(test_order_does_not_matter),
		cmocka_unit_test(test_more_is_never_worse), cmocka_unit_test(test_loss_of_a_core),
		cmocka_unit_test(test_deciding), cmocka_unit_test(test_quality),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
