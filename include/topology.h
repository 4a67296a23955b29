/*
 * The machine as placement sees it: threads, cores, last-level caches, nodes, packages, memory tiers.
 * Filled by sys/topology_hwloc.c and sys/tiers.c, or read back from the cache that they wrote.
 */
#pragma once

#include "error.h"
#include "mask.h"
#include "policy.h"

struct topo_cpu {
	uint16_t id;      /* the kernel's CPU number */
	uint16_t core;    /* dense index, 0 … n_cores-1 */
	uint16_t llc;     /* dense index */
	uint16_t package; /* dense index */
	int16_t node;     /* the kernel's node number; -1: its node has no memory */
	uint8_t kind;     /* hybrid machines: hwloc cpukind rank, 0 = slowest; all 0 elsewhere */
};

struct topo_node {
	uint8_t id;           /* the kernel's node number */
	bool has_cpus;
	enum memory_tier tier;
	uint16_t package;     /* of its CPUs, or of the package it is attached to */
	uint64_t memory;      /* bytes; 0: memory-less */
	uint32_t read_bandwidth;  /* MB/s from its best initiator; 0: firmware does not say */
	uint32_t read_latency;    /* ns; 0: unknown */
	nodemask initiators;  /* nodes with CPUs that are nearest to it (HMAT); 0: unknown, use distances */
};

struct topology {
	struct topo_cpu *cpus; /* online ones, ascending by id */
	size_t n_cpus;
	struct topo_node *nodes; /* ascending by id */
	size_t n_nodes;
	unsigned n_cores, n_llcs, n_packages, smt; /* smt: most threads of any core */
	uint8_t *distances; /* n_nodes × n_nodes, row = from, by index into nodes; SLIT units, 10 = local */
	struct mask online;
	nodemask memory_nodes;
	char *key; /* what the cache was keyed by; NULL for a topology from elsewhere */
};

void topology_free(struct topology *t);
void topology_freep(struct topology **t);
#define cleanup_topology cleanup_with(topology_freep)

/* NULL when the machine has no such node. */
const struct topo_node *topology_node(const struct topology *t, unsigned id);
/* Words of a mask that hold the machine's CPUs. */
size_t topology_words(const struct topology *t);
#define TOPO_DISTANCE_UNKNOWN 255
/* SLIT distance between two nodes by the kernel's numbers; TOPO_DISTANCE_UNKNOWN when it is not known. */
unsigned topology_distance(const struct topology *t, unsigned from, unsigned to);
/* The same in multiples of what is local; unknown counts as another package. */
double topology_distance_ratio(const struct topology *t, unsigned from, unsigned to);
/* Adds every thread of each core that `cpus` touches. */
void topology_whole_cores(const struct topology *t, const struct mask *cpus, struct mask *ret_whole);

/*
 * The cache's text form (JSON), both ways. topology_parse() checks that every index and id is in range. -EINVAL: damaged,
 * or not a topology; -E2BIG: beyond the limits of such a document; -ENOMEM. err gives the place.
 */
int topology_parse(const char *name, const char *text, size_t len, struct topology **ret_topology,
		   struct error *err) must_check;
int topology_format(const struct topology *t, char **ret_text, size_t *ret_len) must_check;
