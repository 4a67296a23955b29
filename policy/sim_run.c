/* Plays a scenario in virtual time under one strategy, and adds up what the machine model says. */
#include <errno.h>

#include "sim_internal.h"

/* ---- the machine between two events ---- */

static bool has_cookie(const struct sim_place *p)
{
	return p->mechanism == MECHANISM_COOKIE;
}

int sim_state_of(const struct sim_world *w, struct sim_state **ret_state, size_t **ret_places)
{
	cleanup_free struct sim_load *loads = calloc(w->n_places + 1, sizeof(*loads));
	cleanup_free size_t *places = calloc(w->n_places + 1, sizeof(*places));
	size_t n = 0;
	int r;

	if (!loads || !places)
		return -ENOMEM;
	for (size_t i = 0; i < w->n_places; i++) {
		const struct sim_place *p = &w->places[i];

		if (p->refused)
			continue;
		places[n] = i;
		loads[n] = (struct sim_load){
			.cpus = &p->cpus,
			.demand = p->demand,
			.threads = p->container->threads > p->demand ? p->container->threads : p->demand,
			.group = has_cookie(p) ? p->group : 0,
			.tenant = p->tenant,
			.traffic = p->container->traffic,
			.sensitivity = p->container->sensitivity,
			.switching = p->container->switching,
			.local = p->local,
		};
		memcpy(loads[n++].weights, p->weights, sizeof(p->weights));
	}
	r = sim_fluid(&w->scenario->model, w->topo, loads, n, ret_state);
	if (r == 0 && ret_places)
		*ret_places = TAKE_PTR(places);
	return r;
}

static void add_place(struct sim_world *w, const struct sim_place *p, const struct sim_speed *s, double seconds)
{
	struct sim_tenant *t = &w->result->tenants[p->tenant];
	double weight = p->demand * seconds;

	t->seconds += seconds;
	if (p->demand <= 0)
		return;
	t->cpu_seconds += weight;
	t->speed += s->speed * weight;
	t->remote += s->remote * weight;
	if (s->speed < t->worst)
		t->worst = s->speed;
}

static int add_up(struct sim_world *w, double from, double to)
{
	static const struct sim_speed stands = { 0 };
	cleanup_sim_state struct sim_state *s = NULL;
	cleanup_free size_t *places = NULL;
	struct sim_result *result = w->result;
	double seconds = to - from;
	size_t load = 0;
	int r;

	if (seconds <= 0)
		return 0;
	r = sim_state_of(w, &s, &places);
	if (r < 0)
		return r;
	for (size_t i = 0; i < w->n_places; i++)
		add_place(w, &w->places[i], w->places[i].refused ? &stands : &s->speeds[load++], seconds);
	for (size_t i = 0; i < load; i++)
		result->busy += s->speeds[i].busy * seconds;
	result->seconds += seconds;
	result->forced_idle += s->forced_idle * seconds;
	result->insecure += s->insecure * seconds;
	result->work += s->work * seconds;
	return sim_timeline_add(w, s, places, from, to);
}

/* ---- events ---- */

void sim_refuse(struct sim_world *w, struct sim_place *p, const char *why)
{
	p->refused = true;
	p->cpus = p->wish = (struct mask){ 0 };
	w->result->refused++;
	if (!w->result->first_refusal)
		w->result->first_refusal = arena_strdup(&w->result->arena, why);
}

static int arrive(struct sim_world *w, const struct sim_role *roles, const struct sim_event *e)
{
	const struct sim_container *c = &w->scenario->containers[e->container];
	const struct sim_role *role = &roles[e->container];

	if (w->n_places == SIM_ALIVE_MAX)
		return error_set(w->err, E2BIG, "%s:%u:%u: more than %d containers at one time", w->scenario->file,
				 e->line, e->column, SIM_ALIVE_MAX);
	if (w->n_places == w->room) {
		size_t room = w->room ? w->room * 2 : 16;
		struct sim_place *grown = realloc(w->places, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		w->places = grown;
		w->room = room;
	}
	w->places[w->n_places++] = (struct sim_place){
		.container = c,
		.index = e->container,
		.class = role->class,
		.tenant = role->tenant,
		.group = role->group,
		.group_name = role->group_name,
		.demand = c->cpus,
		.moved_at = w->now,
	};
	return sim_arrive(w);
}

static struct sim_place *find_place(const struct sim_world *w, size_t container)
{
	struct sim_place *p = w->places;

	while (p->index != container) /* sim_parse() has seen to it that it is there */
		p++;
	return p;
}

static void leave(struct sim_world *w, size_t container)
{
	size_t at = (size_t) (find_place(w, container) - w->places);

	w->n_places--;
	memmove(&w->places[at], &w->places[at + 1], (w->n_places - at) * sizeof(*w->places));
}

nodemask sim_nodes_of(const struct topology *t, const struct mask *cpus, double *weights)
{
	nodemask nodes = 0;

	for (size_t i = 0; i < t->n_cpus; i++) {
		unsigned node = t->cpus[i].node >= 0 ? sim_nearest(t, (unsigned) t->cpus[i].node) : NODE_MAX;

		if (node == NODE_MAX || !mask_test(cpus, t->cpus[i].id))
			continue;
		nodes |= node_bit(node);
		weights[node] += 1;
	}
	return nodes;
}

/* Memory that lay beside the old CPUs: it stays there, or is moved after them. */
static void take_along(struct sim_world *w, struct sim_place *p)
{
	double before[NODE_MAX] = { 0 }, after[NODE_MAX] = { 0 };
	nodemask old = sim_nodes_of(w->topo, &p->seen, before), now = sim_nodes_of(w->topo, &p->cpus, after);

	if (!p->local || old == now)
		return;
	if (!p->pages_stay) {
		w->result->moved_bytes += p->container->memory;
		return;
	}
	p->local = false;
	memcpy(p->weights, before, sizeof(before));
}

static void count_moves(struct sim_world *w)
{
	for (size_t i = 0; i < w->n_places; i++) {
		struct sim_place *p = &w->places[i];

		if (!p->refused && !mask_empty(&p->seen) && !mask_equal(&p->seen, &p->cpus)) {
			w->result->migrations++;
			take_along(w, p);
		}
		p->seen = p->cpus;
	}
}

static int settle(struct sim_world *w, bool pass)
{
	int r = sim_settle(w);

	if (r == 0 && pass)
		r = sim_rebalance(w);
	count_moves(w);
	return r;
}

/* All events of one time; places are made one by one, as hooks do. */
static int handle(struct sim_world *w, const struct sim_role *roles, size_t *at, bool pass)
{
	const struct sim_scenario *s = w->scenario;
	int r = 0;

	while (r == 0 && *at < s->n_events && s->events[*at].at <= w->now) {
		const struct sim_event *e = &s->events[(*at)++];

		switch (e->kind) {
		case SIM_ARRIVE:
			r = arrive(w, roles, e);
			break;
		case SIM_LOAD:
			find_place(w, e->container)->demand = e->cpus;
			break;
		case SIM_LEAVE:
			leave(w, e->container);
			break;
		}
	}
	return r < 0 ? r : settle(w, pass);
}

static int play(struct sim_world *w, const struct sim_role *roles)
{
	const struct sim_scenario *s = w->scenario;
	double next_pass = s->rebalance;
	size_t at = 0, passes = 1;

	while (w->now < s->until) {
		double next = at < s->n_events && s->events[at].at < s->until ? s->events[at].at : s->until;
		bool pass = s->rebalance > 0 && next_pass <= next;
		int r;

		if (pass)
			next = next_pass;
		r = add_up(w, w->now, next);
		w->now = next;
		if (r == 0 && w->now < s->until)
			r = handle(w, roles, &at, pass);
		if (r < 0)
			return r;
		if (pass)
			next_pass = s->rebalance * (double) ++passes;
	}
	return 0;
}

/* ---- results ---- */

static void conclude(struct sim_result *r)
{
	double demanded = 0;

	r->worst = r->n_tenants ? 1 : 0;
	for (size_t i = 0; i < r->n_tenants; i++) {
		struct sim_tenant *t = &r->tenants[i];

		if (t->cpu_seconds <= 0)
			continue;
		demanded += t->cpu_seconds;
		r->speed += t->speed;
		r->remote += t->remote;
		t->speed /= t->cpu_seconds;
		t->remote /= t->cpu_seconds;
		r->worst = least(r->worst, t->speed);
	}
	r->speed = demanded > 0 ? r->speed / demanded : 0;
	r->remote = demanded > 0 ? r->remote / demanded : 0;
}

int sim_run(const struct sim_scenario *s, const struct topology *topo, const struct policy *policy,
	    enum sim_strategy strategy, struct sim_result **ret_result, struct error *err)
{
	cleanup_sim_result struct sim_result *result = calloc(1, sizeof(*result));
	cleanup_free struct sim_role *roles = NULL;
	struct sim_world w = {
		.scenario = s,
		.topo = topo,
		.policy = policy,
		.strategy = strategy,
		.result = result,
		.err = err,
	};
	int r;

	if (!result)
		return error_no_memory(err);
	if (!topo->n_cpus)
		return error_set(err, EINVAL, "%s: the topology has no CPU", s->file);
	result->strategy = strategy;
	r = sim_roles(&w, &roles);
	if (r < 0)
		return r;
	for (size_t i = 0; i < result->n_tenants; i++)
		result->tenants[i].worst = 1;
	r = play(&w, roles);
	free(w.places);
	free(w.moved);
	if (r < 0 && !result->skipped)
		return r == -ENOMEM ? error_no_memory(err) : r;
	conclude(result);
	*ret_result = TAKE_PTR(result);
	return 0;
}

void sim_result_free(struct sim_result *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->n_columns; i++)
		free(r->columns[i].cells);
	free(r->columns);
	free(r->tenants);
	arena_done(&r->arena);
	free(r);
}

void sim_result_freep(struct sim_result **r)
{
	sim_result_free(*r);
	*r = NULL;
}
