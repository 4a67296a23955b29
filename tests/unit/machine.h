/* Synthetic machines for tests of placement. */
#pragma once

#include "topology.h"

struct machine {
	unsigned packages, nodes, llcs, cores, smt; /* nodes of a package, LLCs of a node, cores of an LLC, threads */
	unsigned slow_nodes;                        /* CPU-less CXL nodes after them, of package 0, 1, 0, … */
	uint64_t memory;                            /* bytes of each node; slow ones have twice that */
};

/* CPUs are numbered as on x86: the first thread of every core, then the second of every core. Aborts on error. */
struct topology *machine_topology(const struct machine *m);
/* Any number below another, the same ones for the same seed; *random is never 0. */
uint64_t draw(uint64_t *random, uint64_t below);
/* One in so many of the machine's CPUs. */
struct mask draw_cpus(uint64_t *random, const struct topology *t, unsigned one_in);
/* Takes CPUs offline. A core without threads stays as a number that no CPU has. */
void machine_offline(struct topology *t, const struct mask *cpus);
struct mask cpus_of(const char *list);
/* NULL when the machine has no such CPU. */
const struct topo_cpu *cpu_of(const struct topology *t, unsigned id);
