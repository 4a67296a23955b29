#include "topology_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void check_cores(const char *name, const struct topology *t)
{
	cleanup_free unsigned *threads = calloc(t->n_cores, sizeof(*threads));
	cleanup_free const struct topo_cpu **first = calloc(t->n_cores, sizeof(*first));
	cleanup_free int *package_of_llc = calloc(t->n_llcs, sizeof(*package_of_llc));
	unsigned most = 0;

	assert_true(threads && first && package_of_llc);
	for (size_t i = 0; i < t->n_cpus; i++) {
		const struct topo_cpu *cpu = &t->cpus[i];

		check(cpu->core < t->n_cores && cpu->llc < t->n_llcs && cpu->package < t->n_packages);
		check(i == 0 || cpu->id > t->cpus[i - 1].id);
		check(mask_test(&t->online, cpu->id));
		if (!first[cpu->core])
			first[cpu->core] = cpu;
		check(first[cpu->core]->package == cpu->package && first[cpu->core]->llc == cpu->llc &&
		      first[cpu->core]->node == cpu->node);
		check(!package_of_llc[cpu->llc] || package_of_llc[cpu->llc] == cpu->package + 1);
		package_of_llc[cpu->llc] = cpu->package + 1;
		if (++threads[cpu->core] > most)
			most = threads[cpu->core];
	}
	for (unsigned core = 0; core < t->n_cores; core++)
		check(threads[core] > 0);
	for (unsigned llc = 0; llc < t->n_llcs; llc++)
		check(package_of_llc[llc]);
	check(most == t->smt);
	check(mask_weight(&t->online) == t->n_cpus);
}

static void check_nodes(const char *name, const struct topology *t)
{
	nodemask with_cpus = 0, with_memory = 0;

	for (size_t i = 0; i < t->n_cpus; i++) {
		const int node = t->cpus[i].node;

		if (node < 0)
			continue;
		check(topology_node(t, (unsigned) node) && topology_node(t, (unsigned) node)->has_cpus);
		check(topology_node(t, (unsigned) node)->memory > 0);
		with_cpus |= UINT64_C(1) << node;
	}
	for (size_t i = 0; i < t->n_nodes; i++) {
		const struct topo_node *node = &t->nodes[i];

		check(i == 0 || node->id > t->nodes[i - 1].id);
		check(node->package < t->n_packages);
		check(node->memory || node->has_cpus);
		check(!node->has_cpus || !node->memory || (with_cpus >> node->id & 1));
		check(topology_distance(t, node->id, node->id) == 10);
		if (node->memory)
			with_memory |= UINT64_C(1) << node->id;
		NODEMASK_FOR_EACH(from, node->initiators)
			check(with_cpus >> from & 1);
	}
	check(with_memory == t->memory_nodes && with_memory);
}

static void check_round_trip(const char *name, const struct topology *t)
{
	cleanup_topology struct topology *again = NULL;
	cleanup_free char *text = NULL;
	size_t len;

	check(topology_format(t, &text, &len) == 0);
	check(topology_parse(name, text, len, &again, NULL) == 0);
	check(again->n_cpus == t->n_cpus && again->n_nodes == t->n_nodes && again->smt == t->smt);
	check(again->n_cores == t->n_cores && again->n_llcs == t->n_llcs && again->n_packages == t->n_packages);
	check(memcmp(again->cpus, t->cpus, t->n_cpus * sizeof(*t->cpus)) == 0);
	check(memcmp(again->distances, t->distances, t->n_nodes * t->n_nodes) == 0);
	check(mask_equal(&again->online, &t->online) && again->memory_nodes == t->memory_nodes);
	for (size_t i = 0; i < t->n_nodes; i++) {
		const struct topo_node *x = &t->nodes[i], *y = &again->nodes[i];

		check(x->id == y->id && x->has_cpus == y->has_cpus && x->tier == y->tier && x->package == y->package);
		check(x->memory == y->memory && x->read_bandwidth == y->read_bandwidth &&
		      x->read_latency == y->read_latency && x->initiators == y->initiators);
	}
}

void topology_check(const char *name, const struct topology *t)
{
	check(t->n_cpus > 0 && t->n_nodes > 0);
	check_cores(name, t);
	check_nodes(name, t);
	check_round_trip(name, t);
}
