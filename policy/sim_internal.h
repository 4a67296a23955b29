/* Between the files of the simulator. */
#pragma once

#include "sim.h"

#define SIM_SMALL 1e-9 /* what is below is rounding */

static inline double least(double a, double b)
{
	return a < b ? a : b;
}

static inline double most(double a, double b)
{
	return a > b ? a : b;
}

/* One load on one CPU. */
struct sim_share {
	size_t cpu;  /* index into the topology's cpus */
	double want; /* thread-seconds a second */
	double work; /* what comes of it before memory is looked at */
};

struct sim_core {
	size_t first, n; /* threads: fluid.by_core[first …] */
	double load;
	unsigned llc;
};

struct fluid {
	const struct sim_model *model;
	const struct topology *topo;
	const struct sim_load *loads;
	size_t n;
	struct sim_share *shares;
	size_t *start;   /* load i: shares[start[i]] up to start[i + 1], core by core */
	size_t *by_core; /* CPU indices, core by core */
	struct sim_core *cores;
	double *on_cpu;  /* load wanted there by all */
	unsigned *llc_idle;
	struct sim_state *state;
};


/* sim_spread.c: who wants how much of which CPU (step 1). */
void sim_spread(struct fluid *f);
/* sim_cores.c: what they get there, and the state's CPUs, forced idle and insecure time (step 2). */
int sim_cores(struct fluid *f) must_check;

/* sim_machine.c */
/* How many times as far as the nearest, and as slow as the CPU's own memory. */
double sim_distance(const struct topology *t, unsigned from, const struct topo_node *to);
double sim_latency(const struct topology *t, unsigned from, const struct topo_node *to);
/* The node that memory of a CPU of that node comes from first; NODE_MAX: none has any. */
unsigned sim_nearest(const struct topology *t, unsigned from);

/* ---- a scenario that is being played ---- */

/* A container that is there. */
struct sim_place {
	const struct sim_container *container;
	size_t index;       /* of it in the scenario */
	const struct policy_class *class;
	unsigned tenant;    /* index into sim_result.tenants */
	unsigned group;     /* from 1: the cookie that it would have */
	const char *group_name;
	double demand;
	bool refused;       /* it has no place, and does not run */
	bool pages_stay;    /* its memory is not moved when its CPUs are */
	bool exclusive, bound, streams, weighted;
	enum mechanism mechanism;
	struct mask cpus, wish;
	struct mask seen;   /* its CPUs before the event */
	double moved_at;    /* when it arrived, or the rebalancer moved it last */
	nodemask mems;      /* of its memory policy; 0: none */
	bool local;         /* as in struct sim_load */
	double weights[NODE_MAX];
};

struct sim_world {
	const struct sim_scenario *scenario;
	const struct topology *topo;
	const struct policy *policy;
	enum sim_strategy strategy;
	struct sim_place *places; /* those that are there, in order of arrival */
	size_t n_places, room;
	size_t cursor;            /* round-robin: index of the next CPU */
	double now;
	struct sim_moved *moved;  /* by the rebalancer in the last minute */
	size_t n_moved;
	struct sim_result *result;
	struct error *err;
};

/* sim_strategy.c: the last of the places has just arrived. -ENOMEM; what has no place is marked as refused. */
int sim_arrive(struct sim_world *w) must_check;
/* After every event, when all who came are placed and all who went are gone. -E2BIG: result.skipped says why. */
int sim_settle(struct sim_world *w) must_check;
/* What the engine is told of the machine, and of a place. */
enum coresched_support sim_coresched(const struct topology *t);
struct occupant sim_occupant_of(const struct sim_place *p);
/* Does what a plan for a place that is there asks of it and of its neighbours; its memory policy
 * goes along when its class lets pages move. */
void sim_move(struct sim_world *w, struct sim_place *p, const struct plan *plan);
/* sim_rebalance.c: one pass. For SIM_ENGINE; others have no rebalancer. */
int sim_rebalance(struct sim_world *w) must_check;
/* sim_exhaustive.c */
int sim_exhaustive(struct sim_world *w) must_check;
/* sim_timeline.c. places: by load of the state, which of the world's places it is. */
int sim_timeline_add(struct sim_world *w, const struct sim_state *s, const size_t *places, double from,
		     double to) must_check;
/* sim_names.c: who is who, for every container of the scenario. */
struct sim_role {
	const struct policy_class *class;
	const char *tenant_name, *group_name; /* in the result's arena */
	unsigned tenant, group;               /* numbered by first arrival; groups from 1 */
};
int sim_roles(struct sim_world *w, struct sim_role **ret_roles) must_check;
/* sim_run.c: the machine as it is now. ret_places, unless NULL: malloc'd, which place each load of the model is. */
int sim_state_of(const struct sim_world *w, struct sim_state **ret_state, size_t **ret_places) must_check;
/* Nodes that these CPUs' memory comes from; adds to weights how many CPUs each serves. */
nodemask sim_nodes_of(const struct topology *t, const struct mask *cpus, double *weights);
void sim_refuse(struct sim_world *w, struct sim_place *p, const char *why);
