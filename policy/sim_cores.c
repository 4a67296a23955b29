/* What loads get of the cores on which they run: step 2 of the machine model (policy/sim_machine.c). */
#include <errno.h>

#include "sim_internal.h"

#define FAIR_STEPS 48

/* A share as one core sees it. */
struct item {
	size_t share, load;
	unsigned group, tenant;
	double has; /* thread time that it gets when its group runs as often as it needs; later: that it gets */
};

/* A group on one core. */
struct party {
	size_t first, n; /* of the core's items */
	double wants;    /* threads' worth, at most one for each thread: Y */
	double need, gets;
};

struct scratch {
	size_t *first;       /* by core, of `items` */
	struct item *items;  /* by core, then group, then CPU */
	struct party *parties;
	double *values;
};

static void scratch_done(struct scratch *s)
{
	free(s->first);
	free(s->items);
	free(s->parties);
	free(s->values);
}

/* Max-min: the level above which values are cut so that their sum is no more than `total`. */
static double fair_level(const double *values, size_t n, double total)
{
	double low = 0, high = 0, sum = 0;

	for (size_t i = 0; i < n; i++) {
		high = most(high, values[i]);
		sum += values[i];
	}
	if (sum <= total)
		return high;
	for (unsigned step = 0; step < FAIR_STEPS; step++) {
		double level = (low + high) / 2, used = 0;

		for (size_t i = 0; i < n; i++)
			used += least(values[i], level);
		if (used > total)
			high = level;
		else
			low = level;
	}
	return low;
}

static int compare_items(const void *x, const void *y)
{
	const struct item *a = x, *b = y;

	if (a->group != b->group)
		return a->group < b->group ? -1 : 1;
	return a->share < b->share ? -1 : a->share > b->share;
}

static int sort_items(const struct fluid *f, struct scratch *s)
{
	size_t n_cores = f->topo->n_cores, total = f->start[f->n];

	s->first = calloc(n_cores + 2, sizeof(*s->first));
	s->items = calloc(total + 1, sizeof(*s->items));
	s->parties = calloc(total + 1, sizeof(*s->parties));
	s->values = calloc(total + 1, sizeof(*s->values));
	if (!s->first || !s->items || !s->parties || !s->values)
		return -ENOMEM;
	for (size_t k = 0; k < total; k++)
		if (f->shares[k].want > SIM_SMALL)
			s->first[f->topo->cpus[f->shares[k].cpu].core + 2]++;
	for (size_t c = 2; c < n_cores + 2; c++)
		s->first[c] += s->first[c - 1];
	/* first[c + 1] is where the next item of core c goes, and in the end where those of c + 1 begin. */
	for (size_t i = 0; i < f->n; i++)
		for (size_t k = f->start[i]; k < f->start[i + 1]; k++)
			if (f->shares[k].want > SIM_SMALL)
				s->items[s->first[f->topo->cpus[f->shares[k].cpu].core + 1]++] = (struct item){
					.share = k,
					.load = i,
					.group = f->loads[i].group,
					.tenant = f->loads[i].tenant,
				};
	return 0;
}

/* Loads of one group on one thread share it by max-min. */
static void share_thread(const struct fluid *f, struct scratch *s, struct party *p, size_t cpu)
{
	size_t n = 0;
	double level;

	for (size_t i = p->first; i < p->first + p->n; i++)
		if (f->shares[s->items[i].share].cpu == cpu)
			s->values[n++] = f->shares[s->items[i].share].want;
	level = fair_level(s->values, n, 1);
	for (size_t i = p->first; i < p->first + p->n; i++)
		if (f->shares[s->items[i].share].cpu == cpu) {
			s->items[i].has = least(level, f->shares[s->items[i].share].want);
			p->wants += s->items[i].has;
		}
}

static size_t find_parties(const struct fluid *f, struct scratch *s, const struct sim_core *core, size_t first,
			   size_t end)
{
	size_t n = 0;

	for (size_t i = first; i < end; i++) {
		if (i == first || s->items[i].group != s->items[i - 1].group) {
			s->parties[n] = (struct party){ .first = i };
			n++;
		}
		s->parties[n - 1].n++;
	}
	for (size_t p = 0; p < n; p++) {
		for (size_t t = 0; t < core->n; t++)
			share_thread(f, s, &s->parties[p], f->by_core[core->first + t]);
		s->parties[p].need = least(1, s->parties[p].wants);
	}
	return n;
}

static void share_core(struct scratch *s, size_t n)
{
	double level;

	for (size_t p = 0; p < n; p++)
		s->values[p] = s->parties[p].need;
	level = fair_level(s->values, n, 1);
	for (size_t p = 0; p < n; p++)
		s->parties[p].gets = least(s->parties[p].need, level);
}

/* Threads that run beside those of another tenant, at most: all but those of the tenant that has most. */
static double seen_by_others(const struct scratch *s, const struct party *p)
{
	double sum = 0, largest = 0;

	for (size_t i = p->first; i < p->first + p->n; i++) {
		double own = 0;

		sum += s->items[i].has;
		for (size_t k = p->first; k < p->first + p->n; k++)
			own += s->items[k].tenant == s->items[i].tenant ? s->items[k].has : 0;
		largest = most(largest, own);
	}
	return sum - largest;
}

static void run_party(struct fluid *f, struct scratch *s, const struct sim_core *core, struct party *p, double others)
{
	double threads = (double) core->n, part = p->need > 0 ? p->gets / p->need : 0;
	double does = p->wants <= 1 ? p->wants : 1 + f->model->smt_gain * (p->wants - 1) / (threads - 1);
	double parallel = p->need > 0 ? p->wants / p->need : 0;

	for (size_t i = p->first; i < p->first + p->n; i++) {
		struct item *item = &s->items[i];
		const struct sim_load *l = &f->loads[item->load];
		struct sim_cpu *cpu = &f->state->cpus[f->shares[item->share].cpu];

		item->has *= part;
		f->shares[item->share].work = item->has * does / p->wants;
		if (l->group && core->n > 1)
			f->shares[item->share].work *= 1 - l->switching;
		f->state->speeds[item->load].busy += item->has;
		/* `load` holds the item until the core is done. */
		if (cpu->load == SIZE_MAX || item->has > s->items[cpu->load].has)
			cpu->load = i;
		cpu->busy = least(1, cpu->busy + item->has);
	}
	f->state->forced_idle += p->gets * most(0, threads - parallel) * least(1, others);
	if (core->n > 1)
		f->state->insecure += seen_by_others(s, p);
}

static void run_core(struct fluid *f, struct scratch *s, size_t c)
{
	const struct sim_core *core = &f->cores[c];
	size_t first = s->first[c], end = s->first[c + 1], n = find_parties(f, s, core, first, end);
	double needs = 0;

	share_core(s, n);
	for (size_t p = 0; p < n; p++)
		needs += s->parties[p].need;
	for (size_t p = 0; p < n; p++)
		run_party(f, s, core, &s->parties[p], needs - s->parties[p].need);
	for (size_t t = 0; t < core->n; t++) {
		struct sim_cpu *cpu = &f->state->cpus[f->by_core[core->first + t]];

		cpu->load = cpu->load == SIZE_MAX ? SIZE_MAX : s->items[cpu->load].load;
	}
}

int sim_cores(struct fluid *f)
{
	cleanup_with(scratch_done) struct scratch s = { 0 };
	int r = sort_items(f, &s);

	if (r < 0)
		return r;
	for (size_t i = 0; i < f->topo->n_cpus; i++)
		f->state->cpus[i].load = SIZE_MAX;
	for (size_t c = 0; c < f->topo->n_cores; c++) {
		/* By group; within one, sort_items() left them in the order of loads. */
		if (s.first[c + 1] > s.first[c] + 1)
			qsort(s.items + s.first[c], s.first[c + 1] - s.first[c], sizeof(*s.items), compare_items);
		run_core(f, &s, c);
	}
	return 0;
}
