#include "place.h"

#include <errno.h>
#include <inttypes.h>

#define MIB (1u << 20)

/* Nodes with memory that the container may use. No cpuset is ever empty, so an empty set stands for "not known". */
static nodemask allowed_nodes(const struct place_facts *f)
{
	return f->topo->memory_nodes & (f->allowed_mems ? f->allowed_mems : ~UINT64_C(0));
}

enum memory_tier memory_tier_of(const struct place_facts *f, const struct topo_node *node)
{
	for (unsigned tier = 0; tier < TIER_COUNT; tier++)
		if (f->policy->node.tiers[tier] & node_bit(node->id))
			return (enum memory_tier) tier;
	return node->tier;
}

static nodemask tier_nodes(const struct place_facts *f, enum memory_tier tier)
{
	nodemask nodes = 0;

	for (size_t i = 0; i < f->topo->n_nodes; i++)
		if (memory_tier_of(f, &f->topo->nodes[i]) == tier)
			nodes |= node_bit(f->topo->nodes[i].id);
	return nodes & f->topo->memory_nodes;
}

/* Of `set`, the nodes nearest to the CPUs of node `from`: itself, else by HMAT, else by SLIT. */
static nodemask nearest_to(const struct topology *t, unsigned from, nodemask set)
{
	nodemask attached = 0, nearest = 0;
	unsigned least = ~0u;

	if (set & node_bit(from))
		return node_bit(from);
	NODEMASK_FOR_EACH(node, set) {
		const struct topo_node *n = topology_node(t, node);
		unsigned distance = topology_distance(t, from, node);

		if (n && n->initiators & node_bit(from))
			attached |= node_bit(node);
		if (distance < least)
			nearest = 0;
		if (distance <= least)
			nearest |= node_bit(node);
		least = distance < least ? distance : least;
	}
	return attached ? attached : nearest;
}

static nodemask nearest_to_all(const struct topology *t, nodemask local, nodemask set)
{
	nodemask nodes = 0;

	if (!local)
		return set;
	NODEMASK_FOR_EACH(from, local)
		nodes |= nearest_to(t, from, set);
	return nodes;
}

static bool names_nodes(enum memory_policy policy)
{
	switch (policy) {
	case MEMORY_BIND:
	case MEMORY_PREFERRED:
	case MEMORY_INTERLEAVE:
	case MEMORY_WEIGHTED:
		return true;
	case MEMORY_INHERIT:
	case MEMORY_LOCAL:
		break;
	}
	return false;
}

bool memory_names_nodes(const struct place_facts *f)
{
	return !f->spec_memory_policy && names_nodes(f->class->memory.policy);
}

static nodemask nodes_by_tiers(const struct place_facts *f, nodemask local, const enum memory_tier *tiers, size_t n)
{
	nodemask nodes = 0;

	for (size_t i = 0; i < n; i++)
		nodes |= nearest_to_all(f->topo, local, tier_nodes(f, tiers[i]) & allowed_nodes(f));
	return nodes;
}

static nodemask dram_nodes(const struct place_facts *f, nodemask local)
{
	static const enum memory_tier dram = TIER_DRAM;

	return nodes_by_tiers(f, local, &dram, 1);
}

nodemask memory_nodes_for(const struct place_facts *f, nodemask local)
{
	const struct policy_class *c = f->class;

	if (!memory_names_nodes(f))
		return nearest_to_all(f->topo, local, allowed_nodes(f));
	if (c->memory.nodes)
		return c->memory.nodes & allowed_nodes(f);
	return nodes_by_tiers(f, local, c->memory.tiers, c->memory.n_tiers);
}

nodemask memory_near(const struct place_facts *f, unsigned from)
{
	return nearest_to(f->topo, from, allowed_nodes(f));
}

uint64_t memory_free_on(const struct board *b, nodemask nodes)
{
	uint64_t left = 0;

	for (size_t i = 0; i < b->topo->n_nodes; i++) {
		const struct topo_node *node = &b->topo->nodes[i];

		if (nodes & node_bit(node->id) && node->memory > b->memory_used[node->id])
			left = add_bytes(left, node->memory - b->memory_used[node->id]);
	}
	return left;
}

/* What was asked for in words: "nodes 2" or "tiers cxl, pmem". malloc'd, NULL when out of memory. */
static char *wanted_text(const struct policy_class *c)
{
	struct arena arena = { 0 };
	cleanup_free char *list = nodemask_format(c->memory.nodes);
	const char *text = c->memory.nodes ? arena_printf(&arena, "nodes %s", list ? list : "?") : "tiers";
	char *copy;

	for (size_t i = 0; text && !c->memory.nodes && i < c->memory.n_tiers; i++)
		text = arena_printf(&arena, "%s%s %s", text, i ? "," : "", memory_tier_name(c->memory.tiers[i]));
	copy = text ? strdup(text) : NULL;
	arena_done(&arena);
	return copy;
}

/* Nodes or tiers that are asked for and are not to be had, when others are. */
static void report_missing(const struct board *b)
{
	const struct place_facts *f = b->facts;
	const struct policy_class *c = f->class;
	nodemask missing = c->memory.nodes & ~allowed_nodes(f);
	cleanup_free char *list = nodemask_format(missing);

	if (missing) {
		plan_lack(b->plan, "memory nodes %s of class \"%s\" have no memory here or are not allowed to it",
			  list ? list : "?", c->name);
	}
	for (size_t i = 0; !c->memory.nodes && i < c->memory.n_tiers; i++) {
		if (tier_nodes(f, c->memory.tiers[i]) & allowed_nodes(f))
			continue;
		plan_lack(b->plan, "memory tier %s of class \"%s\" has no node here that the container may use",
			  memory_tier_name(c->memory.tiers[i]), c->name);
	}
}

/* Nothing of what the class asks for can be had. */
static int no_nodes(const struct board *b, struct error *err)
{
	const struct place_facts *f = b->facts;
	cleanup_free char *wanted = wanted_text(f->class), *allowed = nodemask_format(allowed_nodes(f));
	const char *what = wanted ? wanted : "memory nodes";

	if (f->mems_given)
		return error_set(err, EINVAL,
				 "container %s: class \"%s\" wants memory on %s, but the OCI spec allows nodes %s only",
				 f->id, f->class->name, what, allowed ? allowed : "?");
	if (f->class->isolation.on_unsupported == UNSUPPORTED_REFUSE)
		return error_set(
			err, EOPNOTSUPP,
			"container %s: class \"%s\" wants memory on %s, and of the nodes with memory that it may "
			"use (%s) none is that; name others in the class, put nodes into tiers by node.tiers, or "
			"set isolation.on_unsupported to degrade",
			f->id, f->class->name, what, allowed ? allowed : "?");
	b->plan->memory_policy = MEMORY_INHERIT;
	plan_lack(b->plan, "no memory policy: class \"%s\" wants memory on %s, which is not to be had here",
		  f->class->name, what);
	return 0;
}

/*
 * Without MPOL_WEIGHTED_INTERLEAVE the ratio cannot be had, and 1:1 over a slow tier is slower than the fast tier
 * alone. So DRAM alone it is.
 */
static int without_weighted(const struct board *b, nodemask local, nodemask *nodes, struct error *err)
{
	const struct place_facts *f = b->facts;
	nodemask dram = *nodes & tier_nodes(f, TIER_DRAM);

	if (f->class->isolation.on_unsupported == UNSUPPORTED_REFUSE)
		return error_set(err, EOPNOTSUPP,
				 "container %s: class \"%s\" wants weighted-interleave, which this kernel lacks; boot "
				 "Linux 6.9 or later, or set isolation.on_unsupported to degrade",
				 f->id, f->class->name);
	if (!dram)
		dram = dram_nodes(f, local);
	*nodes = dram ? dram : *nodes;
	b->plan->memory_policy = MEMORY_BIND;
	plan_lack(b->plan, "memory is bound to DRAM: this kernel lacks weighted-interleave (Linux 6.9), and an even "
			   "interleave with slower memory would be slower than DRAM alone");
	return 0;
}

/* Which nodes the cpuset must name so that the policy can work, where the cpuset is ours to write. */
static void set_mems(const struct board *b, nodemask local)
{
	struct plan *p = b->plan;

	if (!b->facts->can_cpuset || b->facts->mems_given)
		return;
	switch (p->memory_policy) {
	case MEMORY_BIND:
		p->mems = p->memory_nodes;
		p->set_mems = true;
		break;
	case MEMORY_INTERLEAVE:
	case MEMORY_WEIGHTED:
		p->mems &= p->memory_nodes | local;
		p->set_mems = true;
		break;
	/* First touch is local because the CPUs are, and pinning everybody to a node ends in the OOM killer. */
	case MEMORY_PREFERRED:
	case MEMORY_INHERIT:
	case MEMORY_LOCAL:
		break;
	}
}

static uint8_t weight_of(const struct place_facts *f, const struct weights *w, unsigned node)
{
	const struct topo_node *n = topology_node(f->topo, node);

	if (w->by_node || !n)
		return w->node[node];
	return w->tier[memory_tier_of(f, n)];
}

unsigned memory_weight(const struct place_facts *f, unsigned node)
{
	const struct policy_class *c = f->class;
	unsigned weight = 1;

	if (c->memory.policy != MEMORY_WEIGHTED || f->spec_memory_policy)
		return 1;
	if (c->memory.has_weights)
		weight = weight_of(f, &c->memory.weights, node);
	else if (f->policy->node.weights_mode == WEIGHTS_FIXED)
		weight = weight_of(f, &f->policy->node.weights, node);
	return weight ? weight : 1;
}

/* The kernel has one set of weights for the whole machine; a class that wants another ratio cannot get it there. */
static void compare_class_weights(const struct board *b)
{
	const struct place_facts *f = b->facts;
	const struct weights *own = &f->class->memory.weights;
	unsigned own_base = 0, base = 0;
	bool differs = !b->plan->set_weights;

	if (!f->class->memory.has_weights)
		return;
	NODEMASK_FOR_EACH(node, b->plan->memory_nodes) {
		unsigned own_weight = weight_of(f, own, node), weight = b->plan->weights[node];

		if (!base && !own_base) {
			own_base = own_weight;
			base = weight;
		}
		differs = differs || own_weight * base != weight * own_base;
	}
	if (!differs)
		return;
	NODEMASK_FOR_EACH(node, b->plan->memory_nodes)
		b->plan->ratio[node] = weight_of(f, own, node);
	plan_reason(b->plan,
		    "the ratio of class \"%s\" is its own: the kernel has one set of weights for the whole machine "
		    "(node.weights), so pages must be moved to reach it",
		    f->class->name);
}

static void set_weights(const struct board *b)
{
	const struct place_facts *f = b->facts;
	struct plan *p = b->plan;

	if (p->memory_policy != MEMORY_WEIGHTED)
		return;
	if (f->policy->node.weights_mode == WEIGHTS_FIXED)
		NODEMASK_FOR_EACH(node, f->topo->memory_nodes) {
			p->weights[node] = weight_of(f, &f->policy->node.weights, node);
			p->set_weights = p->set_weights || p->weights[node];
		}
	compare_class_weights(b);
}

static void check_fit(const struct board *b)
{
	cleanup_free char *list = nodemask_format(b->plan->memory_nodes);
	uint64_t left = memory_free_on(b, b->plan->memory_nodes);

	if (b->facts->memory > left)
		plan_reason(b->plan,
			    "its memory limit of %" PRIu64 " MiB is more than the %" PRIu64 " MiB that other "
			    "containers' limits leave on nodes %s",
			    b->facts->memory / MIB, left / MIB, list ? list : "?");
}

int place_memory(struct board *b, struct error *err)
{
	const struct place_facts *f = b->facts;
	struct plan *p = b->plan;
	nodemask local = nodes_of_cpus(b->topo, &p->cpus), nodes;
	int r;

	p->mems = allowed_nodes(f);
	p->memory_policy = f->class->memory.policy;
	if (f->spec_memory_policy) {
		if (p->memory_policy != MEMORY_INHERIT)
			plan_reason(p,
				    "the OCI spec has a linux.memoryPolicy of its own, which wins over class \"%s\"'s "
				    "%s",
				    f->class->name, memory_policy_name(p->memory_policy));
		p->memory_policy = MEMORY_INHERIT;
	}
	if (!names_nodes(p->memory_policy))
		return 0;
	nodes = memory_nodes_for(f, local);
	if (!nodes)
		return no_nodes(b, err);
	report_missing(b);
	if (p->memory_policy == MEMORY_WEIGHTED && !f->can_weighted) {
		r = without_weighted(b, local, &nodes, err);
		if (r < 0)
			return r;
	}
	p->memory_nodes = nodes;
	set_mems(b, local);
	set_weights(b);
	check_fit(b);
	return 0;
}
