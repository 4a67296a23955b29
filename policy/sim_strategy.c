/* Ways of placing containers that the simulator compares. */
#include <errno.h>

#include "sim_internal.h"

static const struct {
	const char *name, *text;
} strategies[SIM_STRATEGIES] = {
	[SIM_ENGINE] = { "engine", "cotenant" },
	[SIM_NONE] = { "none", "no placement, tenants share cores" },
	[SIM_ROUND_ROBIN] = { "round-robin", "one CPU after another" },
	[SIM_KUBELET_STATIC] = { "kubelet-static", "whole cores for each container, in order" },
	[SIM_BALLOONS] = { "balloons", "whole cores for each tenant" },
	[SIM_HARD_BIND] = { "hard-bind", "bound by hand" },
	[SIM_EXHAUSTIVE] = { "exhaustive", "the best of all assignments to domains" },
};

const char *sim_strategy_name(enum sim_strategy s)
{
	return s < SIM_STRATEGIES ? strategies[s].name : NULL;
}

const char *sim_strategy_text(enum sim_strategy s)
{
	return s < SIM_STRATEGIES ? strategies[s].text : NULL;
}

static size_t cpus_for(double demand)
{
	size_t n = (size_t) demand;

	n += (double) n < demand;
	return n ? n : 1;
}

/* ---- engine ---- */

static unsigned mcpu_of(double demand)
{
	unsigned mcpu = (unsigned) (demand * 1000 + 0.5);

	return mcpu ? mcpu : 1;
}

enum coresched_support sim_coresched(const struct topology *t)
{
	return t->smt > 1 ? CORESCHED_SUPPORTED : CORESCHED_NO_SIBLINGS;
}

struct occupant sim_occupant_of(const struct sim_place *p)
{
	return (struct occupant){
		.id = p->container->id,
		.group = p->group_name,
		.mechanism = p->mechanism,
		.exclusive = p->exclusive,
		.bound = p->bound,
		.streams = p->streams,
		.weights = p->weighted,
		.mcpu = mcpu_of(p->demand),
		.memory = p->container->memory,
		.mems = p->mems,
		.cpus = &p->cpus,
		.wish = &p->wish,
	};
}

/* malloc'd: all but the last `but`, as the engine sees them. */
static struct occupant *occupants_of(const struct sim_world *w, size_t but, size_t *ret_n)
{
	struct occupant *list = calloc(w->n_places + 1, sizeof(*list));
	size_t n = 0;

	for (size_t i = 0; list && i + but < w->n_places; i++)
		if (!w->places[i].refused)
			list[n++] = sim_occupant_of(&w->places[i]);
	*ret_n = n;
	return list;
}

static void adjust(struct sim_world *w, const struct plan_adjust *adjusts, size_t n)
{
	for (size_t k = 0; k < n; k++)
		for (size_t i = 0; i < w->n_places; i++)
			if (str_eq(w->places[i].container->id, adjusts[k].id))
				w->places[i].cpus = adjusts[k].cpus;
}

static void take_memory(struct sim_place *p, const struct plan *plan)
{
	bool weighted = plan->memory_policy == MEMORY_WEIGHTED;
	bool named = plan->memory_policy != MEMORY_INHERIT && plan->memory_policy != MEMORY_LOCAL;

	p->mems = plan->memory_nodes;
	p->weighted = plan->set_weights;
	if (!named || !plan->memory_nodes)
		return;
	p->local = false;
	NODEMASK_FOR_EACH (node, plan->memory_nodes) {
		unsigned weight = plan->ratio[node] ? plan->ratio[node] : plan->weights[node];

		p->weights[node] = weighted && weight ? weight : 1;
	}
}

static void take_plan(struct sim_place *p, const struct plan *plan)
{
	p->mechanism = plan->mechanism;
	p->exclusive = plan->exclusive;
	p->bound = plan->bound;
	p->streams = plan->streams;
	p->pages_stay = !plan->migrate;
	p->cpus = plan->cpus;
	p->wish = plan->wish;
}

void sim_move(struct sim_world *w, struct sim_place *p, const struct plan *plan)
{
	take_plan(p, plan);
	if (!p->pages_stay) {
		if (!p->local && p->mems != plan->memory_nodes)
			w->result->moved_bytes += p->container->memory;
		memset(p->weights, 0, sizeof(p->weights));
		p->local = true;
		take_memory(p, plan);
	}
	adjust(w, plan->adjusts, plan->n_adjusts);
}

static int arrive_engine(struct sim_world *w, struct sim_place *p)
{
	cleanup_free struct occupant *occupants = NULL;
	cleanup_plan struct plan *plan = NULL;
	cleanup_error struct error err = { 0 };
	struct place_facts facts = {
		.topo = w->topo,
		.policy = w->policy,
		.class = p->class,
		.id = p->container->id,
		.tenant = w->result->tenants[p->tenant].name,
		.group = p->group_name,
		.allowed_cpus = w->topo->online,
		.allowed_mems = w->topo->memory_nodes,
		.mcpu = mcpu_of(p->demand),
		.mcpu_is_limit = p->container->limit,
		.memory = p->container->memory,
		.can_cpuset = true,
		.can_weighted = true,
		.coresched = sim_coresched(w->topo),
	};
	int r;

	occupants = occupants_of(w, 1, &facts.n_occupants);
	if (!occupants)
		return -ENOMEM;
	facts.occupants = occupants;
	r = plan_place(&facts, &plan, &err);
	if (r == -ENOMEM)
		return r;
	if (r < 0) {
		sim_refuse(w, p, error_text(&err));
		return 0;
	}
	take_plan(p, plan);
	take_memory(p, plan);
	adjust(w, plan->adjusts, plan->n_adjusts);
	return 0;
}

/* Whoever had moved aside for one that is gone gets its CPUs back. */
static int settle_engine(struct sim_world *w)
{
	size_t n = 0, n_adjusts = 0;
	cleanup_free struct occupant *occupants = occupants_of(w, 0, &n);
	struct plan_adjust *adjusts = NULL;
	int r = occupants ? plan_neighbours(w->topo, occupants, n, &adjusts, &n_adjusts) : -ENOMEM;

	if (r < 0)
		return r;
	adjust(w, adjusts, n_adjusts);
	plan_adjusts_free(adjusts, n_adjusts);
	return 0;
}

/* ---- baselines ---- */

/* Memory wherever its threads happened to be when they touched it first. */
static void arrive_none(const struct sim_world *w, struct sim_place *p)
{
	p->cpus = w->topo->online;
	p->local = false;
	for (size_t i = 0; i < w->topo->n_cpus; i++) {
		int own = w->topo->cpus[i].node;
		unsigned node = own >= 0 ? sim_nearest(w->topo, (unsigned) own) : NODE_MAX;

		if (node < NODE_MAX)
			p->weights[node] += 1;
	}
}

static void arrive_round_robin(struct sim_world *w, struct sim_place *p)
{
	size_t n = size_min(cpus_for(p->demand), w->topo->n_cpus);

	if (!n)
		return;
	for (size_t i = 0; i < n; i++)
		mask_set(&p->cpus, w->topo->cpus[(w->cursor + i) % w->topo->n_cpus].id);
	w->cursor = (w->cursor + n) % w->topo->n_cpus;
}

/*
 * Takes whole cores that are in `open`, in the order of their first threads, until `cpus` holds n CPUs. False when there
 * are too few.
 */
static bool take_cores(const struct topology *t, const struct mask *open, size_t n, struct mask *cpus)
{
	size_t has = mask_weight(cpus);

	for (size_t i = 0; i < t->n_cpus && has < n; i++) {
		struct mask one = { 0 }, core;

		mask_set(&one, t->cpus[i].id);
		topology_whole_cores(t, &one, &core);
		if (!mask_subset(&core, open) || mask_intersects(&core, cpus))
			continue;
		mask_or(cpus, &core);
		has = mask_weight(cpus);
	}
	return has >= n;
}

/* Online, and not reserved. */
static struct mask usable_cpus(const struct sim_world *w)
{
	struct mask cpus = w->topo->online;

	mask_andnot(&cpus, &w->policy->node.reserved);
	return cpus;
}

/* Usable CPUs that no other container was given. */
static struct mask free_cpus(const struct sim_world *w, const struct sim_place *but)
{
	struct mask open = usable_cpus(w);

	for (size_t i = 0; i < w->n_places; i++)
		if (&w->places[i] != but && !w->places[i].refused)
			mask_andnot(&open, &w->places[i].cpus);
	return open;
}

static void arrive_kubelet(struct sim_world *w, struct sim_place *p)
{
	struct mask open = free_cpus(w, p);

	if (take_cores(w->topo, &open, cpus_for(p->demand), &p->cpus))
		p->exclusive = true;
	else
		sim_refuse(w, p, "not enough whole cores are free");
}

static void arrive_hard_bind(const struct sim_world *w, struct sim_place *p)
{
	struct mask open = free_cpus(w, p);
	size_t n = size_min(cpus_for(p->demand), w->topo->n_cpus);

	p->cpus = p->container->bind;
	mask_and(&p->cpus, &w->topo->online);
	if (!mask_empty(&p->cpus))
		return;
	if (!take_cores(w->topo, &open, n, &p->cpus))
		(void) take_cores(w->topo, &w->topo->online, n, &p->cpus);
}

/* A tenant's cores: those it has, with more when its demand has grown, and fewer when it has shrunk. */
static void resize_balloon(const struct sim_world *w, unsigned tenant, struct mask *open)
{
	struct mask cpus = { 0 }, kept = { 0 }, room = *open;
	double demand = 0;
	size_t n;

	for (size_t i = 0; i < w->n_places; i++)
		if (w->places[i].tenant == tenant) {
			mask_or(&cpus, &w->places[i].cpus);
			demand += w->places[i].demand;
		}
	n = cpus_for(demand);
	mask_and(&cpus, open);
	(void) take_cores(w->topo, &cpus, n, &kept);
	if (!take_cores(w->topo, &room, n, &kept) && mask_empty(&kept))
		kept = w->topo->online; /* no core is left: as well anywhere */
	else
		mask_andnot(open, &kept);
	for (size_t i = 0; i < w->n_places; i++)
		if (w->places[i].tenant == tenant)
			w->places[i].cpus = kept;
}

static int settle_balloons(struct sim_world *w)
{
	struct mask open = usable_cpus(w);
	cleanup_free bool *done = calloc(w->result->n_tenants + 1, sizeof(*done));

	if (!done)
		return -ENOMEM;
	for (size_t i = 0; i < w->n_places; i++) {
		unsigned tenant = w->places[i].tenant;
		struct mask mine = open;

		if (done[tenant])
			continue;
		done[tenant] = true;
		/* What those that come later have already is not to be taken. */
		for (size_t k = i + 1; k < w->n_places; k++) {
			const struct mask *others = &w->places[k].cpus;

			if (!done[w->places[k].tenant] && !mask_equal(others, &w->topo->online))
				mask_andnot(&mine, others);
		}
		resize_balloon(w, tenant, &mine);
		mask_andnot(&open, &w->places[i].cpus);
	}
	return 0;
}

/* ---- the whole ---- */

int sim_arrive(struct sim_world *w)
{
	struct sim_place *p = &w->places[w->n_places - 1];

	p->local = true;
	switch (w->strategy) {
	case SIM_ENGINE:
		return arrive_engine(w, p);
	case SIM_NONE:
		arrive_none(w, p);
		break;
	case SIM_ROUND_ROBIN:
		arrive_round_robin(w, p);
		break;
	case SIM_KUBELET_STATIC:
		arrive_kubelet(w, p);
		break;
	case SIM_HARD_BIND:
		arrive_hard_bind(w, p);
		break;
	case SIM_BALLOONS:
	case SIM_EXHAUSTIVE:
		break; /* sim_settle() places all at once */
	}
	return 0;
}

int sim_settle(struct sim_world *w)
{
	if (w->strategy == SIM_ENGINE)
		return settle_engine(w);
	if (w->strategy == SIM_BALLOONS)
		return settle_balloons(w);
	return w->strategy == SIM_EXHAUSTIVE ? sim_exhaustive(w) : 0;
}
