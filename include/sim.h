/*
 * The simulator: a scenario (machine, policy, containers that come, change and go) is played in virtual time under
 * several ways of placing them, and a model of the machine, which knows nothing of the engine's cost, tells how fast
 * everybody would be. Pure: files are read and topologies loaded by the caller.
 *
 * A scenario is a JSON document with comments:
 *
 *	{
 *	  "name": "two tenants",
 *	  "topology": {"synthetic": "pack:2 [numa] l3:1 core:4 pu:2"},  // or {"xml": FILE} or {"root": DIRECTORY}
 *	  "machine": {                                                  // all optional: what the topology does not say
 *	    "smt_gain": 0.68, "llc_bandwidth": 36.28, "link_bandwidth": 50,
 *	    "nodes": {"0": {"memory": "128GiB", "bandwidth": 300, "latency": 100, "tier": "dram"}}
 *	  },
 *	  "policy": "policy.json",                                      // or the policy itself, an object
 *	  "strategies": ["engine", "none"],                             // default: all
 *	  "until": 60, "rebalance": 5,
 *	  "events": [                                                   // in the order of their times
 *	    {"at": 0, "arrive": "a1", "tenant": "acme", "class": "web", "cpus": 4, "threads": 8, "memory": "4GiB",
 *	     "traffic": 2.5, "sensitivity": 0.3, "switching": 0.1, "limit": true, "bind": "0-3", "annotations": {}},
 *	    {"at": 10, "load": "a1", "cpus": 2},
 *	    {"at": 50, "leave": "a1"}
 *	  ]
 *	}
 *
 * Bandwidth and traffic are in GB/s (10^9 bytes), latency in ns, times in seconds. Sizes are bytes, or a string with
 * KiB, MiB, GiB or TiB.
 */
#pragma once

#include "plan.h"

#define SIM_SCENARIO_MAX (64u << 20) /* bytes of a scenario file */
#define SIM_EVENTS_MAX 100000
#define SIM_ALIVE_MAX 4096           /* containers at one time */
#define SIM_SECONDS_MAX 1e9
#define SIM_EXHAUSTIVE_MAX 20000     /* assignments that exhaustive search tries for one event */
#define SIM_COLUMNS_MAX 1024         /* of a timeline */

enum sim_strategy {
	SIM_ENGINE,         /* plan_place() and what it asks of the neighbours */
	SIM_NONE,           /* everything runs everywhere, and nothing keeps tenants apart */
	SIM_ROUND_ROBIN,    /* one CPU after another, in the order of their numbers */
	SIM_KUBELET_STATIC, /* whole cores of its own for each container, in order; without enough, refused */
	SIM_BALLOONS,       /* whole cores for each tenant, that grow and shrink with its demand */
	SIM_HARD_BIND,      /* exactly the CPUs of "bind"; without it, the free cores that are nearest to each other */
	SIM_EXHAUSTIVE,     /* the best by the machine model of all assignments to the machine's domains */
};
#define SIM_STRATEGIES 7
const char *sim_strategy_name(enum sim_strategy s); /* "engine", "kubelet-static", …; NULL when out of range */
const char *sim_strategy_text(enum sim_strategy s); /* a plain phrase for a legend */

/* ---- scenarios ---- */

enum sim_event_kind { SIM_ARRIVE, SIM_LOAD, SIM_LEAVE };

/* A container as its arrival describes it. */
struct sim_container {
	const char *id;
	const char *tenant, *class; /* NULL: as the policy's rules say */
	double at;                  /* when it arrives */
	double cpus;                /* demand when it arrives: how many CPUs its threads keep busy */
	double threads;             /* no more CPUs than threads can be busy; never below cpus */
	uint64_t memory;            /* bytes, 0: none worth counting */
	double traffic;             /* GB/s between memory and each of its busy CPUs */
	double sensitivity;         /* share of its time for which it waits for memory that is near; 0 … 1 */
	double switching;           /* share of its speed that a cookie costs because it switches all the time; 0 … 1 */
	bool limit;                 /* the demand is a hard limit too */
	bool has_bind;
	struct mask bind;
	struct oci_annotations annotations;
};

struct sim_event {
	enum sim_event_kind kind;
	double at;
	size_t container; /* index into sim_scenario.containers */
	double cpus;      /* SIM_LOAD */
	unsigned line, column;
};

/* What a scenario says of a node beside the topology. */
struct sim_node {
	bool given, has_tier;
	uint64_t memory;    /* bytes; 0: not given, as below */
	double bandwidth;   /* GB/s */
	double latency;     /* ns */
	enum memory_tier tier;
	unsigned line, column;
};

/* The constants of the machine model; their sources are in policy/sim_machine.c. */
struct sim_model {
	double smt_gain;       /* all threads of a core do 1 + smt_gain of what one does alone; negative: the default */
	double llc_bandwidth;  /* GB/s that one last-level cache takes; 0: by its cores */
	double link_bandwidth; /* GB/s from one package to another; 0: the node's bandwidth divided by the distance */
};

struct sim_scenario {
	struct arena arena; /* owns everything below */
	const char *file, *name;
	enum sim_topology_kind { SIM_TOPOLOGY_XML, SIM_TOPOLOGY_SYNTHETIC, SIM_TOPOLOGY_ROOT } topology_kind;
	const char *topology;    /* path or description */
	const char *policy_file; /* NULL: policy_text; relative to the scenario's directory as the topology's path is */
	const char *policy_text; /* so padded that its places are those of the scenario's file */
	struct sim_model model;
	struct sim_node nodes[NODE_MAX];
	bool strategies[SIM_STRATEGIES];
	double until;            /* default: 1 s after the last event */
	double rebalance;        /* seconds between two passes of the rebalancer; 0: none */
	struct sim_container *containers;
	size_t n_containers;
	struct sim_event *events; /* in order of time */
	size_t n_events;
};

/*
 * -EINVAL, -E2BIG: err names file:line:column, the path in the document and what is wrong. Events out of order are
 * refused, not sorted: a time that was mistyped would go unseen. A container may arrive again after it left.
 */
int sim_parse(const char *file, const char *text, size_t len, struct sim_scenario **ret_scenario,
	      struct error *err) must_check;
void sim_scenario_free(struct sim_scenario *s);
void sim_scenario_freep(struct sim_scenario **s);
#define cleanup_sim_scenario cleanup_with(sim_scenario_freep)

/* The scenario's own policy, when it has no policy_file. Errors as in policy_parse(). */
int sim_policy(const struct sim_scenario *s, struct policy **ret_policy, struct error *err) must_check;
/* Puts what the scenario says of nodes into the topology. -EINVAL: a node that it does not have. */
int sim_topology(const struct sim_scenario *s, struct topology *topo, struct error *err) must_check;

/* ---- the machine model (policy/sim_machine.c) ---- */

/* One container that runs now. */
struct sim_load {
	const struct mask *cpus;
	double demand, threads;
	unsigned group;    /* those of other groups never run on a core at the same time; 0: no cookie */
	unsigned tenant;   /* any number: whose threads may see whose */
	double traffic, sensitivity, switching; /* as in struct sim_container */
	bool local;        /* each thread's memory lies on its own node, or the nearest that has any; else: */
	double weights[NODE_MAX]; /* share of its memory on each node, in any unit */
};

struct sim_speed {
	double speed;  /* 1: each of its busy CPUs has a core for itself, all its traffic, and the nearest memory */
	double busy;   /* CPUs that it keeps busy */
	double remote; /* share of its accesses to memory that is not the nearest of its tier */
};

struct sim_cpu {
	double busy;     /* 0 … 1 */
	size_t load;     /* index of the one that has most of it; SIZE_MAX: none */
};

struct sim_state {
	struct sim_speed *speeds;  /* by load */
	struct sim_cpu *cpus;      /* by index into the topology's cpus */
	double forced_idle;        /* CPUs that idle because a sibling runs another group, which is wanted there */
	double insecure;           /* CPUs that at most run beside another tenant's thread on the same core */
	double remote;             /* share of all accesses that is remote */
	double work;               /* CPUs' worth of work done by all */
};

/* -ENOMEM. The same loads in the same order give the same state, to the last bit. */
int sim_fluid(const struct sim_model *model, const struct topology *topo, const struct sim_load *loads, size_t n,
	      struct sim_state **ret_state) must_check;
void sim_state_free(struct sim_state *s);
void sim_state_freep(struct sim_state **s);
#define cleanup_sim_state cleanup_with(sim_state_freep)

/* ---- running ---- */

struct sim_tenant {
	const char *name;     /* in the result's arena */
	size_t containers;    /* that it ever had */
	double seconds;       /* summed over its containers */
	double cpu_seconds;   /* demanded */
	double speed;         /* mean, weighted by time and demand; 0 when it never demanded anything */
	double worst;         /* the lowest speed that one of its containers had for any time */
	double remote;        /* share of its accesses that were remote, weighted likewise */
};

struct sim_cell {
	uint16_t tenant; /* index into sim_result.tenants, plus 1; 0: idle */
	uint8_t busy;    /* 255: all the time */
};

/* Who had which CPU from one time to another. */
struct sim_column {
	double from, to;
	struct sim_cell *cells; /* by index into the topology's cpus */
};

struct sim_result {
	struct arena arena; /* owns the names */
	enum sim_strategy strategy;
	const char *skipped; /* why there is nothing to see, such as "too large: 5^9 assignments"; NULL: it ran */
	struct sim_tenant *tenants; /* in order of their first arrival; the same order for every strategy */
	size_t n_tenants;
	double seconds;             /* of virtual time */
	double speed;               /* mean over all containers, weighted by time and demand */
	double worst;               /* the lowest mean of a tenant */
	double forced_idle, insecure, busy; /* CPU seconds */
	double remote;              /* share of all accesses */
	double work;                /* CPU seconds' worth */
	size_t migrations;          /* containers whose CPUs were changed while they ran, counted each time */
	size_t moves;               /* of those, proposed by the rebalancer */
	uint64_t moved_bytes;       /* memory that was moved from node to node */
	size_t refused;             /* arrivals that had no place; they do not run, and count as speed 0 */
	const char *first_refusal;  /* why; NULL */
	struct sim_column *columns; /* adjacent and without gaps; the shortest are merged above SIM_COLUMNS_MAX */
	size_t n_columns;
};

/*
 * Plays the scenario. `topo` as after sim_topology(). -EINVAL: the scenario names a class that the policy does not
 * have, or the policy's rules cannot tell a container's tenant; -E2BIG: more than SIM_ALIVE_MAX containers at one time.
 */
int sim_run(const struct sim_scenario *s, const struct topology *topo, const struct policy *policy,
	    enum sim_strategy strategy, struct sim_result **ret_result, struct error *err) must_check;
void sim_result_free(struct sim_result *r);
void sim_result_freep(struct sim_result **r);
#define cleanup_sim_result cleanup_with(sim_result_freep)
