#include "many_world.h"
#include "../../policy/policy_keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

static void refresh(struct crew *c)
{
	c->facts.topo = c->topo;
	c->facts.policy = &c->policy;
	c->facts.containers = c->containers;
	c->facts.n = c->n;
}

struct crew *crew_new(const struct machine *m)
{
	struct crew *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->topo = machine_topology(m);
	policy_key_defaults(SECTION_MODEL, SECTION_MODEL, &c->policy);
	c->facts.coresched = CORESCHED_SUPPORTED;
	c->facts.can_weighted = true;
	refresh(c);
	return c;
}

void crew_freep(struct crew **c)
{
	if (*c)
		topology_free((*c)->topo);
	free(*c);
	*c = NULL;
}

struct container *crew_add(struct crew *c, const char *id, unsigned mcpu)
{
	size_t i = c->n++;

	snprintf(c->ids[i], sizeof(c->ids[i]), "%s", id);
	c->classes[i] = (struct policy_class){ .name = c->ids[i] };
	c->classes[i].rebalance =
		(struct rebalance){ .enabled = true, .max_moves_per_minute = 6, .min_gain = 0.05, .min_dwell_s = 60 };
	c->allowed[i] = c->topo->online;
	memset(c->resident[i], 0, sizeof(c->resident[i]));
	c->now[i] = (struct occupant){ .id = c->ids[i], .group = c->ids[i], .cpus = &c->cpus[i], .wish = &c->wish[i] };
	c->cpus[i] = c->wish[i] = (struct mask){ 0 };
	c->containers[i] = (struct container){
		.class = &c->classes[i],
		.id = c->ids[i],
		.tenant = c->ids[i],
		.group = c->ids[i],
		.allowed_cpus = &c->allowed[i],
		.allowed_mems = c->topo->memory_nodes,
		.can_cpuset = true,
		.mcpu = mcpu,
		.now = &c->now[i],
		.resident = c->resident[i],
	};
	refresh(c);
	return &c->containers[i];
}

size_t crew_find(const struct crew *c, const char *id)
{
	for (size_t i = 0; i < c->n; i++)
		if (str_eq(c->ids[i], id))
			return i;
	fail_msg("no container %s", id);
	abort();
}

void crew_runs(struct crew *c, const char *id, const char *cpus)
{
	size_t i = crew_find(c, id);

	c->cpus[i] = c->wish[i] = cpus_of(cpus);
	c->now[i].mechanism = MECHANISM_COOKIE;
}

void crew_owns(struct crew *c, const char *id, const char *cpus)
{
	size_t i = crew_find(c, id);

	crew_runs(c, id, cpus);
	c->now[i].mechanism = MECHANISM_CORES;
	c->classes[i].isolation.mode = ISOLATION_CORES;
}

void crew_memory(struct crew *c, const char *id, unsigned node, unsigned gib)
{
	size_t i = crew_find(c, id);

	c->resident[i][node] = gib * GIB;
	c->containers[i].memory += gib * GIB;
}

/* ---- doing ---- */

static nodemask nodes_of(const struct crew *c, const struct mask *cpus)
{
	nodemask nodes = 0;

	MASK_FOR_EACH(cpu, cpus) {
		const struct topo_cpu *at = cpu_of(c->topo, cpu);

		if (at && at->node >= 0)
			nodes |= node_bit((unsigned) at->node);
	}
	return nodes & c->topo->memory_nodes;
}

static void move_memory(struct crew *c, size_t i, const struct plan *p)
{
	nodemask nodes = p->memory_nodes ? p->memory_nodes : nodes_of(c, &p->cpus);
	uint64_t bytes = 0;

	for (unsigned node = 0; node < NODE_MAX; node++)
		bytes += c->resident[i][node];
	if (!nodes || (bytes && !c->classes[i].memory.migrate))
		return;
	if (!bytes)
		bytes = c->containers[i].memory;
	memset(c->resident[i], 0, sizeof(c->resident[i]));
	NODEMASK_FOR_EACH(node, nodes)
		c->resident[i][node] = bytes / bit_count(nodes);
}

void crew_apply(struct crew *c, const char *id, const struct plan *p)
{
	size_t i = crew_find(c, id);

	for (size_t k = 0; k < p->n_adjusts; k++) {
		size_t other = crew_find(c, p->adjusts[k].id);

		assert_int_not_equal(other, i);
		assert_false(occupant_owns(&c->now[other]));
		assert_false(mask_empty(&p->adjusts[k].cpus));
		assert_true(mask_subset(&p->adjusts[k].cpus, &c->wish[other]));
		if (c->now[other].bound)
			assert_true(mask_subset(&c->cpus[other], &p->adjusts[k].cpus));
		c->cpus[other] = p->adjusts[k].cpus;
	}
	c->cpus[i] = p->cpus;
	c->wish[i] = p->wish;
	c->now[i].mechanism = p->mechanism;
	c->now[i].exclusive = p->exclusive;
	c->now[i].bound = p->bound;
	c->now[i].mcpu = p->mcpu;
	c->now[i].memory = p->memory;
	c->now[i].streams = p->streams;
	c->now[i].mems = p->memory_nodes;
	move_memory(c, i, p);
}

void crew_check(const struct crew *c)
{
	for (size_t i = 0; i < c->n; i++) {
		struct mask own;

		if (!occupant_owns(&c->now[i]))
			continue;
		topology_whole_cores(c->topo, &c->cpus[i], &own);
		for (size_t k = 0; k < c->n; k++) {
			struct mask whole;

			if (k == i || (!c->now[i].exclusive && str_eq(c->now[i].group, c->now[k].group)))
				continue;
			topology_whole_cores(c->topo, &c->cpus[k], &whole);
			if (mask_intersects(&own, &whole))
				fail_msg("%s shares a core with %s, which owns it", c->ids[k], c->ids[i]);
		}
	}
}

/* ---- random ones ---- */

uint64_t crew_draw(struct crew *c, uint64_t below)
{
	c->random ^= c->random << 13;
	c->random ^= c->random >> 7;
	c->random ^= c->random << 17;
	return c->random % below;
}

static void draw_class(struct crew *c, struct policy_class *class)
{
	static const enum isolation_mode modes[] = { ISOLATION_NONE, ISOLATION_COOKIE, ISOLATION_COOKIE,
						     ISOLATION_COOKIE, ISOLATION_CORES };

	class->isolation.mode = modes[crew_draw(c, ARRAY_LEN(modes))];
	class->isolation.on_unsupported = UNSUPPORTED_DEGRADE;
	class->cpu.span = (enum cpu_span) crew_draw(c, 5);
	class->cpu.placement = (enum cpu_placement) crew_draw(c, 3);
	class->cpu.level = (enum cpu_level) crew_draw(c, 4);
	class->cpu.exclusive = crew_draw(c, 12) == 0;
	class->cpu.smt = crew_draw(c, 6) ? SMT_USE : SMT_LEAVE_IDLE;
	class->memory.policy = crew_draw(c, 3) ? MEMORY_INHERIT : (enum memory_policy) crew_draw(c, 6);
	class->memory.n_tiers = 1;
	class->memory.tiers[0] = TIER_DRAM;
	class->memory.migrate = crew_draw(c, 2);
	class->rebalance.enabled = crew_draw(c, 6) != 0;
	class->rebalance.max_moves_per_minute = 1000;
}

static void draw_container(struct crew *c, struct container *one)
{
	static const char *const groups[] = { "a", "b", "c", "d", "e", "f" };
	struct mask *allowed = &c->allowed[one - c->containers];

	one->group = one->tenant = groups[crew_draw(c, ARRAY_LEN(groups))];
	c->now[one - c->containers].group = one->group;
	if (crew_draw(c, 5) == 0) {
		MASK_FOR_EACH(cpu, &c->topo->online)
			if (crew_draw(c, 3) == 0)
				mask_clear(allowed, cpu);
		topology_whole_cores(c->topo, allowed, allowed);
		one->cpus_given = crew_draw(c, 2);
	}
	one->mcpu_is_limit = crew_draw(c, 3) == 0;
	one->memory = crew_draw(c, 4) * 2 * GIB;
	one->can_cpuset = crew_draw(c, 16) != 0;
}

struct crew *crew_random(uint64_t seed, size_t most)
{
	struct crew draw = { .random = seed * UINT64_C(0x9e3779b97f4a7c15) }, *c;
	const struct machine m = {
		.packages = 1 + (unsigned) crew_draw(&draw, 2),
		.nodes = 1 + (unsigned) crew_draw(&draw, 2),
		.llcs = 1 + (unsigned) crew_draw(&draw, 2),
		.cores = 1 + (unsigned) crew_draw(&draw, 4),
		.smt = 1 + (unsigned) crew_draw(&draw, 2),
		.memory = 16 * GIB,
	};
	size_t n = 1 + crew_draw(&draw, most);

	c = crew_new(&m);
	c->random = draw.random;
	if (crew_draw(c, 3) == 0)
		mask_set(&c->policy.node.reserved, (unsigned) crew_draw(c, c->topo->n_cpus));
	for (size_t i = 0; i < n; i++) {
		char id[16];

		snprintf(id, sizeof(id), "c%u", (unsigned) i);
		struct container *one = crew_add(c, id, 250 * (1 + (unsigned) crew_draw(c, 8)));

		draw_class(c, &c->classes[i]);
		draw_container(c, one);
	}
	return c;
}

/* Moves what belongs to a container to another slot. */
static void copy_slot(struct crew *c, size_t to, size_t from)
{
	if (to == from)
		return;
	c->classes[to] = c->classes[from];
	c->cpus[to] = c->cpus[from];
	c->wish[to] = c->wish[from];
	c->allowed[to] = c->allowed[from];
	memcpy(c->resident[to], c->resident[from], sizeof(c->resident[to]));
	memcpy(c->ids[to], c->ids[from], sizeof(c->ids[to]));
	c->now[to] = c->now[from];
	c->containers[to] = c->containers[from];
}

static void point(struct crew *c, size_t i)
{
	bool own_group = str_eq(c->containers[i].group, c->containers[i].id);

	c->classes[i].name = c->containers[i].id = c->now[i].id = c->ids[i];
	if (own_group)
		c->containers[i].group = c->containers[i].tenant = c->now[i].group = c->ids[i];
	c->containers[i].class = &c->classes[i];
	c->containers[i].allowed_cpus = &c->allowed[i];
	c->containers[i].now = &c->now[i];
	c->containers[i].resident = c->resident[i];
	c->now[i].cpus = &c->cpus[i];
	c->now[i].wish = &c->wish[i];
}

void crew_remove(struct crew *c, size_t i)
{
	copy_slot(c, i, --c->n);
	point(c, i);
	refresh(c);
}

void crew_shuffle(struct crew *c)
{
	for (size_t i = c->n; i > 1; i--) {
		size_t k = crew_draw(c, i);
		struct container swap = c->containers[i - 1];

		/* What they point to stays where it is. */
		c->containers[i - 1] = c->containers[k];
		c->containers[k] = swap;
	}
}

void crew_unshuffle(struct crew *c)
{
	struct container list[CREW_MAX];

	for (size_t i = 0; i < c->n; i++)
		list[crew_find(c, c->containers[i].id)] = c->containers[i];
	memcpy(c->containers, list, c->n * sizeof(*list));
}

struct plan *crew_place(const struct crew *c, size_t i)
{
	const struct container *one = &c->containers[i];
	struct occupant others[CREW_MAX];
	struct plan *p = NULL;
	size_t n = 0;

	for (size_t k = 0; k < c->n; k++)
		if (k != i && !mask_empty(&c->cpus[k]))
			others[n++] = c->now[k];
	const struct place_facts f = {
		.topo = c->topo,
		.policy = &c->policy,
		.class = one->class,
		.id = one->id,
		.tenant = one->tenant,
		.group = one->group,
		.allowed_cpus = *one->allowed_cpus,
		.allowed_mems = one->allowed_mems,
		.cpus_given = one->cpus_given,
		.mems_given = one->mems_given,
		.mcpu = one->mcpu,
		.mcpu_is_limit = one->mcpu_is_limit,
		.memory = one->memory,
		.can_cpuset = one->can_cpuset,
		.can_weighted = c->facts.can_weighted,
		.coresched = c->facts.coresched,
		.occupants = others,
		.n_occupants = n,
	};

	return plan_place(&f, &p, NULL) == 0 ? p : NULL;
}

void crew_settle(struct crew *c)
{
	for (size_t i = 0; i < c->n; i++) {
		cleanup_plan struct plan *p = mask_empty(&c->cpus[i]) ? crew_place(c, i) : NULL;

		if (p)
			crew_apply(c, c->ids[i], p);
		else if (mask_empty(&c->cpus[i]))
			crew_remove(c, i--);
	}
}
