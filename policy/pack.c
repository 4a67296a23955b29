/* Placing a whole set at once. */
#include "many.h"

#include <errno.h>

#define LEAST 1000 /* millionths of a CPU: less is rounding */

void pack_free(struct pack *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n; i++) {
		plan_free(p->list[i].plan);
		error_done(&p->list[i].why);
	}
	free(p->list);
	plan_adjusts_free(p->adjusts, p->n_adjusts);
	free(p);
}

void pack_freep(struct pack **p)
{
	pack_free(*p);
	*p = NULL;
}

struct packing {
	const struct many_facts *facts;
	struct many *set;
	struct pack *result;
	size_t n;
	size_t *order;        /* in which they are placed */
	struct plan **plans;  /* by number in the set; the result owns them in the end */
	int64_t total;        /* cost of all, as far as differences tell since it was added up */
};

static struct packed *result_of(const struct packing *k, size_t i)
{
	return &k->result->list[many_place_in_input(k->set, i)];
}

/* ---- the order ---- */

struct rank {
	unsigned char stage; /* owners whose CPUs are given, owners, given, others */
	unsigned demand;
	size_t i;
};

static int compare_ranks(const void *x, const void *y)
{
	const struct rank *a = x, *b = y;

	if (a->stage != b->stage)
		return a->stage < b->stage ? -1 : 1;
	if (a->demand != b->demand)
		return a->demand > b->demand ? -1 : 1;
	return a->i < b->i ? -1 : a->i > b->i;
}

/* Whether plan_place() will make it an owner, if it places it at all. */
static bool will_own(const struct many_facts *f, const struct container *c)
{
	const struct policy_class *class = c->class;

	if (!c->can_cpuset)
		return false;
	switch (class->isolation.mode) {
	case ISOLATION_CORES:
		return true;
	case ISOLATION_COOKIE:
	case ISOLATION_AUTO:
		if (f->coresched != CORESCHED_SUPPORTED && f->coresched != CORESCHED_NO_SIBLINGS &&
		    class->isolation.on_unsupported == UNSUPPORTED_CORES)
			return true;
		break;
	case ISOLATION_NONE:
		break;
	}
	return class->cpu.exclusive;
}

static bool is_bound(const struct container *c)
{
	return c->cpus_given || !c->can_cpuset;
}

static int put_in_order(struct packing *k)
{
	cleanup_free struct rank *ranks = calloc(k->n + 1, sizeof(*ranks));

	if (!ranks)
		return -ENOMEM;
	for (size_t i = 0; i < k->n; i++) {
		const struct container *c = many_container(k->set, i);
		unsigned stage = (will_own(k->facts, c) ? 0 : 2) + (is_bound(c) ? 0 : 1);

		ranks[i] = (struct rank){ .stage = (unsigned char) stage, .demand = many_demand(c), .i = i };
	}
	if (k->n)
		qsort(ranks, k->n, sizeof(*ranks), compare_ranks);
	for (size_t i = 0; i < k->n; i++)
		k->order[i] = ranks[i].i;
	return 0;
}

/* ---- the first placement ---- */

/*
 * Who may not run everywhere stands where it may until it is its turn, without a demand: so that owners, which come
 * before it, leave it a CPU.
 */
static void expect(struct packing *k, size_t i, bool bound)
{
	const struct container *c = many_container(k->set, i);
	struct mask cpus = *c->allowed_cpus, rest = k->facts->topo->online;

	mask_and(&cpus, &rest);
	mask_andnot(&rest, &cpus);
	mask_andnot(&rest, &k->facts->policy->node.reserved);
	if (c->can_cpuset)
		mask_andnot(&cpus, &k->facts->policy->node.reserved);
	if (mask_empty(&rest) || mask_empty(&cpus))
		return;
	many_put(k->set, i,
		 &(struct occupant){ .id = c->id, .group = c->group, .bound = bound, .cpus = &cpus, .wish = &cpus });
}

/* Those whose CPUs are given and that are still to come: held by them, or only wished for. */
static void expect_given(struct packing *k, size_t from, bool bound)
{
	for (size_t at = from; at < k->n; at++) {
		const struct container *c = many_container(k->set, k->order[at]);

		/* What cannot be written cannot be moved either. */
		if (c->cpus_given && c->can_cpuset && many_is_here(k->set, k->order[at]))
			expect(k, k->order[at], bound);
	}
}

static int place_first(struct packing *k, size_t at)
{
	size_t i = k->order[at];
	struct packed *packed = result_of(k, i);
	struct change change;
	int r = many_place(k->set, i, NOBODY, &k->plans[i], &packed->why);

	if (r == -ENOSPC && will_own(k->facts, many_container(k->set, i))) {
		/* Better cores that others were given, as long as they keep some, than none. */
		expect_given(k, at + 1, false);
		error_done(&packed->why);
		r = many_place(k->set, i, NOBODY, &k->plans[i], &packed->why);
	}
	if (r == -ENOMEM)
		return r;
	if (r < 0) {
		many_take(k->set, i);
		packed->error = r;
		return 0;
	}
	r = many_apply(k->set, i, k->plans[i], &change);
	if (r < 0)
		return r;
	change_done(&change);
	/* An owner may have made those move that were expected. */
	expect_given(k, at + 1, true);
	return 0;
}

static int place_all(struct packing *k)
{
	for (size_t i = 0; i < k->n; i++)
		expect(k, i, is_bound(many_container(k->set, i)));
	for (size_t at = 0; at < k->n; at++) {
		int r = place_first(k, at);

		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- better ---- */

/* Another place for it, or NULL. */
static int anew(struct packing *k, size_t i, size_t without, struct plan **ret)
{
	cleanup_plan struct plan *p = NULL;
	int r = many_place(k->set, i, without, &p, NULL);

	k->result->tries++;
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	if (!mask_equal(&p->cpus, many_view(k->set, i)->cpus) || p->n_adjusts)
		*ret = TAKE_PTR(p);
	return 0;
}

/*
 * Whether the cost of all falls by as much as it would by the differences. It does, but where memory does not fit:
 * there differences depend on the order, and all is added up anew.
 */
static int is_better(struct packing *k, int64_t promised, bool short_of_memory, bool *ret)
{
	struct cost all;
	int r;

	*ret = promised >= LEAST;
	if (!*ret)
		return 0;
	if (!short_of_memory && !k->result->cost.terms[COST_MEMORY]) {
		k->total -= promised;
		return 0;
	}
	r = many_total(k->set, &all);
	*ret = r == 0 && k->total - cost_sum(&all) >= LEAST;
	if (*ret)
		k->total = cost_sum(&all);
	return r;
}

/* Takes the plan. */
static void keep(struct packing *k, size_t i, struct plan **p)
{
	plan_free(k->plans[i]);
	k->plans[i] = TAKE_PTR(*p);
	k->result->better++;
}

/* Places it anew beside all others, if that costs less. */
static int try_anew(struct packing *k, size_t i)
{
	cleanup_change struct change change = { 0 };
	cleanup_plan struct plan *p = NULL;
	bool better;
	int r = anew(k, i, NOBODY, &p);

	if (r < 0 || !p)
		return r;
	r = many_apply(k->set, i, p, &change);
	if (r < 0)
		return r;
	r = is_better(k, change.gain, change.short_of_memory, &better);
	if (better)
		keep(k, i, &p);
	else
		many_undo(k->set, &change);
	return r;
}

/* The first without the second, and then the second beside it. */
static int try_both(struct packing *k, size_t first, size_t second)
{
	cleanup_change struct change one = { 0 }, two = { 0 };
	cleanup_plan struct plan *p = NULL, *q = NULL;
	bool better = false;
	int r = anew(k, first, second, &p);

	if (r < 0 || !p)
		return r;
	r = many_apply(k->set, first, p, &one);
	if (r < 0)
		return r;
	r = anew(k, second, NOBODY, &q);
	if (r == 0 && q)
		r = many_apply(k->set, second, q, &two);
	if (r == 0 && q)
		r = is_better(k, one.gain + two.gain, one.short_of_memory || two.short_of_memory, &better);
	if (better) {
		keep(k, first, &p);
		keep(k, second, &q);
	} else {
		many_undo(k->set, &two);
		many_undo(k->set, &one);
	}
	return r;
}

static bool may_try(const struct packing *k, size_t i)
{
	return k->plans[i] && !is_bound(many_container(k->set, i)) && k->result->tries < PACK_TRIES;
}

static int improve_each(struct packing *k)
{
	int r = 0;

	for (size_t at = 0; r == 0 && at < k->n; at++)
		if (may_try(k, k->order[at]))
			r = try_anew(k, k->order[at]);
	return r;
}

static int improve_pairs(struct packing *k)
{
	int r = 0;

	for (size_t at = 0; r == 0 && at < k->n; at++)
		for (size_t with = 0; r == 0 && with < k->n && may_try(k, k->order[at]); with++)
			if (with != at && may_try(k, k->order[with]))
				r = try_both(k, k->order[at], k->order[with]);
	return r;
}

static int add_up_all(struct packing *k)
{
	int r = many_total(k->set, &k->result->cost);

	k->total = cost_sum(&k->result->cost);
	return r;
}

static int improve(struct packing *k)
{
	int r = add_up_all(k);

	for (unsigned pass = 0; r == 0 && pass < PACK_PASSES; pass++) {
		unsigned before = k->result->better;

		r = improve_each(k);
		if (r == 0 && k->result->better == before)
			r = improve_pairs(k);
		if (r == 0)
			r = add_up_all(k);
		if (k->result->better == before)
			break;
	}
	return r;
}

/* ---- what came of it ---- */

/* Owners that came after a plan took cores off it. */
static void finish_plan(const struct packing *k, size_t i, const struct fences *fences)
{
	const struct container *c = many_container(k->set, i);
	const struct occupant *o = many_view(k->set, i);
	struct plan *p = k->plans[i];
	struct occupant everywhere = *o;
	struct mask may = *c->allowed_cpus, left;

	plan_adjusts_free(p->adjusts, p->n_adjusts);
	p->adjusts = NULL;
	p->n_adjusts = 0;
	if (!c->can_cpuset || plan_owns(p))
		return;
	mask_and(&may, &k->facts->topo->online);
	everywhere.wish = &may;
	fences_target(fences, &everywhere, &left);
	p->confined = !mask_equal(&may, &left);
	p->set_cpus = !mask_equal(&may, o->cpus);
	if (!mask_equal(&p->cpus, o->cpus))
		plan_reason(p, "its CPUs follow the containers of the set that own cores");
	p->cpus = *o->cpus;
}

static int finish(struct packing *k)
{
	cleanup_fences struct fences *fences = NULL;
	const struct occupant *present;
	size_t n_present;
	int r;

	present = many_present(k->set, &n_present);
	r = fences_new(k->facts->topo, present, n_present, NULL, &fences);
	if (r < 0)
		return r;
	for (size_t i = 0; i < k->n; i++) {
		if (!k->plans[i])
			continue;
		finish_plan(k, i, fences);
		many_cost(k->set, i, &k->plans[i]->cost);
		result_of(k, i)->plan = TAKE_PTR(k->plans[i]);
	}
	return many_adjusts(k->set, &k->result->adjusts, &k->result->n_adjusts);
}

static int pack_up(struct packing *k)
{
	int r = put_in_order(k);

	if (r < 0 || (r = place_all(k)) < 0 || (r = improve(k)) < 0)
		return r;
	return finish(k);
}

int plan_pack(const struct many_facts *facts, struct pack **ret_pack)
{
	cleanup_pack struct pack *result = calloc(1, sizeof(*result));
	cleanup_many struct many *set = NULL;
	struct packing k = { .facts = facts, .n = facts->n };
	int r;

	if (!result)
		return -ENOMEM;
	result->list = calloc(facts->n + 1, sizeof(*result->list));
	if (!result->list)
		return -ENOMEM;
	result->n = facts->n;
	for (size_t i = 0; i < facts->n; i++)
		result->list[i].id = facts->containers[i].id;
	r = many_new(facts, &set);
	if (r < 0)
		return r;
	k.set = set;
	k.result = result;
	k.order = calloc(facts->n + 1, sizeof(*k.order));
	k.plans = calloc(facts->n + 1, sizeof(*k.plans));
	r = k.order && k.plans ? pack_up(&k) : -ENOMEM;
	for (size_t i = 0; k.plans && i < facts->n; i++)
		plan_free(k.plans[i]);
	free(k.plans);
	free(k.order);
	if (r < 0)
		return r;
	*ret_pack = TAKE_PTR(result);
	return 0;
}
