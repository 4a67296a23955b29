/* A set of containers, as it comes to be. */
#include "many.h"

#include <errno.h>

void many_freep(struct many **m)
{
	if (!*m)
		return;
	free((*m)->members);
	free((*m)->present);
	board_freep(&(*m)->board);
	free(*m);
	*m = NULL;
}

static int compare_members(const void *x, const void *y)
{
	const struct member *a = x, *b = y;

	return strcmp(a->view.id, b->view.id);
}

struct named {
	const char *group;
	size_t i;
};

static int compare_names(const void *x, const void *y)
{
	const struct named *a = x, *b = y;

	return strcmp(a->group, b->group);
}

static int number_groups(struct many *m)
{
	cleanup_free struct named *names = calloc(m->n + 1, sizeof(*names));
	unsigned number = 0;

	if (!names)
		return -ENOMEM;
	for (size_t i = 0; i < m->n; i++)
		names[i] = (struct named){ .group = m->members[i].view.group, .i = i };
	if (m->n)
		qsort(names, m->n, sizeof(*names), compare_names);
	for (size_t k = 0; k < m->n; k++) {
		if (k == 0 || !str_eq(names[k].group, names[k - 1].group))
			number++;
		m->members[names[k].i].group = number;
	}
	return 0;
}

/* Without knowing better, its limit is full, and lies where it would be if it had started where it is. */
static void guess_resident(struct many *m, size_t i)
{
	struct member *member = &m->members[i];
	const struct container *c = member->container;
	nodemask nodes;
	unsigned weights = 0;

	member->runs = true;
	if (c->resident) {
		memcpy(member->resident, c->resident, sizeof(member->resident));
		return;
	}
	many_facts_of(m, i, &m->now);
	nodes = memory_nodes_for(&m->now, nodes_of_cpus(m->facts->topo, c->now->cpus));
	NODEMASK_FOR_EACH(node, nodes)
		weights += memory_weight(&m->now, node);
	for (unsigned node = 0; weights && node < NODE_MAX; node++)
		if (nodes & node_bit(node))
			member->resident[node] = c->memory / weights * memory_weight(&m->now, node);
}

int many_put_running(struct many *m)
{
	for (size_t i = 0; i < m->n_containers; i++) {
		const struct container *c = m->members[i].container;
		struct occupant o;
		nodemask stays;

		if (!c->now)
			return -EINVAL;
		guess_resident(m, i);
		o = *c->now;
		o.id = c->id;
		o.group = c->group;
		o.mcpu = many_demand(c);
		o.memory = c->memory;
		o.streams = c->class->cpu.placement == PLACEMENT_SPREAD;
		many_facts_of(m, i, &m->now);
		stays = memory_stays(&m->now);
		if (stays)
			o.mems = stays;
		many_put(m, i, &o);
	}
	return 0;
}

static int fill_members(struct many *m)
{
	const struct many_facts *f = m->facts;

	for (size_t i = 0; i < f->n; i++) {
		struct member *member = &m->members[i];

		member->container = &f->containers[i];
		member->input = i;
		member->view.id = f->containers[i].id;
		member->view.group = f->containers[i].group;
	}
	for (size_t i = 0; i < f->n_occupants; i++) {
		m->members[f->n + i].input = i;
		m->members[f->n + i].view = f->occupants[i];
	}
	if (f->n)
		qsort(m->members, f->n, sizeof(*m->members), compare_members);
	if (f->n_occupants)
		qsort(m->members + f->n, f->n_occupants, sizeof(*m->members), compare_members);
	for (size_t i = 1; i < f->n; i++)
		if (str_eq(m->members[i].view.id, m->members[i - 1].view.id))
			return -EINVAL;
	return number_groups(m);
}

int many_new(const struct many_facts *facts, struct many **ret_many)
{
	cleanup_many struct many *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	m->facts = facts;
	m->n_containers = facts->n;
	m->n = facts->n + facts->n_occupants;
	m->members = calloc(m->n + 1, sizeof(*m->members));
	m->present = calloc(m->n + 1, sizeof(*m->present));
	if (!m->members || !m->present)
		return -ENOMEM;
	r = fill_members(m);
	if (r < 0)
		return r;
	m->bare.name = "";
	m->now = (struct place_facts){ .topo = facts->topo, .policy = facts->policy, .id = "", .group = "" };
	r = board_new(&m->now, &m->probe, &m->board);
	if (r < 0)
		return r;
	for (size_t i = facts->n; i < m->n; i++)
		if (many_find(m, 0, facts->n, m->members[i].view.id) == NOBODY)
			many_put(m, i, &facts->occupants[m->members[i].input]);
	*ret_many = TAKE_PTR(m);
	return 0;
}
