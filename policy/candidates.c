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
	c->list = NULL;
}

static void add_core(const struct board *b, struct candidate *list, enum cpu_span level, unsigned core,
		     const struct mask *takable, nodemask *local)
{
	bool idle_siblings = b->facts->class->cpu.smt == SMT_LEAVE_IDLE;
	const struct topo_cpu *first = &b->topo->cpus[b->core_cpu[b->core_start[core]]];
	unsigned domain = domain_of(first, level), threads = 0;
	struct candidate *c = &list[domain];

	c->present = true;
	CORE_FOR_EACH(cpu, b, core) {
		if (!mask_test(&b->usable, cpu->id))
			continue;
		c->capacity += !threads ? FIRST_THREAD : idle_siblings ? 0 : OTHER_THREAD;
		c->load += b->load[cpu->id];
		if (cpu->node >= 0)
			local[domain] |= node_bit((unsigned) cpu->node);
		threads++;
	}
	c->cpus += threads;
	if (core_within(b, core, takable))
		c->whole += core_serves(b, core);
}

static void judge(const struct board *b, struct candidate *c, nodemask local)
{
	const struct place_facts *f = b->facts;
	nodemask nodes;

	if (!c->capacity)
		return;
	local &= b->topo->memory_nodes;
	nodes = memory_nodes_for(f, local);
	c->ratio = (c->load + (uint64_t) b->plan->mcpu * LOAD_SCALE) / c->capacity;
	c->remote = local && f->allowed_mems && !(local & f->allowed_mems);
	c->memory_free = memory_free_on(b, nodes);
	c->fits = c->ratio <= LOAD_SCALE && !c->remote && c->memory_free >= f->memory;
}

int candidates_build(const struct board *b, enum cpu_span level, const struct mask *takable, struct candidates *ret)
{
	size_t n = domain_count(b->topo, level);
	cleanup_free struct candidate *list = calloc(n, sizeof(*list));
	cleanup_free nodemask *local = calloc(n, sizeof(*local));

	if (!list || !local)
		return -ENOMEM;
	for (unsigned core = 0; core < b->topo->n_cores; core++)
		if (b->core_start[core] < b->core_start[core + 1])
			add_core(b, list, level, core, takable, local);
	for (size_t i = 0; i < n; i++) {
		list[i].domain = (unsigned) i;
		judge(b, &list[i], local[i]);
	}
	*ret = (struct candidates){ .level = level, .list = TAKE_PTR(list), .n = n };
	return 0;
}

const struct candidate *candidates_best(const struct board *b, const struct candidates *c, bool need_whole)
{
	const struct candidate *best = NULL;

	for (size_t i = 0; i < c->n; i++) {
		const struct candidate *at = &c->list[i];

		if (!at->cpus || (need_whole && at->whole < b->plan->mcpu))
			continue;
		if (!best || (at->fits && !best->fits) || (at->fits == best->fits && at->ratio < best->ratio))
			best = at;
	}
	return best;
}

/* Of the domain's capacity, this container included. */
static uint64_t percent(const struct candidate *c)
{
	return (c->ratio * 100 + LOAD_SCALE / 2) / LOAD_SCALE;
}

/* The number that decided against a candidate. */
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
	else if (best->fits && c->remote)
		n = asprintf(&text, "its memory is not among the nodes that the container may use");
	else if (best->fits && c->memory_free < memory)
		n = asprintf(&text, "%" PRIu64 " MiB of memory left by other limits of %" PRIu64 " MiB wanted",
			     c->memory_free / MIB, memory / MIB);
	else
		n = asprintf(&text, "load would be %" PRIu64 " %% against %" PRIu64 " %%", percent(c), percent(best));
	return n < 0 ? NULL : text;
}

/* Takes both strings, which may be NULL when memory ran out: an explanation is worth less than the plan. */
static void add_reject(struct plan *p, char *candidate, char *why)
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
	p->rejects[p->n_rejects++] = (struct plan_reject){ .candidate = candidate, .why = why };
}

static void report_best(const struct board *b, const struct candidates *c, const struct candidate *best)
{
	const uint64_t memory = b->facts->memory;
	cleanup_free char *name = domain_name(c->level, best->domain);

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
	if (best->remote)
		plan_reason(b->plan, "the memory it may use is not on %s", name);
	if (best->memory_free < memory)
		plan_reason(b->plan,
			    "its memory limit of %" PRIu64 " MiB is more than the %" PRIu64
			    " MiB that other containers' limits leave there",
			    memory / MIB, best->memory_free / MIB);
}

void candidates_report(const struct board *b, const struct candidates *c, const struct candidate *best, bool need_whole)
{
	size_t unnamed = 0;
	char *text = NULL;

	report_best(b, c, best);
	for (size_t i = 0; i < c->n; i++) {
		const struct candidate *at = &c->list[i];

		if (at == best || !at->present)
			continue;
		if (b->plan->n_rejects < REJECTS_MAX)
			add_reject(b->plan, domain_name(c->level, at->domain), why_not(b, at, best, need_whole));
		else
			unnamed++;
	}
	if (unnamed && asprintf(&text, "%zu more", unnamed) >= 0)
		add_reject(b->plan, text, strdup("not listed"));
}
