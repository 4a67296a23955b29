/*
 * How long plan_place() takes, by containers that are there and by CPUs. `decide` prints a table; `decide CONTAINERS CPUS`
 * makes one decision on such a node, to be counted by callgrind.
 */
#include "../../policy/policy_keys.h"
#include "../unit/machine.h"
#include "plan.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#define ROUNDS 15
#define GIB (UINT64_C(1) << 30)

static const struct shape {
	const char *name;
	enum isolation_mode isolation;
	enum cpu_span span;
	enum cpu_placement placement;
	bool limit;
} shapes[] = {
	{ "its node, by cookie", ISOLATION_COOKIE, SPAN_NODE, PLACEMENT_AUTO, false },
	{ "packed, with a quota", ISOLATION_COOKIE, SPAN_MACHINE, PLACEMENT_PACK, true },
	{ "cores of its own", ISOLATION_CORES, SPAN_NODE, PLACEMENT_SPREAD, true },
};

struct node {
	struct topology *topo;
	struct policy policy;
	struct policy_class class;
	struct mask *sets;
	struct occupant *occupants;
	struct place_facts facts;
};

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

/* CPUs in cores of two threads, eight cores to a cache; up to eight nodes, and as many packages as halves of them. */
static struct machine machine_with(unsigned cpus)
{
	unsigned nodes = cpus >= 128 ? 8 : cpus >= 32 ? 2 : 1, cores = cpus / 2 / nodes, llcs = cores > 8 ? cores / 8 : 1;

	return (struct machine){
		.packages = nodes > 1 ? 2 : 1,
		.nodes = nodes > 1 ? nodes / 2 : 1,
		.llcs = llcs,
		.cores = cores / llcs,
		.smt = 2,
		.memory = 64 * GIB,
	};
}

/* Every container has a node to itself or one of its caches, as the engine gives them. */
static void fill(struct node *n, size_t containers)
{
	static char ids[CPU_MAX * 4][16];
	unsigned domains = n->topo->n_llcs + (unsigned) n->topo->n_nodes;

	n->sets = must(calloc(domains, sizeof(*n->sets)));
	n->occupants = must(calloc(containers + 1, sizeof(*n->occupants)));
	for (size_t i = 0; i < n->topo->n_cpus; i++) {
		const struct topo_cpu *cpu = &n->topo->cpus[i];

		mask_set(&n->sets[cpu->llc], cpu->id);
		mask_set(&n->sets[n->topo->n_llcs + (unsigned) cpu->node], cpu->id);
	}
	for (size_t i = 0; i < containers; i++) {
		const struct mask *set = &n->sets[i * 7 % domains];

		snprintf(ids[i], sizeof(ids[i]), "c%u", (unsigned) i);
		n->occupants[i] = (struct occupant){
			.id = ids[i],
			.group = ids[i % 50],
			.mechanism = MECHANISM_COOKIE,
			.mcpu = 100 + (unsigned) (i % 7) * 50,
			.memory = GIB / 16,
			.cpus = set,
			.wish = set,
		};
	}
}

static void node_new(struct node *n, unsigned cpus, size_t containers, const struct shape *shape)
{
	const struct machine m = machine_with(cpus);

	*n = (struct node){ .topo = machine_topology(&m), .class = { .name = "class" } };
	policy_key_defaults(SECTION_MODEL, SECTION_MODEL, &n->policy);
	n->class.isolation.mode = shape->isolation;
	n->class.cpu.span = shape->span;
	n->class.cpu.placement = shape->placement;
	n->facts = (struct place_facts){
		.topo = n->topo,
		.policy = &n->policy,
		.class = &n->class,
		.id = "new",
		.tenant = "new",
		.group = "new",
		.allowed_cpus = n->topo->online,
		.allowed_mems = n->topo->memory_nodes,
		.mcpu = 2000,
		.mcpu_is_limit = shape->limit,
		.memory = GIB,
		.can_cpuset = true,
		.can_weighted = true,
		.coresched = CORESCHED_SUPPORTED,
	};
	fill(n, containers);
	n->facts.occupants = n->occupants;
	n->facts.n_occupants = containers;
}

static void node_done(struct node *n)
{
	topology_free(n->topo);
	free(n->sets);
	free(n->occupants);
}

static double decide(const struct node *n)
{
	cleanup_error struct error err = { 0 };
	cleanup_plan struct plan *p = NULL;
	struct timespec from, to;
	int r;

	clock_gettime(CLOCK_MONOTONIC, &from);
	r = plan_place(&n->facts, &p, &err);
	clock_gettime(CLOCK_MONOTONIC, &to);
	if (r < 0) {
		fprintf(stderr, "decide: %s\n", error_text(&err));
		exit(1);
	}
	return (double) (to.tv_sec - from.tv_sec) * 1e6 + (double) (to.tv_nsec - from.tv_nsec) / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *) a, y = *(const double *) b;

	return (x > y) - (x < y);
}

static double median(unsigned cpus, size_t containers, const struct shape *shape)
{
	double us[ROUNDS];
	struct node n;

	node_new(&n, cpus, containers, shape);
	for (unsigned i = 0; i < ROUNDS; i++)
		us[i] = decide(&n);
	node_done(&n);
	qsort(us, ROUNDS, sizeof(*us), compare);
	return us[ROUNDS / 2];
}

static void table(const struct shape *shape)
{
	static const size_t containers[] = { 10, 100, 1000, 2000, 10000 };
	static const unsigned cpus[] = { 8, 64, 256, 1024, 4096 };

	printf("%s: us for one decision\n%12s", shape->name, "containers");
	for (size_t k = 0; k < ARRAY_LEN(cpus); k++)
		printf("%6u CPUs", cpus[k]);
	printf("\n");
	for (size_t i = 0; i < ARRAY_LEN(containers); i++) {
		printf("%12zu", containers[i]);
		for (size_t k = 0; k < ARRAY_LEN(cpus); k++)
			printf("%11.0f", median(cpus[k], containers[i], shape));
		printf("\n");
	}
	printf("  growth at 1024 CPUs from 1000 to 10000 containers: as the power %.2f of their number (budget 1)\n",
	       log10(median(1024, 10000, shape) / median(1024, 1000, shape)));
}

int main(int argc, char **argv)
{
	struct node n;

	if (argc == 3) {
		unsigned long containers = strtoul(argv[1], NULL, 10), cpus = strtoul(argv[2], NULL, 10);

		if (containers > CPU_MAX * 4 || cpus < 2 || cpus > CPU_MAX)
			return 2;
		node_new(&n, (unsigned) cpus, containers, &shapes[0]);
		decide(&n);
		node_done(&n);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
		table(&shapes[i]);
	return 0;
}
