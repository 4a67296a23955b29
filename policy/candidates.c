#include "place.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define REJECTS_MAX 32 /* a machine may have a thousand caches; nobody reads that many lines */
#define MIB (1u << 20)

unsigned domain_of(const struct topo_cpu *cpu, enum cpu_span level)
{
	switch (level) {
	case SPAN_MACHINE:
		return 0;
	case SPAN_PACKAGE:
		return cpu->package;
	case SPAN_LLC:
		return cpu->llc;
	case SPAN_NODE:
	case SPAN_CORES:
		break;
	}
	return cpu->node < 0 ? NODE_MAX : (unsigned) cpu->node;
}

static size_t domain_count(const struct topology *t, enum cpu_span level)
{
	switch (level) {
	case SPAN_MACHINE:
		return 1;
	case SPAN_PACKAGE:
		return t->n_packages;
	case SPAN_LLC:
		return t->n_llcs;
	case SPAN_NODE:
	case SPAN_CORES:
		break;
	}
	return NODE_MAX + 1;
}

void domain_cpus(const struct topology *t, enum cpu_span level, unsigned domain, struct mask *ret_cpus)
{
	struct mask cpus = { 0 };

	for (size_t i = 0; i < t->n_cpus; i++)
		if (domain_of(&t->cpus[i], level) == domain)
			mask_set(&cpus, t->cpus[i].id);
	*ret_cpus = cpus;
}

char *domain_name(enum cpu_span level, unsigned domain)
{
	static const char *const names[] = {
		[SPAN_NODE] = "node",
		[SPAN_PACKAGE] = "package",
		[SPAN_LLC] = "last-level cache",
		[SPAN_CORES] = "node",
	};
	char *text = NULL;

	if (level == SPAN_MACHINE)
		return strdup("the machine");
	if (domain == NODE_MAX && (level == SPAN_NODE || level == SPAN_CORES))
		return strdup("the CPUs without memory of their own");
	return asprintf(&text, "%s %u", names[level], domain) < 0 ? NULL : text;
}

void candidates_done(struct candidates *c)
{
	free(c->list);
	*c = (struct candidates){ 0 };
}

/* Cores by domain: those of domain d are cores[start[d]] up to cores[start[d + 1]]. */
struct division {
	uint16_t *cores;
	size_t *start;
};

static unsigned core_domain(const struct board *b, unsigned core, enum cpu_span level)
{
	return domain_of(&b->topo->cpus[b->core_cpu[b->core_start[core]]], level);
}

/* A counting sort, as index_cores() of board.c. */
static void divide(const struct board *b, enum cpu_span level, struct division *d, size_t n)
{
	for (size_t i = 0; i < b->n_cores; i++)
		d->start[core_domain(b, b->all_cores[i], level) + 2]++;
	for (size_t i = 2; i < n + 2; i++)
		d->start[i] += d->start[i - 1];
	for (size_t i = 0; i < b->n_cores; i++)
		d->cores[d->start[core_domain(b, b->all_cores[i], level) + 1]++] = b->all_cores[i];
}

static void count_core(const struct board *b, struct candidate *c, unsigned core, const struct mask *cpus,
		       const struct mask *takable)
{
	unsigned threads = 0;

	c->present = true;
	CORE_FOR_EACH(cpu, b, core) {
		if (!mask_test(&b->usable, cpu->id))
			continue;
		c->load += b->load[cpu->id];
		if (!mask_test(cpus, cpu->id))
			continue;
		c->capacity += threads++ ? b->facts->policy->node.model.smt_thread : 1000;
		if (cpu->node >= 0)
			c->nodes |= node_bit((unsigned) cpu->node);
	}
	c->cpus += threads;
	if (core_within(b, core, takable))
		c->whole += core_serves(b, core);
}

static void judge(const struct board *b, struct candidate *c, const uint16_t *cores, size_t n, const struct mask *cpus)
{
	const struct place_facts *f = b->facts;

	if (!c->capacity)
		return;
	c->ratio = (c->load + (uint64_t) b->plan->mcpu * LOAD_SCALE) / c->capacity;
	c->memory_free = memory_free_on(b, memory_nodes_for(f, c->nodes & b->topo->memory_nodes));
	c->fits = c->ratio <= LOAD_SCALE && c->memory_free >= f->memory;
	cost_of_cpus(b, cores, n, cpus, &c->cost);
}

static int add_level(const struct board *b, enum cpu_span level, const struct mask *cpus, const struct mask *takable,
		     struct candidates *c)
{
	size_t n = domain_count(b->topo, level);
	struct candidate *list = realloc(c->list, (c->n + n) * sizeof(*list));
	cleanup_free uint16_t *cores = calloc(b->topo->n_cores + 1, sizeof(*cores));
	cleanup_free size_t *start = calloc(n + 2, sizeof(*start));
	struct division d = { .cores = cores, .start = start };

	if (list)
		c->list = list;
	if (!list || !cores || !start)
		return -ENOMEM;
	divide(b, level, &d, n);
	for (size_t i = 0; i < n; i++) {
		struct candidate *at = &list[c->n + i];

		*at = (struct candidate){ .level = level, .domain = (unsigned) i };
		for (size_t k = d.start[i]; k < d.start[i + 1]; k++)
			count_core(b, at, d.cores[k], cpus, takable);
		judge(b, at, d.cores + d.start[i], d.start[i + 1] - d.start[i], cpus);
	}
	c->n += n;
	return 0;
}

int candidates_add(const struct board *b, enum cpu_span level, const struct mask *takable, struct candidates *c)
{
	struct mask cpus = b->usable;

	if (b->facts->class->cpu.smt == SMT_LEAVE_IDLE)
		one_thread_per_core(b, &cpus);
	return add_level(b, level, &cpus, takable, c);
}

const struct candidate *candidates_best(const struct board *b, const struct candidates *c, bool need_whole)
{
	const struct candidate *best = NULL;

	for (size_t i = 0; i < c->n; i++) {
		const struct candidate *at = &c->list[i];

		if (!at->cpus || (need_whole && at->whole < b->plan->mcpu))
			continue;
		if (!best || cost_sum(&at->cost) < cost_sum(&best->cost))
			best = at;
	}
	return best;
}

/* Of the domain's capacity, this container included. */
static uint64_t percent(const struct candidate *c)
{
	return (c->ratio * 100 + LOAD_SCALE / 2) / LOAD_SCALE;
}

/* The two costs that decided, in words. Small differences need more digits. */
static char *why_costly(const struct candidate *c, const struct candidate *best)
{
	enum cost_term term = cost_deciding(&c->cost, &best->cost);
	int64_t here = c->cost.terms[term], there = best->cost.terms[term];
	int n, digits = here - there < MICRO_CPUS / 100 ? 6 : 2;
	char *text = NULL;

	if (here <= there)
		return strdup("no better, and it comes later");
	if (term == COST_CPU && percent(c) > percent(best))
		n = asprintf(&text, "load would be %" PRIu64 " %% against %" PRIu64 " %%", percent(c), percent(best));
	else
		n = asprintf(&text, "would lose %.*f CPUs to %s against %.*f", digits,
			     (double) here / MICRO_CPUS, cost_term_text(term), digits, (double) there / MICRO_CPUS);
	return n < 0 ? NULL : text;
}

/* What decided against a candidate. */
static char *why_not(const struct board *b, const struct candidate *c, const struct candidate *best, bool need_whole)
{
	const uint64_t memory = b->facts->memory;
	char *text = NULL;
	int n;

	if (!c->cpus)
		return strdup("no CPU there that the container may use");
	if (need_whole && c->whole < b->plan->mcpu)
		n = asprintf(&text, "its free whole cores serve %" CPUS_FMT " CPUs of %" CPUS_FMT " wanted",
			     CPUS_ARG(c->whole), CPUS_ARG(b->plan->mcpu));
	else if (cost_deciding(&c->cost, &best->cost) == COST_MEMORY)
		n = asprintf(&text, "%" PRIu64 " MiB of memory left by other limits of %" PRIu64 " MiB wanted",
			     c->memory_free / MIB, memory / MIB);
	else
		return why_costly(c, best);
	return n < 0 ? NULL : text;
}

/* Takes both strings, which may be NULL when memory ran out: an explanation is worth less than the plan. */
static void add_reject(struct plan *p, char *candidate, char *why, const struct cost *cost)
{
	struct plan_reject *more = NULL;

	if (candidate && why)
		more = realloc(p->rejects, (p->n_rejects + 1) * sizeof(*more));
	if (!more) {
		free(candidate);
		free(why);
		return;
	}
	p->rejects = more;
	p->rejects[p->n_rejects++] = (struct plan_reject){ .candidate = candidate, .why = why, .cost = *cost };
}

static void report_best(const struct board *b, const struct candidate *best)
{
	const uint64_t memory = b->facts->memory;
	cleanup_free char *name = domain_name(best->level, best->domain);

	if (!name)
		return;
	plan_reason(b->plan,
		    "%s: containers want %" CPUS_FMT " CPUs there, this one %" CPUS_FMT " of them, and the cores there "
		    "do the work of %" CPUS_FMT ": load %" PRIu64 " %%",
		    name, CPUS_ARG(best->load / LOAD_SCALE + b->plan->mcpu), CPUS_ARG(b->plan->mcpu),
		    CPUS_ARG(best->capacity), percent(best));
	if (best->fits)
		return;
	if (best->ratio > LOAD_SCALE)
		plan_reason(b->plan, "no place in the class's span has room for it; %s is the least overloaded", name);
	if (best->memory_free < memory)
		plan_reason(b->plan,
			    "its memory limit of %" PRIu64 " MiB is more than the %" PRIu64
			    " MiB that other containers' limits leave there",
			    memory / MIB, best->memory_free / MIB);
}

void candidates_report(const struct board *b, const struct candidates *c, const struct candidate *best, bool need_whole)
{
	const struct cost none = { 0 };
	size_t unnamed = 0;
	char *text = NULL;

	report_best(b, best);
	for (size_t i = 0; i < c->n; i++) {
		const struct candidate *at = &c->list[i];

		if (at == best || !at->present)
			continue;
		if (b->plan->n_rejects < REJECTS_MAX)
			add_reject(b->plan, domain_name(at->level, at->domain), why_not(b, at, best, need_whole), &at->cost);
		else
			unnamed++;
	}
	if (unnamed && asprintf(&text, "%zu more", unnamed) >= 0)
		add_reject(b->plan, text, strdup("not listed"), &none);
}
