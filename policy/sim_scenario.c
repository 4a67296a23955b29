/* What a scenario brings along: its policy, and what it knows of the machine. */
#include <errno.h>

#include "sim.h"

int sim_policy(const struct sim_scenario *s, struct policy **ret_policy, struct error *err)
{
	struct policy_source source = { .name = s->file, .text = s->policy_text };

	if (!s->policy_text)
		return error_set(err, EINVAL, "%s: its policy is in another file, %s", s->file, s->policy_file);
	source.len = strlen(s->policy_text);
	return policy_parse(&source, 1, ret_policy, err);
}

int sim_topology(const struct sim_scenario *s, struct topology *topo, struct error *err)
{
	for (unsigned id = 0; id < NODE_MAX; id++)
		if (s->nodes[id].given && !topology_node(topo, id))
			return error_set(err, EINVAL, "%s:%u:%u: machine.nodes: the topology has no node %u", s->file,
					 s->nodes[id].line, s->nodes[id].column, id);
	for (size_t i = 0; i < topo->n_nodes; i++) {
		struct topo_node *node = &topo->nodes[i];
		const struct sim_node *given = &s->nodes[node->id];

		if (given->has_tier)
			node->tier = given->tier;
		if (given->bandwidth > 0)
			node->read_bandwidth = (uint32_t) (given->bandwidth * 1000 + 0.5);
		if (given->latency > 0)
			node->read_latency = (uint32_t) (given->latency + 0.5);
		if (!given->memory)
			continue;
		node->memory = given->memory;
		topo->memory_nodes |= node_bit(node->id);
	}
	return 0;
}
