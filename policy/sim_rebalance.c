/* The rebalancer in virtual time: what plan_rebalance() proposes is done at once. */
#include <errno.h>

#include "sim_internal.h"

#define PASS_MOVES 16 /* of one pass, beside what classes allow */
#define MINUTE 60

struct sim_moved {
	double at;
	const struct policy_class *class;
};

/* What a pass hands to plan_rebalance(), by container; those that are refused are left out. */
struct pass {
	struct container *containers;
	struct occupant *now;
	uint64_t (*resident)[NODE_MAX];
	size_t *places; /* whose container it is */
	size_t n;
};

static void pass_done(struct pass *p)
{
	free(p->containers);
	free(p->now);
	free(p->resident);
	free(p->places);
}
#define cleanup_pass cleanup_with(pass_done)

static int pass_new(size_t n, struct pass *ret)
{
	*ret = (struct pass){
		.containers = calloc(n, sizeof(*ret->containers)),
		.now = calloc(n, sizeof(*ret->now)),
		.resident = calloc(n, sizeof(*ret->resident)),
		.places = calloc(n, sizeof(*ret->places)),
	};
	return ret->containers && ret->now && ret->resident && ret->places ? 0 : -ENOMEM;
}

static void forget_old_moves(struct sim_world *w)
{
	size_t kept = 0;

	for (size_t i = 0; i < w->n_moved; i++)
		if (w->moved[i].at > w->now - MINUTE)
			w->moved[kept++] = w->moved[i];
	w->n_moved = kept;
}

static unsigned recent_moves(const struct sim_world *w, const struct policy_class *class)
{
	unsigned n = 0;

	for (size_t i = 0; i < w->n_moved; i++)
		n += w->moved[i].class == class;
	return n;
}

static int note_move(struct sim_world *w, const struct policy_class *class)
{
	struct sim_moved *grown = realloc(w->moved, (w->n_moved + 1) * sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	w->moved = grown;
	w->moved[w->n_moved++] = (struct sim_moved){ .at = w->now, .class = class };
	return 0;
}

static void reside(const struct sim_world *w, const struct sim_place *p, uint64_t *bytes)
{
	double weights[NODE_MAX] = { 0 }, total = 0;

	if (p->local)
		(void) sim_nodes_of(w->topo, &p->cpus, weights);
	else
		memcpy(weights, p->weights, sizeof(weights));
	for (unsigned node = 0; node < NODE_MAX; node++)
		total += weights[node];
	for (unsigned node = 0; total > 0 && node < NODE_MAX; node++)
		bytes[node] = (uint64_t) ((double) p->container->memory * weights[node] / total);
}

static void describe(const struct sim_world *w, size_t place, struct pass *pass)
{
	const struct sim_place *p = &w->places[place];
	struct container *c = &pass->containers[pass->n];

	pass->now[pass->n] = sim_occupant_of(p);
	reside(w, p, pass->resident[pass->n]);
	*c = (struct container){
		.class = p->class,
		.id = p->container->id,
		.tenant = w->result->tenants[p->tenant].name,
		.group = p->group_name,
		.allowed_cpus = &w->topo->online,
		.allowed_mems = w->topo->memory_nodes,
		.can_cpuset = true,
		.mcpu_is_limit = p->container->limit,
		.mcpu = pass->now[pass->n].mcpu,
		.memory = p->container->memory,
		.now = &pass->now[pass->n],
		.resident = pass->resident[pass->n],
		.held = w->now < p->moved_at + p->class->rebalance.min_dwell_s,
		.recent_moves = recent_moves(w, p->class),
	};
	pass->places[pass->n++] = place;
}

static struct sim_place *place_of(const struct sim_world *w, const struct pass *pass, const char *id)
{
	size_t i = 0;

	while (!str_eq(pass->containers[i].id, id)) /* it is one of those that were asked about */
		i++;
	return &w->places[pass->places[i]];
}

static int carry_out(struct sim_world *w, const struct pass *pass, const struct moves *moves)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < moves->n; i++) {
		struct sim_place *p = place_of(w, pass, moves->list[i].id);
		const struct plan *plan = moves->list[i].plan;

		sim_move(w, p, plan);
		p->moved_at = w->now;
		w->result->moves++;
		r = note_move(w, p->class);
	}
	return r;
}

int sim_rebalance(struct sim_world *w)
{
	cleanup_pass struct pass pass = { 0 };
	cleanup_moves struct moves *moves = NULL;
	struct many_facts facts = {
		.topo = w->topo,
		.policy = w->policy,
		.coresched = sim_coresched(w->topo),
		.can_weighted = true,
	};
	int r;

	if (w->strategy != SIM_ENGINE || !w->n_places)
		return 0;
	forget_old_moves(w);
	r = pass_new(w->n_places, &pass);
	if (r < 0)
		return r;
	for (size_t i = 0; i < w->n_places; i++)
		if (!w->places[i].refused)
			describe(w, i, &pass);
	facts.containers = pass.containers;
	facts.n = pass.n;
	r = plan_rebalance(&facts, PASS_MOVES, &moves);
	return r < 0 ? r : carry_out(w, &pass, moves);
}
