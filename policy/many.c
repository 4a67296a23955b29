#include "many.h"

#include <errno.h>

/* ---- one container ---- */

unsigned many_demand(const struct container *c)
{
	unsigned demand = c->mcpu ? c->mcpu : c->class->cpu.count_mcpu;

	return demand ? demand : 1000;
}

const struct container *many_container(const struct many *m, size_t i)
{
	return m->members[i].container;
}

size_t many_place_in_input(const struct many *m, size_t i)
{
	return m->members[i].input;
}

const struct occupant *many_view(const struct many *m, size_t i)
{
	return &m->members[i].view;
}

bool many_is_here(const struct many *m, size_t i)
{
	return m->members[i].here;
}

void many_facts_of(const struct many *m, size_t i, struct place_facts *f)
{
	const struct member *member = &m->members[i];
	const struct container *c = member->container;

	*f = (struct place_facts){
		.topo = m->facts->topo,
		.policy = m->facts->policy,
		.class = &m->bare,
		.id = member->view.id,
		.tenant = member->view.group,
		.group = member->view.group,
		.allowed_cpus = m->facts->topo->online,
		.memory = member->view.memory,
		.can_weighted = m->facts->can_weighted,
		.coresched = m->facts->coresched,
	};
	if (!c)
		return;
	f->class = c->class;
	f->tenant = c->tenant;
	f->allowed_cpus = *c->allowed_cpus;
	f->allowed_mems = c->allowed_mems;
	f->cpus_given = c->cpus_given;
	f->mems_given = c->mems_given;
	f->mcpu = c->mcpu;
	f->mcpu_is_limit = c->mcpu_is_limit;
	f->memory = c->memory;
	f->spec_memory_policy = c->spec_memory_policy;
	f->can_cpuset = c->can_cpuset;
	f->now = member->here ? &member->cpus : NULL;
	f->resident = member->runs ? member->resident : NULL;
}

/*
 * Makes the board's the container's own: whose demand, whose class, whose kin. Its owner is left false: nobody is
 * counted here who will have moved aside, and who shares an owner's cores waits for it as it waits for them.
 */
static void look_at(struct many *m, size_t i)
{
	const struct occupant *o = &m->members[i].view;

	many_facts_of(m, i, &m->now);
	m->probe.mcpu = o->mcpu;
	m->probe.streams = o->streams;
}

/* ---- the board of all ---- */

static unsigned kin_key(const struct member *member)
{
	return member->view.mechanism == MECHANISM_COOKIE ? member->group : 0;
}

/* As add_up() of board.c adds, so that sums are the same to the last digit. */
static void count(struct many *m, const struct member *member, bool leaves)
{
	const struct occupant *o = &member->view;
	const struct topology *t = m->facts->topo;
	struct board *b = m->board;
	const unsigned cpus = mask_weight(&member->cpus), nodes = bit_count(o->mems);
	const uint64_t sign = leaves ? UINT64_MAX : 1; /* times -1, as unsigned numbers go */
	uint64_t load = (uint64_t) o->mcpu * LOAD_SCALE;
	uint64_t streams = stream_of(&m->facts->policy->node.model, load, o->streams);
	/* Limits without end are cut, so that what was added can be taken off again. */
	uint64_t most = UINT64_MAX / (m->n + 1), memory = o->memory < most ? o->memory : most;
	bool kin = kin_key(member) == m->kin_of;

	if (!cpus)
		return;
	for (size_t i = 0; i < t->n_cpus; i++) {
		const struct topo_cpu *cpu = &t->cpus[i];

		if (!mask_test(&member->cpus, cpu->id))
			continue;
		b->load[cpu->id] += sign * (load / cpus);
		b->kin[cpu->id] += kin ? sign * (load / cpus) : 0;
		b->llc_stream[cpu->llc] += sign * (streams / cpus);
		if (cpu->node < 0 || nodes)
			continue;
		b->node_stream[cpu->node] += sign * (streams / cpus);
		b->memory_used[cpu->node] += sign * (memory / cpus);
	}
	for (unsigned node = 0; nodes && node < NODE_MAX; node++) {
		if (!(o->mems & node_bit(node)))
			continue;
		b->memory_used[node] += sign * (memory / nodes);
		b->node_stream[node] += sign * (streams / nodes);
	}
}

static void want_kin(struct many *m, unsigned key)
{
	const struct topology *t = m->facts->topo;

	if (m->kin_of == key)
		return;
	m->kin_of = key;
	for (size_t i = 0; i < t->n_cpus; i++)
		m->board->kin[t->cpus[i].id] = 0;
	for (size_t k = 0; k < m->n; k++) {
		const struct member *member = &m->members[k];
		unsigned cpus = mask_weight(&member->cpus);

		if (!member->here || kin_key(member) != key || !cpus)
			continue;
		MASK_FOR_EACH(cpu, &member->cpus)
			if (mask_test(&t->online, cpu))
				m->board->kin[cpu] += (uint64_t) member->view.mcpu * LOAD_SCALE / cpus;
	}
}

void many_take(struct many *m, size_t i)
{
	if (m->members[i].here)
		count(m, &m->members[i], true);
	m->members[i].here = false;
}

void many_put(struct many *m, size_t i, const struct occupant *o)
{
	struct member *member = &m->members[i];
	struct mask cpus = *o->cpus, wish = *o->wish; /* they may be its own */

	many_take(m, i);
	member->view = *o;
	member->cpus = cpus;
	member->wish = wish;
	member->view.cpus = &member->cpus;
	member->view.wish = &member->wish;
	member->here = true;
	count(m, member, false);
}

/* Of a container that is not there, at the CPUs of its view. */
static void cost_beside(struct many *m, size_t i, struct cost *ret)
{
	want_kin(m, kin_key(&m->members[i]));
	look_at(m, i);
	cost_of_cpus(m->board, m->board->all_cores, m->board->n_cores, &m->members[i].cpus, ret);
}

void many_cost(struct many *m, size_t i, struct cost *ret)
{
	struct member *member = &m->members[i];

	count(m, member, true);
	member->here = false;
	cost_beside(m, i, ret);
	count(m, member, false);
	member->here = true;
}

uint64_t many_bytes_to_move(struct many *m, size_t i, const struct mask *cpus)
{
	many_facts_of(m, i, &m->now);
	return memory_to_move(&m->now, memory_nodes_for(&m->now, nodes_of_cpus(m->facts->topo, cpus)));
}

/* ---- all ---- */

size_t many_find(const struct many *m, size_t from, size_t to, const char *id)
{
	while (from < to) {
		size_t middle = from + (to - from) / 2;
		int order = strcmp(id, m->members[middle].view.id);

		if (!order)
			return middle;
		if (order < 0)
			to = middle;
		else
			from = middle + 1;
	}
	return NOBODY;
}

struct turn {
	unsigned key;
	size_t i;
};

static int compare_turns(const void *x, const void *y)
{
	const struct turn *a = x, *b = y;

	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return a->i < b->i ? -1 : a->i > b->i;
}

/* Those of one kin after one another: to change from one to the next takes as long as both have members. */
static int take_turns(const struct many *m, struct turn **ret, size_t *ret_n)
{
	struct turn *turns = calloc(m->n + 1, sizeof(*turns));
	size_t n = 0;

	if (!turns)
		return -ENOMEM;
	for (size_t i = 0; i < m->n; i++)
		if (m->members[i].here)
			turns[n++] = (struct turn){ .key = kin_key(&m->members[i]), .i = i };
	if (n)
		qsort(turns, n, sizeof(*turns), compare_turns);
	*ret = turns;
	*ret_n = n;
	return 0;
}

int many_costs(struct many *m, int64_t *ret_sums)
{
	cleanup_free struct turn *turns = NULL;
	size_t n;
	int r = take_turns(m, &turns, &n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < m->n_containers; i++)
		ret_sums[i] = 0;
	for (size_t k = 0; k < n; k++) {
		struct cost cost;

		if (turns[k].i >= m->n_containers)
			continue;
		many_cost(m, turns[k].i, &cost);
		ret_sums[turns[k].i] = cost_sum(&cost);
	}
	return 0;
}

int many_total(struct many *m, struct cost *ret)
{
	cleanup_free struct turn *turns = NULL;
	struct cost total = { 0 };
	size_t n;
	int r = take_turns(m, &turns, &n);

	if (r < 0)
		return r;
	/* Backwards: each leaves, and what was lost by it goes with it. */
	for (size_t k = n; k-- > 0;) {
		struct cost cost;

		many_take(m, turns[k].i);
		cost_beside(m, turns[k].i, &cost);
		for (unsigned t = 0; t < COST_TERMS; t++)
			total.terms[t] += cost.terms[t];
	}
	for (size_t k = 0; k < n; k++) {
		m->members[turns[k].i].here = true;
		count(m, &m->members[turns[k].i], false);
	}
	*ret = total;
	return 0;
}

const struct occupant *many_present(struct many *m, size_t *ret_n)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++)
		if (m->members[i].here)
			m->present[n++] = m->members[i].view;
	*ret_n = n;
	return m->present;
}

int many_adjusts(struct many *m, struct plan_adjust **ret, size_t *ret_n)
{
	struct plan_adjust *list;
	size_t n, kept = 0;
	int r;

	many_present(m, &n);
	for (size_t i = n, k = m->n; k-- > 0;) {
		if (!m->members[k].here)
			continue;
		i--;
		if (!m->members[k].container)
			m->present[i].cpus = m->facts->occupants[m->members[k].input].cpus;
	}
	r = plan_neighbours(m->facts->topo, m->present, n, &list, &n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		if (many_find(m, 0, m->n_containers, list[i].id) == NOBODY)
			list[kept++] = list[i];
		else
			free(list[i].id);
	}
	*ret = list;
	*ret_n = kept;
	return 0;
}

static void facts_beside(struct many *m, size_t i, size_t without, struct place_facts *ret)
{
	size_t n = 0;

	for (size_t k = 0; k < m->n; k++)
		if (m->members[k].here && k != i && k != without)
			m->present[n++] = m->members[k].view;
	many_facts_of(m, i, ret);
	ret->occupants = m->present;
	ret->n_occupants = n;
}

int many_place(struct many *m, size_t i, size_t without, struct plan **ret_plan, struct error *err)
{
	struct place_facts f;

	facts_beside(m, i, without, &f);
	return plan_place(&f, ret_plan, err);
}

int many_place_near(struct many *m, size_t i, struct plan **ret_plan)
{
	const struct topology *t = m->facts->topo;
	struct mask near = { 0 };
	bool nodes[NODE_MAX + 1] = { false };
	struct place_facts f;

	for (size_t k = 0; k < t->n_cpus; k++)
		if (mask_test(&m->members[i].cpus, t->cpus[k].id))
			nodes[domain_of(&t->cpus[k], SPAN_NODE)] = true;
	for (size_t k = 0; k < t->n_cpus; k++)
		if (nodes[domain_of(&t->cpus[k], SPAN_NODE)])
			mask_set(&near, t->cpus[k].id);
	facts_beside(m, i, NOBODY, &f);
	mask_and(&f.allowed_cpus, &near);
	return plan_place(&f, ret_plan, NULL);
}

/* ---- changes ---- */

struct was {
	size_t i;
	bool here;
	struct occupant view;
	struct mask cpus, wish;
};

void change_done(struct change *c)
{
	free(c->was);
	c->was = NULL;
	c->n = 0;
}

static size_t find_any(const struct many *m, const char *id)
{
	size_t i = many_find(m, 0, m->n_containers, id);

	return i != NOBODY ? i : many_find(m, m->n_containers, m->n, id);
}

/* Out of the set; what that spares is gained. */
static void lift(struct many *m, size_t i, struct change *c, struct cost *ret_before)
{
	struct member *member = &m->members[i];

	c->was[c->n++] = (struct was){
		.i = i, .here = member->here, .view = member->view, .cpus = member->cpus, .wish = member->wish
	};
	*ret_before = (struct cost){ 0 };
	if (!member->here)
		return;
	many_take(m, i);
	cost_beside(m, i, ret_before);
	c->gain += cost_sum(ret_before);
	c->short_of_memory = c->short_of_memory || ret_before->terms[COST_MEMORY];
}

static void drop(struct many *m, size_t i, struct change *c)
{
	struct cost cost;

	cost_beside(m, i, &cost);
	c->gain -= cost_sum(&cost);
	c->short_of_memory = c->short_of_memory || cost.terms[COST_MEMORY];
	m->members[i].here = true;
	count(m, &m->members[i], false);
}

static void take_plan(struct many *m, size_t i, const struct plan *p)
{
	struct member *member = &m->members[i];

	member->cpus = p->cpus;
	member->wish = p->wish;
	member->view = (struct occupant){
		.id = member->view.id,
		.group = member->view.group,
		.mechanism = p->mechanism,
		.exclusive = p->exclusive,
		.bound = p->bound,
		.weights = p->set_weights,
		.streams = p->streams,
		.mcpu = p->mcpu,
		.memory = p->memory,
		.mems = p->memory_nodes,
		.cpus = &member->cpus,
		.wish = &member->wish,
	};
	many_facts_of(m, i, &m->now);
	if (memory_stays(&m->now))
		member->view.mems = memory_stays(&m->now);
}

int many_apply(struct many *m, size_t i, const struct plan *p, struct change *ret)
{
	struct change c = { .was = calloc(p->n_adjusts + 1, sizeof(*c.was)) };
	struct cost aside;

	if (!c.was)
		return -ENOMEM;
	if (m->members[i].here)
		many_cost(m, i, &c.before);
	lift(m, i, &c, &aside);
	for (size_t k = 0; k < p->n_adjusts; k++) {
		size_t at = find_any(m, p->adjusts[k].id);

		if (at == NOBODY || at == i)
			continue;
		lift(m, at, &c, &aside);
		m->members[at].cpus = p->adjusts[k].cpus;
	}
	take_plan(m, i, p);
	for (size_t k = c.n; k-- > 0;)
		drop(m, c.was[k].i, &c);
	many_cost(m, i, &c.after);
	*ret = c;
	return 0;
}

void many_undo(struct many *m, struct change *c)
{
	while (c->n > 0) {
		const struct was *was = &c->was[--c->n];
		struct member *member = &m->members[was->i];

		many_take(m, was->i);
		member->view = was->view;
		member->cpus = was->cpus;
		member->wish = was->wish;
		if (!was->here)
			continue;
		member->here = true;
		count(m, member, false);
	}
}
