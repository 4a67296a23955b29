#include "machine.h"

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

struct mask cpus_of(const char *list)
{
	struct mask m;

	if (mask_parse(list, &m) < 0)
		abort();
	return m;
}

static void add_node(struct topology *t, unsigned package, bool has_cpus, uint64_t memory)
{
	struct topo_node *node = &t->nodes[t->n_nodes];

	*node = (struct topo_node){
		.id = (uint8_t) t->n_nodes,
		.has_cpus = has_cpus,
		.tier = has_cpus ? TIER_DRAM : TIER_CXL,
		.package = (uint16_t) package,
		.memory = memory,
	};
	if (memory)
		t->memory_nodes |= UINT64_C(1) << node->id;
	t->n_nodes++;
}

struct topology *machine_topology(const struct machine *m)
{
	struct topology *t = must(calloc(1, sizeof(*t)));
	unsigned nodes = m->packages * m->nodes, cores = nodes * m->llcs * m->cores;

	t->n_cores = cores;
	t->n_llcs = nodes * m->llcs;
	t->n_packages = m->packages;
	t->smt = m->smt;
	t->cpus = must(calloc(cores * m->smt, sizeof(*t->cpus)));
	t->nodes = must(calloc(nodes + m->slow_nodes, sizeof(*t->nodes)));
	for (unsigned id = 0; id < cores * m->smt; id++) {
		unsigned core = id % cores, llc = core / m->cores, node = llc / m->llcs;

		t->cpus[t->n_cpus++] = (struct topo_cpu){
			.id = (uint16_t) id,
			.core = (uint16_t) core,
			.llc = (uint16_t) llc,
			.node = (int16_t) node,
			.package = (uint16_t) (node / m->nodes),
		};
		mask_set(&t->online, id);
	}
	for (unsigned i = 0; i < nodes; i++)
		add_node(t, i / m->nodes, true, m->memory);
	for (unsigned i = 0; i < m->slow_nodes; i++)
		add_node(t, i % m->packages, false, m->memory * 2);
	t->distances = must(calloc(t->n_nodes, t->n_nodes));
	for (size_t from = 0; from < t->n_nodes; from++)
		for (size_t to = 0; to < t->n_nodes; to++) {
			bool same_package = t->nodes[from].package == t->nodes[to].package;
			bool slow = !t->nodes[from].has_cpus || !t->nodes[to].has_cpus;

			t->distances[from * t->n_nodes + to] =
				(uint8_t) (from == to ? 10 : (same_package ? 12 : 21) + (slow ? 5 : 0));
		}
	return t;
}

uint64_t draw(uint64_t *random, uint64_t below)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random % below;
}

struct mask draw_cpus(uint64_t *random, const struct topology *t, unsigned one_in)
{
	struct mask m = { 0 };

	MASK_FOR_EACH(cpu, &t->online)
		if (draw(random, one_in) == 0)
			mask_set(&m, cpu);
	return m;
}

void machine_offline(struct topology *t, const struct mask *cpus)
{
	size_t kept = 0;

	for (size_t i = 0; i < t->n_cpus; i++)
		if (!mask_test(cpus, t->cpus[i].id))
			t->cpus[kept++] = t->cpus[i];
	t->n_cpus = kept;
	mask_andnot(&t->online, cpus);
}

const struct topo_cpu *cpu_of(const struct topology *t, unsigned id)
{
	for (size_t i = 0; i < t->n_cpus; i++)
		if (t->cpus[i].id == id)
			return &t->cpus[i];
	return NULL;
}
