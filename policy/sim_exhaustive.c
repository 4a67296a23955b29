/* All assignments of containers to the machine's domains, judged by the machine model. */
#include <errno.h>

#include "sim_internal.h"
#include "place.h"

struct domains {
	struct mask *list; /* distinct ones */
	size_t n;
};

static void domains_done(struct domains *d)
{
	free(d->list);
}

static void add_domain(const struct sim_world *w, struct domains *d, enum cpu_span level, unsigned domain)
{
	struct mask cpus, reserved = w->policy->node.reserved;

	domain_cpus(w->topo, level, domain, &cpus);
	mask_and(&cpus, &w->topo->online);
	mask_andnot(&cpus, &reserved);
	if (mask_empty(&cpus))
		return;
	for (size_t i = 0; i < d->n; i++)
		if (mask_equal(&d->list[i], &cpus))
			return;
	d->list[d->n++] = cpus;
}

static int find_domains(const struct sim_world *w, struct domains *ret)
{
	const struct topology *t = w->topo;

	ret->list = calloc(1 + t->n_packages + t->n_nodes + t->n_llcs, sizeof(*ret->list));
	if (!ret->list)
		return -ENOMEM;
	add_domain(w, ret, SPAN_MACHINE, 0);
	for (unsigned i = 0; i < t->n_packages; i++)
		add_domain(w, ret, SPAN_PACKAGE, i);
	for (size_t i = 0; i < t->n_nodes; i++)
		add_domain(w, ret, SPAN_NODE, t->nodes[i].id);
	for (unsigned i = 0; i < t->n_llcs; i++)
		add_domain(w, ret, SPAN_LLC, i);
	return 0;
}

static int judge(const struct sim_world *w, double *ret_work)
{
	cleanup_sim_state struct sim_state *s = NULL;
	int r = sim_state_of(w, &s, NULL);

	if (r == 0)
		*ret_work = s->work;
	return r;
}

static int search(struct sim_world *w, const struct domains *d, size_t assignments)
{
	cleanup_free struct mask *best = calloc(w->n_places + 1, sizeof(*best));
	double most_work = -1, work = 0;
	int r = 0;

	if (!best)
		return -ENOMEM;
	/* What is there already comes first: another assignment has to be better to be worth the moves. */
	for (size_t i = 0; i < w->n_places; i++)
		best[i] = w->places[i].cpus;
	if (w->n_places && !mask_empty(&best[w->n_places - 1]))
		r = judge(w, &most_work);
	for (size_t a = 0; a < assignments && r == 0; a++) {
		size_t rest = a;

		for (size_t i = 0; i < w->n_places; i++, rest /= d->n)
			w->places[i].cpus = d->list[rest % d->n];
		r = judge(w, &work);
		if (r < 0 || work <= most_work + 1e-6)
			continue;
		most_work = work;
		for (size_t i = 0; i < w->n_places; i++)
			best[i] = w->places[i].cpus;
	}
	for (size_t i = 0; i < w->n_places; i++)
		w->places[i].cpus = best[i];
	return r;
}

int sim_exhaustive(struct sim_world *w)
{
	cleanup_with(domains_done) struct domains d = { 0 };
	size_t assignments = 1;
	int r = find_domains(w, &d);

	if (r < 0)
		return r;
	for (size_t i = 0; i < w->n_places && assignments <= SIM_EXHAUSTIVE_MAX; i++)
		assignments *= d.n;
	if (assignments > SIM_EXHAUSTIVE_MAX) {
		w->result->skipped = arena_printf(&w->result->arena,
						  "too large: %zu domains for each of %zu containers are more than %d "
						  "assignments",
						  d.n, w->n_places, SIM_EXHAUSTIVE_MAX);
		return w->result->skipped ? -E2BIG : -ENOMEM;
	}
	for (size_t i = 0; i < w->n_places; i++) {
		enum isolation_mode mode = w->places[i].class->isolation.mode;

		w->places[i].mechanism = mode == ISOLATION_NONE ? MECHANISM_NONE : MECHANISM_COOKIE;
	}
	return search(w, &d, assignments);
}
