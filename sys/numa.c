#include "discover.h"

#include <numa.h>

void numa_fill(struct topology *t)
{
	if (numa_available() < 0)
		return; /* a kernel without NUMA: hwloc made up node 0 with all memory */
	t->memory_nodes = 0;
	for (size_t i = 0; i < t->n_nodes; i++) {
		long long size = numa_node_size64(t->nodes[i].id, NULL);

		if (size >= 0)
			t->nodes[i].memory = (uint64_t) size;
		if (t->nodes[i].memory)
			t->memory_nodes |= node_bit(t->nodes[i].id);
		for (size_t k = 0; k < t->n_nodes; k++) {
			int distance = numa_distance(t->nodes[i].id, t->nodes[k].id);

			if (distance > 0)
				t->distances[i * t->n_nodes + k] = (uint8_t) (distance < 255 ? distance : 255);
		}
	}
}
