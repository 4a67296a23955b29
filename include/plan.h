/*
 * Decisions. Facts in, plan out: nothing here reads the machine or the clock. Only struct plan crosses from deciding
 * to acting (sys/apply.c), and the ledger stores it, so repairing a placement needs no new decision.
 */
#pragma once

#include "cost.h"
#include "policy.h"
#include "topology.h"

/* What the kernel offers for core scheduling. Probed by sys/support.c; each state has its own message and meaning. */
enum coresched_support {
	CORESCHED_SUPPORTED,
	CORESCHED_NO_KERNEL_OPTION, /* EINVAL: CONFIG_SCHED_CORE is not set */
	CORESCHED_NO_SIBLINGS,      /* ENODEV: SMT absent or off; isolation holds trivially until it comes on */
	CORESCHED_DENIED,           /* EPERM, or a seccomp filter on cotenant itself */
	CORESCHED_KNOWN_BAD,        /* a sched_ext scheduler is loaded, or a listed kernel */
};
const char *coresched_support_name(enum coresched_support s); /* "supported", "no-kernel-option", … */
const char *coresched_support_text(enum coresched_support s); /* a plain sentence */

/* How a plan keeps tenants apart. */
enum mechanism {
	MECHANISM_NONE,        /* the class asks for no isolation, or it is degraded and the reason says why */
	MECHANISM_COOKIE,
	MECHANISM_CORES,       /* whole cores that no other tenant gets */
	MECHANISM_NO_SIBLINGS, /* cookie mode on a machine without SMT: holds by itself */
};
const char *mechanism_name(enum mechanism m);
int mechanism_from_name(const char *name, enum mechanism *ret) must_check;

/* A container that is already placed, as far as others must know of it. */
struct occupant {
	const char *id, *group;
	enum mechanism mechanism;
	bool exclusive;
	bool bound;         /* its CPUs were given by the OCI spec or another manager: never shrink it */
	bool unsynced;      /* its cpuset may not be yet what the ledger says */
	bool weights;       /* its placement relies on the interleave weights that cotenant wrote (plan.set_weights) */
	bool streams;       /* of a class that spreads: counted as streaming memory all the time */
	unsigned mcpu;      /* demand, 1/1000 CPU */
	uint64_t memory;    /* bytes, 0: unknown */
	nodemask mems;      /* nodes its memory policy or cpuset names; 0: all */
	const struct mask *cpus; /* now; shared: containers have few distinct sets */
	const struct mask *wish; /* what it would have if no `cores` tenant had come since */
};

/* Whether others must keep off its cores. */
static inline bool occupant_owns(const struct occupant *o)
{
	return o->mechanism == MECHANISM_CORES || o->exclusive;
}

struct place_facts {
	const struct topology *topo;
	const struct policy *policy;
	const struct policy_class *class;
	const char *id, *tenant, *group;
	struct mask allowed_cpus;   /* what the cgroup hierarchy and the OCI spec let it use */
	nodemask allowed_mems;
	bool cpus_given, mems_given; /* the OCI spec named them */
	unsigned mcpu;              /* demand; 0: unknown, the class's count or 1 CPU is used */
	bool mcpu_is_limit;         /* the demand is a hard quota, so more CPUs would not be used */
	uint64_t memory;            /* bytes of the memory limit; 0: none */
	bool spec_memory_policy;    /* linux.memoryPolicy is set: the runtime applies it and it wins */
	bool can_cpuset;            /* the container's cpuset can be written */
	bool can_weighted;          /* MPOL_WEIGHTED_INTERLEAVE known to the kernel (6.9) */
	enum coresched_support coresched;
	const struct occupant *occupants;
	size_t n_occupants;
	/* Of a container that runs already; NULL for one that is about to start. */
	const struct mask *now;     /* its CPUs: of cores that are as good, those that it has are taken */
	const uint64_t *resident;   /* bytes of its memory by node, NODE_MAX of them; without memory.migrate it stays */
};

/* A neighbour whose cpuset must change so that the plan holds. */
struct plan_adjust {
	char *id;
	struct mask cpus;
};

struct plan_reject {
	char *candidate; /* "node 1" */
	char *why;       /* "load would be 175 % against 50 %" */
	struct cost cost; /* of the plan there; all 0 when it cannot be there */
};

struct plan {
	enum mechanism mechanism;
	bool set_cpus, set_mems;  /* false: the cpuset is left as it is, cpus/mems tell what that is */
	struct mask cpus, wish;
	nodemask mems;
	bool bound, exclusive;
	bool streams;             /* as in struct occupant */
	bool confined;            /* cpus must be set, or it would run on cores that others own; not written down */
	unsigned mcpu;            /* demand, 1/1000 CPU */
	uint64_t memory;          /* bytes of its limit; 0: none */
	struct cost cost;         /* not written down: another moment has another cost */
	enum memory_policy memory_policy;
	nodemask memory_nodes;    /* of the memory policy */
	bool set_weights;         /* weights below are to be written to sysfs */
	uint8_t weights[NODE_MAX];
	uint8_t ratio[NODE_MAX];  /* the class's own, when it differs from the weights: reached by moving pages; 0: none */
	unsigned guard;
	enum exec_cover exec;
	bool migrate;
	struct rebalance rebalance;
	bool confine_unmanaged;   /* node.confine_unmanaged: what cotenant did not place must keep off these cores */
	bool degraded;            /* something the class asks for is not enforced: the first of `reasons` say what */
	char **reasons;           /* plain sentences, in order of weight */
	size_t n_reasons;
	size_t n_lacks;           /* how many of them say what is not enforced; not kept when a plan is written down */
	struct plan_reject *rejects;
	size_t n_rejects;
	struct plan_adjust *adjusts;
	size_t n_adjusts;
};

/* Whether it takes whole cores off which others must keep. */
static inline bool plan_owns(const struct plan *p)
{
	return p->mechanism == MECHANISM_CORES || p->exclusive;
}

void plan_free(struct plan *p);
void plan_freep(struct plan **p);
#define cleanup_plan cleanup_with(plan_freep)

/*
 * Places one container. -EOPNOTSUPP: the class refuses what this machine cannot give (err says what and why).
 * -ENOSPC: no room that keeps the class's promises. -EINVAL: the OCI limits and the policy contradict each other.
 */
int plan_place(const struct place_facts *facts, struct plan **ret_plan, struct error *err) must_check;

/*
 * Places one container that gets no protection because something failed (on_error "admit"): anywhere, but off the cores
 * that others own. Needs no class. -ENOSPC, -EOPNOTSUPP: it could not be kept off them.
 */
int plan_unprotected(const struct place_facts *facts, struct plan **ret_plan, struct error *err) must_check;

/* Appends a sentence to the reasons. Out of memory is ignored: a reason is worth less than the plan. */
void plan_reason(struct plan *p, const char *fmt, ...) printf_like(2, 3);
/* The plan is degraded, and this sentence, before all others, says what is lacking. */
void plan_lack(struct plan *p, const char *fmt, ...) printf_like(2, 3);
/* All that is lacking in one malloc'd line; NULL when nothing is, or without memory. */
char *plan_lacks(const struct plan *p) must_check;

/*
 * The cpusets that must change given who is there: everybody keeps off the cores of other groups' `cores` tenants, and
 * gets back what such a tenant left behind. Fills *ret (malloc'd array, each with a malloc'd id).
 */
int plan_neighbours(const struct topology *topo, const struct occupant *occupants, size_t n,
		    struct plan_adjust **ret, size_t *ret_n) must_check;
void plan_adjusts_free(struct plan_adjust *adjusts, size_t n);

/*
 * The plan as members of the writer's open object, and back. What cannot be written makes the writer fail. What is read
 * may be damaged: -EINVAL when a member is missing, of another type or out of range; -ENOMEM. err says which.
 */
void plan_write(struct json_writer *w, const struct plan *p);
int plan_read(const struct json *object, struct plan **ret_plan, struct error *err) must_check;

/* What `cotenant explain` and the log print: text, one sentence a line. malloc'd. */
char *plan_explain(const struct plan *p, const struct place_facts *facts) must_check;
/* The same as an object: the costs as in cost_write(), the members of plan_write(), and reject_costs in their order. */
void plan_explain_json(struct json_writer *w, const struct plan *p, const struct place_facts *facts);

/* ---- many at once ---- */

/* A container, as far as it differs from the others that are decided upon together. Fields as in struct place_facts. */
struct container {
	const struct policy_class *class;
	const char *id, *tenant, *group;
	const struct mask *allowed_cpus; /* shared, like those of occupants */
	nodemask allowed_mems;
	bool cpus_given, mems_given, mcpu_is_limit, spec_memory_policy, can_cpuset;
	unsigned mcpu;
	uint64_t memory;
	/* Of one that runs, for plan_rebalance(): */
	const struct occupant *now; /* its present placement; must be set. Of its demand and memory, those above count */
	const uint64_t *resident;   /* bytes by node, NODE_MAX of them; NULL: its limit, where its policy and CPUs put it */
	bool held;                  /* not to be moved this time: it was a short time ago, or its CPUs are being written */
	unsigned recent_moves;      /* of all containers of its class in the last minute */
};

struct many_facts {
	const struct topology *topo;
	const struct policy *policy;
	enum coresched_support coresched;
	bool can_weighted;
	const struct container *containers; /* in any order; their ids differ */
	size_t n;
	const struct occupant *occupants;   /* who else is there, and stays but for moving aside for owners */
	size_t n_occupants;
};

/* What became of one container of a set: a plan, or an errno of plan_place() and what it says. */
struct packed {
	const char *id;    /* the container's own */
	struct plan *plan; /* NULL when it cannot be placed. Its adjusts are in those of the pack, its cost is as of the end */
	int error;         /* negative; 0 with a plan */
	struct error why;
};

struct pack {
	struct packed *list; /* in the order of the containers */
	size_t n;
	struct cost cost;    /* of all that could be placed and the occupants together */
	unsigned tries, better; /* how often one was placed anew beside all others, and how often that cost less */
	struct plan_adjust *adjusts; /* of occupants */
	size_t n_adjusts;
};

void pack_free(struct pack *p);
void pack_freep(struct pack **p);
#define cleanup_pack cleanup_with(pack_freep)

/*
 * Places a whole set at once: owners of cores first, then those whose CPUs are given, then by demand; then each anew
 * beside all others, and pairs when that helps no more, for as long as it costs less: PACK_PASSES times round at most,
 * and PACK_TRIES times in all. The result does not depend on the order of the input. One that finds no room has its
 * error, and the others their plans.
 *
 * Time: n + PACK_TRIES times that of plan_place(). Fails with -ENOMEM, and -EINVAL for two containers of one id.
 */
#define PACK_PASSES 4
#define PACK_TRIES 2048
int plan_pack(const struct many_facts *facts, struct pack **ret_pack) must_check;

struct move {
	char *id;
	struct plan *plan;
	struct cost before, after; /* of this container beside all others; after: COST_MOVE is in it */
	uint64_t bytes;            /* of memory that would have to move */
	int64_t gain;              /* millionths of a CPU, of all containers together, COST_MOVE taken off; a swap's of both */
	size_t swap;               /* in a swap, the number of moves until its other one ends it: 1 for the first, 0 else */
	char *why;                 /* a plain sentence */
};

struct moves {
	struct move *list;      /* to be done in this order */
	size_t n;
	struct cost before, after; /* of all containers, when all is done; what moving memory costs is in `after` */
	size_t considered;      /* containers for which another place was looked for, the last time round */
	size_t movable;         /* containers that might be moved at all */
	bool full;              /* there is more demand than the machine serves: moving would only move the trouble */
};

void moves_free(struct moves *m);
void moves_freep(struct moves **m);
#define cleanup_moves cleanup_with(moves_freep)

/*
 * The best moves for a running machine, at most max_moves of them, and of each class at most what is left of its
 * rebalance.max_moves_per_minute. One is made when all containers together gain rebalance.min_gain of its demand by it,
 * and never less than REBALANCE_LEAST, beyond what it costs to move its memory. When no single move helps, pairs of
 * containers are tried: the first takes its best place as though the second were gone, then the second; both are
 * containers that own no cores. Not moved: containers that are held, bound, given CPUs, whose cpuset cannot be written
 * or whose class switches rebalance.enabled off.
 *
 * The cost of all falls with every move (with both of a swap), so that doing them and asking again comes to an end.
 * After each move, no owner shares a core with anybody it must not, whatever follows.
 *
 * Time: for each move, the REBALANCE_CONSIDERED containers that lose most are placed anew by plan_place(), and up to
 * 2 * REBALANCE_PAIRS more of it for pairs; beside that, n times the number of CPUs. Containers that lose less than
 * they would have to gain are not looked at. Fails with -ENOMEM, and -EINVAL for two containers of one id.
 */
#define REBALANCE_CONSIDERED 64
#define REBALANCE_PAIRS 64
#define REBALANCE_LEAST 10000 /* millionths of a CPU */
int plan_rebalance(const struct many_facts *facts, size_t max_moves, struct moves **ret_moves) must_check;

/* Text, one sentence a line, malloc'd; and objects for the writer, as in plan_explain_json(). */
char *moves_explain(const struct moves *m) must_check;
char *pack_explain(const struct pack *p) must_check;
void moves_write(struct json_writer *w, const struct moves *m);
void pack_write(struct json_writer *w, const struct pack *p);
