/*
 * What the files of the placement engine share.
 *
 * A decision first draws up a board: who is where, added up once over all occupants. Everything after that looks at
 * cores and domains only, so that a decision grows linearly with the number of containers.
 */
#pragma once

#include "cost.h"
#include "plan.h"

/* Loads are kept in 1/1000 of the 1/1000 CPU in which demand comes, so that spreading over many CPUs loses nothing. */
#define LOAD_SCALE 1000u

/* For "%" CPUS_FMT: 1/1000 CPUs as "1.50". */
#define CPUS_FMT "llu.%02u"
#define CPUS_ARG(mcpu) (unsigned long long) ((mcpu) / 1000), (unsigned) ((mcpu) % 1000 / 10)

/* Of bytes that limits name: four limits of 4 EiB, "as much as there is", would come to none at all. */
static inline uint64_t add_bytes(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

struct board {
	const struct place_facts *facts;
	const struct topology *topo;
	struct plan *plan;  /* being made */
	size_t words;       /* of a mask, up to the last CPU */
	bool owner;         /* the plan takes whole cores for itself: CORES, or exclusive */
	struct mask open;   /* online, allowed and not reserved */
	struct mask owned;  /* whole cores that this container must keep off */
	struct mask usable; /* open without owned */
	/* Whole cores of containers that this one's cores would have to be free of, if it is to own any: */
	struct mask busy;   /* where they run */
	struct mask shaped; /* where they run and were given no more cores than they need */
	struct mask pinned; /* where they run and cannot be moved away */
	struct mask family; /* whole cores of the same group's CORES containers, which may be shared */
	uint64_t *load;                 /* by CPU: demand of occupants, spread evenly over the CPUs of each */
	uint64_t *kin;                  /* the part of it that may run beside this container: same cookie, or none either */
	uint64_t *llc_stream;           /* by LLC: how much of its CPUs' load streams memory */
	uint64_t node_stream[NODE_MAX]; /* by node with the memory */
	uint64_t memory_used[NODE_MAX]; /* memory limits of occupants, likewise */
	uint16_t *llc_cores;            /* by LLC */
	unsigned *llc_cpus;             /* scratch of cost.c, by LLC; all 0 between calls */
	uint16_t *llcs;
	/* Threads of core c: topo->cpus[core_cpu[i]] with i from core_start[c] up to core_start[c + 1]. */
	uint16_t *core_start, *core_cpu;
	uint16_t *all_cores; /* those that are online */
	size_t n_cores;
};

/* The demand of the container, in LOAD_SCALE units. */
static inline uint64_t board_demand(const struct board *b)
{
	return (uint64_t) b->plan->mcpu * LOAD_SCALE;
}

/* board.c */
int board_new(const struct place_facts *facts, struct plan *plan, struct board **ret_board) must_check;
void board_freep(struct board **b);
#define cleanup_board cleanup_with(board_freep)
#define CORE_FOR_EACH(cpu, b, core)                                                                          \
	for (const uint16_t *at_ = (b)->core_cpu + (b)->core_start[core];                                    \
	     at_ < (b)->core_cpu + (b)->core_start[(core) + 1]; at_++)                                       \
		for (const struct topo_cpu *cpu = &(b)->topo->cpus[*at_]; cpu; cpu = NULL)
/* Whether every online thread of the core is in the mask. */
bool core_within(const struct board *b, unsigned core, const struct mask *cpus);
/* Keeps the lowest of each core's threads that are there. */
void one_thread_per_core(const struct board *b, struct mask *cpus);
/* Nodes with memory to which the CPUs belong. */
nodemask nodes_of_cpus(const struct topology *t, const struct mask *cpus);
/* Whether the plan would have to be alone on the cores that it owns as far as this occupant goes. */
bool must_part(const struct place_facts *facts, bool exclusive, const struct occupant *o);

/* cost.c */
/* Of running on `cpus`, which are threads of `cores`. Not to be called by two threads on one board. */
void cost_of_cpus(const struct board *b, const uint16_t *cores, size_t n_cores, const struct mask *cpus,
		  struct cost *ret);
/* What `add` more load (LOAD_SCALE units) on a core costs, and what it costs in collisions. */
int64_t core_cost(const struct board *b, unsigned core, uint64_t add, int64_t *ret_collision);
/* What `streams` more on a last-level cache cost. */
int64_t llc_cost(const struct board *b, unsigned llc, uint64_t streams);
/* Where the memory of a container that runs lies when it is not to be moved; 0: it goes where its policy puts it. */
nodemask memory_stays(const struct place_facts *facts);
/* Bytes that would have to be moved for all of it to lie on these nodes. */
uint64_t memory_to_move(const struct place_facts *facts, nodemask to);
/* Of a load, how much streams memory. */
uint64_t stream_of(const struct model *m, uint64_t load, bool streams);
/* Work lost on a core of so many threads that has this load. */
int64_t core_loss(const struct model *m, unsigned threads, uint64_t load);

/* candidates.c: domains of one level (the machine, packages, nodes, last-level caches) as places for the plan. */
struct candidate {
	enum cpu_span level;
	unsigned domain;       /* index of package or LLC, node number; NODE_MAX: CPUs whose node has no memory */
	bool present;          /* the machine has such a domain */
	nodemask nodes;        /* of its usable CPUs */
	unsigned cpus;         /* usable ones */
	uint64_t capacity;     /* 1/1000 CPU */
	uint64_t load;         /* LOAD_SCALE units */
	uint64_t ratio;        /* (load + demand) / capacity in thousandths */
	unsigned whole;        /* demand that its takable whole cores can serve, 1/1000 CPU */
	uint64_t memory_free;  /* bytes that the limits of occupants leave on the nodes this plan would use */
	struct cost cost;
	bool fits;             /* demand and memory */
};
struct candidates {
	struct candidate *list;
	size_t n;
};
void candidates_done(struct candidates *c);
#define cleanup_candidates cleanup_with(candidates_done)
/* Adds the domains of one more level. takable: CPUs of the whole cores that may be taken; the plan's demand is compared with what they serve. */
int candidates_add(const struct board *b, enum cpu_span level, const struct mask *takable,
		   struct candidates *c) must_check;
/* The one that costs least; NULL when there is none. need_whole: of those with enough whole cores. */
const struct candidate *candidates_best(const struct board *b, const struct candidates *c, bool need_whole);
/* Why this one and not the others, into the plan's reasons and rejects. */
void candidates_report(const struct board *b, const struct candidates *c, const struct candidate *best,
		       bool need_whole);
unsigned domain_of(const struct topo_cpu *cpu, enum cpu_span level);
void domain_cpus(const struct topology *t, enum cpu_span level, unsigned domain, struct mask *ret_cpus);
char *domain_name(enum cpu_span level, unsigned domain) must_check;

/* cores.c */
/* Demand that one core serves, in 1/1000 CPU. */
unsigned core_serves(const struct board *b, unsigned core);
/* Takes whole cores out of `takable` for the plan's demand, the freest first. -ENOSPC when they do not suffice. */
int cores_pick(const struct board *b, const struct mask *takable, struct mask *ret_cpus) must_check;
/* Sets cpus and wish of a plan that owns its cores, anywhere in its span or exactly where the OCI spec puts it. */
int place_owned(struct board *b, struct error *err) must_check;
int place_owned_given(struct board *b, struct error *err) must_check;

/* place_memory.c */
/* Nodes that the class's memory policy would use with CPUs on nodes `local`. */
nodemask memory_nodes_for(const struct place_facts *facts, nodemask local);
uint64_t memory_free_on(const struct board *b, nodemask nodes);
/* The tier that the operator put the node into, or else the machine. */
enum memory_tier memory_tier_of(const struct place_facts *f, const struct topo_node *node);
/* How much of the memory on the nodes of the class's policy goes to this one, against the others; at least 1. */
unsigned memory_weight(const struct place_facts *f, unsigned node);
/* Whether the memory policy names nodes, rather than following the CPUs. */
bool memory_names_nodes(const struct place_facts *f);
/* Where memory of a policy that names none comes from, for CPUs of that node: itself, or the nearest allowed. */
nodemask memory_near(const struct place_facts *f, unsigned from);
int place_memory(struct board *b, struct error *err) must_check;

/* neighbours.c */
struct fences;
/* newcomer (may be NULL) stands beside the occupants and takes the place of the one with its id. */
int fences_new(const struct topology *topo, const struct occupant *occupants, size_t n,
	       const struct occupant *newcomer, struct fences **ret_fences) must_check;
void fences_freep(struct fences **f);
#define cleanup_fences cleanup_with(fences_freep)
/* What the occupant's CPUs should be: its wish without the cores that others own. Empty when they own all of it. */
void fences_target(const struct fences *f, const struct occupant *o, struct mask *ret_target);
int neighbours_with(const struct topology *topo, const struct occupant *occupants, size_t n,
		    const struct occupant *newcomer, struct plan_adjust **ret, size_t *ret_n) must_check;
