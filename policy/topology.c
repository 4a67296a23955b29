#include "topology.h"

#define DISTANCE_LOCAL 10.0
#define DISTANCE_REMOTE 20 /* REMOTE_DISTANCE of the kernel's include/linux/topology.h */

void topology_free(struct topology *t)
{
	if (!t)
		return;
	free(t->cpus);
	free(t->nodes);
	free(t->distances);
	free(t->key);
	free(t);
}

void topology_freep(struct topology **t)
{
	topology_free(*t);
	*t = NULL;
}

static int compare_node(const void *key, const void *element)
{
	return (int) *(const unsigned *) key - (int) ((const struct topo_node *) element)->id;
}

const struct topo_node *topology_node(const struct topology *t, unsigned id)
{
	if (id >= NODE_MAX || !t->n_nodes)
		return NULL;
	return bsearch(&id, t->nodes, t->n_nodes, sizeof(*t->nodes), compare_node);
}

size_t topology_words(const struct topology *t)
{
	return t->n_cpus ? t->cpus[t->n_cpus - 1].id / 64u + 1 : 0;
}

unsigned topology_distance(const struct topology *t, unsigned from, unsigned to)
{
	const struct topo_node *a = topology_node(t, from), *b = topology_node(t, to);

	if (!a || !b || !t->distances)
		return TOPO_DISTANCE_UNKNOWN;
	return t->distances[(size_t) (a - t->nodes) * t->n_nodes + (size_t) (b - t->nodes)];
}

double topology_distance_ratio(const struct topology *t, unsigned from, unsigned to)
{
	unsigned slit = topology_distance(t, from, to);

	return from == to ? 1 : (slit == TOPO_DISTANCE_UNKNOWN ? DISTANCE_REMOTE : slit) / DISTANCE_LOCAL;
}

void topology_whole_cores(const struct topology *t, const struct mask *cpus, struct mask *ret_whole)
{
	struct mask cores = { 0 }, whole = *cpus; /* `cores` holds core indices; there are no more cores than CPUs */

	for (size_t i = 0; i < t->n_cpus; i++)
		if (mask_test(cpus, t->cpus[i].id))
			mask_set(&cores, t->cpus[i].core);
	for (size_t i = 0; i < t->n_cpus; i++)
		if (mask_test(&cores, t->cpus[i].core))
			mask_set(&whole, t->cpus[i].id);
	*ret_whole = whole;
}
