/* Roots of machines for --root: built from a few lines of facts, or unpacked from tests/fixtures/roots. */
#pragma once

#include "topology.h"
#include "tree.h"

struct root_cpu {
	unsigned id;
	int package, core, l3; /* whatever is equal is shared, over the whole machine; l3 -1: has none */
	int node;
	bool offline;
	unsigned mhz; /* its highest clock; 0: not told */
};

struct root_node {
	unsigned id;
	uint64_t mib;          /* 0: memory-less */
	const char *distances; /* as in the file, to all nodes in order */
};

/* n_nodes 0: a kernel without NUMA. */
void root_build(const char *root, const struct root_cpu *cpus, size_t n_cpus, const struct root_node *nodes,
		size_t n_nodes);
/* A file that tests/fixtures/roots/capture wrote. */
void root_unpack(const char *root, const char *path);
/* The machine of such a root, as cotenant-topology --root finds it. Failures end the test. */
struct topology *root_topology(const char *root);
