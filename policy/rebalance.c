/* A few moves that make a running machine better. */
#include "many.h"

#include <errno.h>
#include <stdio.h>

#define WORST 8 /* of each pair, the first is one of so many; the other is one of REBALANCE_PAIRS / WORST */

void moves_free(struct moves *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n; i++) {
		free(m->list[i].id);
		free(m->list[i].why);
		plan_free(m->list[i].plan);
	}
	free(m->list);
	free(m);
}

void moves_freep(struct moves **m)
{
	moves_free(*m);
	*m = NULL;
}

struct loser {
	size_t i;
	int64_t loss; /* millionths of a CPU that a move of it might gain at most */
};

struct balance {
	const struct many_facts *facts;
	struct many *set;
	struct moves *result;
	size_t n, max_moves;
	int64_t *costs;       /* by number */
	bool *fixed;          /* not to be moved, or moved already */
	unsigned *left;       /* moves of its class; those of one class share the first one's */
	size_t *class_of;     /* number of the first container of the same class */
	struct loser *losers; /* scratch */
	size_t n_losers;
};

/* ---- who may be moved ---- */

static bool may_move(const struct container *c)
{
	return c->class->rebalance.enabled && !c->held && !c->now->bound && !c->now->unsynced && !c->cpus_given &&
	       c->can_cpuset;
}

static int64_t least_gain(const struct container *c)
{
	double share = c->class->rebalance.min_gain * (double) many_demand(c) * 1000;

	return share > REBALANCE_LEAST ? (int64_t) share : REBALANCE_LEAST;
}

struct of_class {
	const char *name;
	size_t i;
};

static int compare_classes(const void *x, const void *y)
{
	const struct of_class *a = x, *b = y;
	int order = strcmp(a->name, b->name);

	return order ? order : (a->i > b->i) - (a->i < b->i);
}

static int count_allowance(struct balance *a)
{
	cleanup_free struct of_class *classes = calloc(a->n + 1, sizeof(*classes));

	if (!classes)
		return -ENOMEM;
	for (size_t i = 0; i < a->n; i++)
		classes[i] = (struct of_class){ .name = many_container(a->set, i)->class->name, .i = i };
	if (a->n)
		qsort(classes, a->n, sizeof(*classes), compare_classes);
	for (size_t k = 0; k < a->n; k++) {
		const struct container *c = many_container(a->set, classes[k].i);
		bool same = k && str_eq(classes[k].name, classes[k - 1].name);
		size_t first = same ? a->class_of[classes[k - 1].i] : classes[k].i;
		unsigned most = c->class->rebalance.max_moves_per_minute;
		unsigned left = most > c->recent_moves ? most - c->recent_moves : 0;

		a->class_of[classes[k].i] = first;
		if (!same || left < a->left[first])
			a->left[first] = left;
	}
	return 0;
}

static unsigned moves_left(const struct balance *a, size_t i)
{
	return a->left[a->class_of[i]];
}

/* Whether all that is wanted is as much as there is: then whoever is better off makes somebody else worse off. */
static bool is_full(const struct balance *a)
{
	const struct topology *t = a->facts->topo;
	const struct model *m = &a->facts->policy->node.model;
	uint64_t demand = 0, capacity = 0;
	const struct occupant *present;
	struct mask cores = { 0 }; /* by number */
	size_t n;

	for (size_t i = 0; i < t->n_cpus; i++) {
		if (mask_test(&a->facts->policy->node.reserved, t->cpus[i].id))
			continue;
		capacity += mask_test(&cores, t->cpus[i].core) ? m->smt_thread : 1000;
		mask_set(&cores, t->cpus[i].core);
	}
	present = many_present(a->set, &n);
	for (size_t i = 0; i < n; i++)
		demand += present[i].mcpu;
	return demand >= capacity;
}

/* ---- whom to look at ---- */

static int compare_losers(const void *x, const void *y)
{
	const struct loser *a = x, *b = y;

	if (a->loss != b->loss)
		return a->loss > b->loss ? -1 : 1;
	return a->i < b->i ? -1 : a->i > b->i;
}

/* What it costs is all that it, and others by it, can be spared. An owner may also leave cores to others. */
static int64_t most_gain(const struct balance *a, size_t i)
{
	const struct occupant *o = many_view(a->set, i);
	int64_t spare = (int64_t) mask_weight(o->cpus) * MICRO_CPUS - (int64_t) o->mcpu * 1000;

	return a->costs[i] + (occupant_owns(o) && spare > 0 ? spare : 0);
}

static int rank_losers(struct balance *a)
{
	int r = many_costs(a->set, a->costs);

	if (r < 0)
		return r;
	a->n_losers = 0;
	for (size_t i = 0; i < a->n; i++) {
		int64_t most = most_gain(a, i);

		if (!a->fixed[i] && moves_left(a, i) && most >= least_gain(many_container(a->set, i)))
			a->losers[a->n_losers++] = (struct loser){ .i = i, .loss = most };
	}
	if (a->n_losers)
		qsort(a->losers, a->n_losers, sizeof(*a->losers), compare_losers);
	return 0;
}

/* ---- steps: one move, or the two of a swap ---- */

struct step {
	size_t n, i[2];
	struct plan *plan[2];
	int64_t gain;
};

static void step_done(struct step *s)
{
	for (size_t k = 0; k < ARRAY_LEN(s->plan); k++)
		plan_free(s->plan[k]);
	*s = (struct step){ 0 };
}
#define cleanup_step cleanup_with(step_done)

/* Whether a plan is another place under the same promises. */
static bool is_other(const struct balance *a, size_t i, const struct plan *p)
{
	const struct occupant *now = many_view(a->set, i);

	return !mask_equal(&p->cpus, now->cpus) && p->mechanism == now->mechanism && p->exclusive == now->exclusive;
}

/* Another place for it, or NULL. */
static int elsewhere(struct balance *a, size_t i, size_t without, struct plan **ret)
{
	cleanup_plan struct plan *p = NULL;
	int r = many_place(a->set, i, without, &p, NULL);

	if (r < 0)
		return r == -ENOMEM ? r : 0;
	p->set_cpus = true;
	if (is_other(a, i, p))
		*ret = TAKE_PTR(p);
	return 0;
}

/* For an owner whose demand changed: plan_place() rather takes free cores far away than cores of a neighbour. */
static int resized(struct balance *a, size_t i, struct plan **ret)
{
	cleanup_plan struct plan *p = NULL;
	int r = many_place_near(a->set, i, &p);

	if (r < 0)
		return r == -ENOMEM ? r : 0;
	p->set_cpus = true;
	if (is_other(a, i, p))
		*ret = TAKE_PTR(p);
	return 0;
}

static int64_t least_of(const struct balance *a, const struct step *s)
{
	int64_t least = 0;

	for (size_t k = 0; k < s->n; k++)
		least += least_gain(many_container(a->set, s->i[k]));
	return least;
}

/* Keeps the step if it is worth its while and better than the best so far. */
static void keep_better(const struct balance *a, struct step *best, struct step *s)
{
	if (s->gain < least_of(a, s) || (best->n && s->gain <= best->gain))
		return;
	step_done(best);
	*best = *s;
	*s = (struct step){ 0 };
}

/* Takes the plan. */
static int try_plan(struct balance *a, size_t i, struct plan *p, struct step *best)
{
	cleanup_step struct step s = { .n = 1, .i = { i }, .plan = { p } };
	cleanup_change struct change change = { 0 };
	int r = many_apply(a->set, i, p, &change);

	if (r < 0)
		return r;
	s.gain = change.gain;
	many_undo(a->set, &change);
	keep_better(a, best, &s);
	return 0;
}

static int try_one(struct balance *a, size_t i, struct step *best)
{
	struct plan *p = NULL;
	int r = elsewhere(a, i, NOBODY, &p);

	if (r == 0 && p)
		r = try_plan(a, i, p, best);
	p = NULL;
	if (r == 0 && occupant_owns(many_view(a->set, i)))
		r = resized(a, i, &p);
	return r == 0 && p ? try_plan(a, i, p, best) : r;
}

/* The first goes to its best place without the second, then the second to its best place. */
static int try_two(struct balance *a, size_t first, size_t second, struct step *best)
{
	cleanup_step struct step s = { .n = 2, .i = { first, second } };
	cleanup_change struct change one = { 0 }, two = { 0 };
	int r = elsewhere(a, first, second, &s.plan[0]);

	if (r < 0 || !s.plan[0])
		return r;
	r = many_apply(a->set, first, s.plan[0], &one);
	if (r < 0)
		return r;
	r = elsewhere(a, second, NOBODY, &s.plan[1]);
	if (r == 0 && s.plan[1]) {
		r = many_apply(a->set, second, s.plan[1], &two);
		if (r == 0) {
			s.gain = one.gain + two.gain;
			many_undo(a->set, &two);
		}
	}
	many_undo(a->set, &one);
	if (r == 0 && s.plan[1])
		keep_better(a, best, &s);
	return r;
}

static bool may_swap(const struct balance *a, size_t first, size_t second)
{
	const struct occupant *x = many_view(a->set, first), *y = many_view(a->set, second);

	if (first == second || a->fixed[second] || occupant_owns(x) || occupant_owns(y) ||
	    mask_equal(x->cpus, y->cpus))
		return false;
	return a->class_of[first] == a->class_of[second] ? moves_left(a, first) > 1 : moves_left(a, second) > 0;
}

/* Those whose demand is nearest to the first one's, and of those that are alike in all that matters here, one. */
static size_t partners(struct balance *a, size_t first, struct loser *ret)
{
	const int64_t demand = many_view(a->set, first)->mcpu;
	size_t n = 0, kept = 0;

	for (size_t i = 0; i < a->n; i++) {
		int64_t differs = demand - many_view(a->set, i)->mcpu;

		if (may_swap(a, first, i))
			ret[n++] = (struct loser){ .i = i, .loss = differs < 0 ? differs : -differs };
	}
	if (n)
		qsort(ret, n, sizeof(*ret), compare_losers);
	for (size_t k = 0; k < n && kept < REBALANCE_PAIRS / WORST; k++) {
		const struct occupant *o = many_view(a->set, ret[k].i);
		const struct occupant *last = kept ? many_view(a->set, ret[kept - 1].i) : NULL;

		if (!last || last->mcpu != o->mcpu || !mask_equal(last->cpus, o->cpus) || last->memory != o->memory)
			ret[kept++] = ret[k];
	}
	return kept;
}

static int best_swap(struct balance *a, struct step *best)
{
	cleanup_free struct loser *with = calloc(a->n + 1, sizeof(*with));
	int r = 0;

	if (!with)
		return -ENOMEM;
	for (size_t k = 0; r == 0 && k < a->n_losers && k < WORST; k++) {
		size_t n = partners(a, a->losers[k].i, with);

		for (size_t m = 0; r == 0 && m < n; m++)
			r = try_two(a, a->losers[k].i, with[m].i, best);
	}
	return r;
}

static int best_step(struct balance *a, struct step *best)
{
	int r = rank_losers(a);

	if (r < 0)
		return r;
	a->result->considered = size_min(a->n_losers, REBALANCE_CONSIDERED);
	for (size_t k = 0; r == 0 && k < a->result->considered; k++)
		r = try_one(a, a->losers[k].i, best);
	if (r == 0 && !best->n && a->max_moves - a->result->n > 1)
		r = best_swap(a, best);
	return r;
}

/* ---- doing it ---- */

static int take_move(struct balance *a, struct step *s, size_t k, const struct change *change, int64_t gain,
		     const struct mask *from)
{
	const struct container *c = many_container(a->set, s->i[k]);
	struct move *m = &a->result->list[a->result->n++];

	*m = (struct move){
		.id = strdup(c->id),
		.before = change->before,
		.after = change->after,
		.bytes = many_bytes_to_move(a->set, s->i[k], &s->plan[k]->cpus),
		.gain = gain,
		.swap = s->n - 1 - k,
	};
	s->plan[k]->cost = change->after;
	m->why = move_sentence(a->facts->topo, c, m, from, s->plan[k],
			       s->n > 1 ? many_container(a->set, s->i[1 - k])->id : NULL);
	m->plan = TAKE_PTR(s->plan[k]);
	a->fixed[s->i[k]] = true;
	a->left[a->class_of[s->i[k]]]--;
	return m->id ? 0 : -ENOMEM;
}

/*
 * The cost of all must fall by what was promised. Were it only for the sum of differences, it would; but where memory
 * does not fit, that sum depends on the order. So it is added up anew, and moves cannot go round in a circle.
 */
static int do_step(struct balance *a, struct step *s)
{
	struct change changes[2] = { 0 };
	struct mask from[2];
	struct cost after;
	int64_t gain = 0;
	size_t done = 0;
	int r = 0;

	for (; r == 0 && done < s->n; done++) {
		from[done] = *many_view(a->set, s->i[done])->cpus;
		r = many_apply(a->set, s->i[done], s->plan[done], &changes[done]);
		if (r < 0)
			break;
	}
	if (r == 0)
		r = many_total(a->set, &after);
	if (r == 0)
		gain = cost_sum(&a->result->after) - cost_sum(&after);
	if (r < 0 || gain < least_of(a, s)) {
		while (done > 0)
			many_undo(a->set, &changes[--done]);
		a->fixed[s->i[0]] = true;
	} else {
		a->result->after = after;
		for (size_t k = 0; r == 0 && k < s->n; k++)
			r = take_move(a, s, k, &changes[k], gain, &from[k]);
	}
	for (size_t k = 0; k < ARRAY_LEN(changes); k++)
		change_done(&changes[k]);
	return r;
}

static int balance(struct balance *a)
{
	int r = many_put_running(a->set);

	if (r < 0 || (r = many_total(a->set, &a->result->before)) < 0 || (r = count_allowance(a)) < 0)
		return r;
	a->result->after = a->result->before;
	for (size_t i = 0; i < a->n; i++) {
		a->fixed[i] = !may_move(many_container(a->set, i));
		a->result->movable += !a->fixed[i];
	}
	a->result->full = is_full(a);
	while (r == 0 && !a->result->full && a->result->n < a->max_moves) {
		cleanup_step struct step best = { 0 };

		r = best_step(a, &best);
		if (r < 0 || !best.n)
			break;
		r = do_step(a, &best);
	}
	return r;
}

int plan_rebalance(const struct many_facts *facts, size_t max_moves, struct moves **ret_moves)
{
	cleanup_moves struct moves *result = calloc(1, sizeof(*result));
	cleanup_many struct many *set = NULL;
	cleanup_free int64_t *costs = calloc(facts->n + 1, sizeof(*costs));
	cleanup_free bool *fixed = calloc(facts->n + 1, sizeof(*fixed));
	cleanup_free unsigned *left = calloc(facts->n + 1, sizeof(*left));
	cleanup_free size_t *class_of = calloc(facts->n + 1, sizeof(*class_of));
	cleanup_free struct loser *losers = calloc(facts->n + 1, sizeof(*losers));
	struct balance a = { .facts = facts, .result = result, .n = facts->n, .costs = costs, .fixed = fixed,
			     .left = left, .class_of = class_of, .losers = losers };
	int r;

	if (!result || !costs || !fixed || !left || !class_of || !losers)
		return -ENOMEM;
	/* Nobody moves twice. */
	a.max_moves = size_min(max_moves, facts->n);
	result->list = calloc(a.max_moves + 1, sizeof(*result->list));
	if (!result->list)
		return -ENOMEM;
	r = many_new(facts, &set);
	if (r < 0)
		return r;
	a.set = set;
	r = balance(&a);
	if (r < 0)
		return r;
	*ret_moves = TAKE_PTR(result);
	return 0;
}
