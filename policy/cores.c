/* Whole physical cores: which ones, and how many. */
#include "place.h"

#include <errno.h>

struct core_ref {
	uint16_t core;
	uint16_t turn; /* spread: how many cores of the same domain come before it */
	uint16_t domain, llc;
	uint8_t rank; /* 0: nobody is there, … */
	bool moves;   /* its container is not there yet */
	int64_t cost; /* of putting a core's worth of the demand there */
};

unsigned core_serves(const struct board *b, unsigned core)
{
	unsigned threads = (unsigned) (b->core_start[core + 1] - b->core_start[core]);

	return 1000u * (b->facts->class->cpu.smt == SMT_LEAVE_IDLE ? 1 : threads);
}

/* Integers of any width, lower first. */
#define ORDER(a, b) \
	do { \
		if ((a) != (b)) \
			return (a) < (b) ? -1 : 1; \
	} while (0)

static int compare_refs(const void *x, const void *y)
{
	const struct core_ref *a = x, *b = y;

	ORDER(a->rank, b->rank);
	ORDER(a->moves, b->moves);
	ORDER(a->turn, b->turn);
	ORDER(a->cost, b->cost);
	ORDER(a->domain, b->domain);
	ORDER(a->core, b->core);
	return 0;
}

/* How much would be disturbed: nobody, neighbours who have room elsewhere, neighbours who have not, one's own group. */
static uint8_t rank_of(const struct board *b, unsigned cpu)
{
	if (mask_test(&b->family, cpu))
		return 3;
	if (mask_test(&b->shaped, cpu))
		return 2;
	return mask_test(&b->busy, cpu) ? 1 : 0;
}

static unsigned spread_domain(const struct topo_cpu *cpu, enum cpu_level level)
{
	switch (level) {
	case LEVEL_LLC:
		return cpu->llc;
	case LEVEL_PACKAGE:
		return cpu->package;
	case LEVEL_NODE:
		return domain_of(cpu, SPAN_NODE);
	case LEVEL_CORE:
		break;
	}
	return cpu->core;
}

static int64_t cost_of_core(const struct board *b, unsigned core, unsigned llc)
{
	unsigned served = core_serves(b, core);
	uint64_t add = (uint64_t) (served < b->plan->mcpu ? served : b->plan->mcpu) * LOAD_SCALE;
	int64_t collision, cost = core_cost(b, core, add, &collision);

	return cost + collision +
	       llc_cost(b, llc, stream_of(&b->facts->policy->node.model, add, b->plan->streams));
}

static size_t collect_refs(const struct board *b, const struct mask *takable, struct core_ref *refs)
{
	bool spread = b->facts->class->cpu.placement == PLACEMENT_SPREAD;
	size_t n = 0;

	for (unsigned core = 0; core < b->topo->n_cores; core++) {
		const struct topo_cpu *first = &b->topo->cpus[b->core_cpu[b->core_start[core]]];
		struct core_ref *ref = &refs[n];

		if (b->core_start[core] == b->core_start[core + 1] || !core_within(b, core, takable))
			continue;
		*ref = (struct core_ref){ .core = (uint16_t) core, .rank = rank_of(b, first->id) };
		ref->llc = first->llc;
		ref->domain = spread ? (uint16_t) spread_domain(first, b->facts->class->cpu.level) : first->llc;
		ref->cost = cost_of_core(b, core, first->llc);
		ref->moves = !b->facts->now || !mask_test(b->facts->now, first->id);
		n++;
	}
	return n;
}

/*
 * Numbers the cores of each domain in the order in which they stand, so that sorting by number deals them out. Twice:
 * those of a domain are to come from its caches in turn, too.
 */
static void deal_out(struct core_ref *refs, size_t n, bool by_llc)
{
	uint16_t next[CPU_MAX] = { 0 };

	for (size_t i = 0; i < n; i++)
		refs[i].turn = next[by_llc ? refs[i].llc : refs[i].domain]++;
	qsort(refs, n, sizeof(*refs), compare_refs);
}

int cores_pick(const struct board *b, const struct mask *takable, struct mask *ret_cpus)
{
	cleanup_free struct core_ref *refs = calloc(b->topo->n_cores + 1, sizeof(*refs));
	struct mask cpus = { 0 };
	uint64_t served = 0;
	size_t n;

	if (!refs)
		return -ENOMEM;
	n = collect_refs(b, takable, refs);
	qsort(refs, n, sizeof(*refs), compare_refs);
	if (b->facts->class->cpu.placement == PLACEMENT_SPREAD) {
		deal_out(refs, n, true);
		deal_out(refs, n, false);
	}
	for (size_t i = 0; i < n && served < b->plan->mcpu; i++) {
		CORE_FOR_EACH(cpu, b, refs[i].core)
			mask_set(&cpus, cpu->id);
		served += core_serves(b, refs[i].core);
	}
	if (served < b->plan->mcpu)
		return -ENOSPC;
	if (b->facts->class->cpu.smt == SMT_LEAVE_IDLE)
		one_thread_per_core(b, &cpus);
	*ret_cpus = cpus;
	return 0;
}
