/*
 * What a placement costs: one number, the CPUs whose work is lost, as the sum of named terms. Lower is better.
 *
 * Terms are whole numbers, so that their sum does not depend on the order of CPUs and nodes, and of two costs one is
 * always less, equal or greater. policy/cost.c computes them, from the constants of include/model.h.
 */
#pragma once

#include "base.h"

enum cost_term {
	COST_CPU,       /* overload, and the work that threads of a core take from each other */
	COST_BANDWIDTH, /* more memory streams than last-level caches and memory nodes feed */
	COST_LOCALITY,  /* threads of a class that packs, in different caches or nodes */
	COST_DISTANCE,  /* DRAM of other nodes */
	COST_TIER,      /* memory of slower tiers */
	COST_MEMORY,    /* memory that does not fit */
	COST_COLLISION, /* groups with different cookies on one core: one of them has to wait */
	COST_BURST,     /* room beyond the demand that is not to be had */
	COST_MOVE,      /* moving pages, for a container that runs already */
	COST_TERMS,
};

#define MICRO_CPUS 1000000

struct cost {
	int64_t terms[COST_TERMS]; /* millionths of a CPU, none negative, none above 10^18 */
};

const char *cost_term_name(enum cost_term t); /* "cpu", "bandwidth", … */
/* What goes on "would lose 0.50 CPUs to …". */
const char *cost_term_text(enum cost_term t);

static inline int64_t cost_sum(const struct cost *c)
{
	int64_t sum = 0;

	for (unsigned i = 0; i < COST_TERMS; i++)
		sum += c->terms[i];
	return sum;
}

/* The term by which `worse` exceeds `better` most. */
enum cost_term cost_deciding(const struct cost *worse, const struct cost *better);

/* An object of the terms that are not 0, and their "sum". */
struct json_writer;
void cost_write(struct json_writer *w, const char *key, const struct cost *c);
