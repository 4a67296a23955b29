/*
 * Sets of CPUs (struct mask) and of NUMA nodes (nodemask), in the kernel's list format: "0-3,8".
 *
 * Capacity is fixed so that set operations cannot fail: 4,096 CPUs and 64 nodes. The kernel's own ceilings are higher
 * (NR_CPUS 8192, MAX_NUMNODES 1024 on x86-64 distribution kernels); an id beyond ours is an error, never dropped.
 */
#pragma once

#include "base.h"

#define CPU_MAX 4096
#define MASK_WORDS (CPU_MAX / 64)
#define NODE_MAX 64

struct mask {
	uint64_t w[MASK_WORDS];
};
typedef uint64_t nodemask;

/* __builtin_popcountll() would be a call into libgcc, and three times as slow: we build for the oldest x86-64. */
static inline unsigned bit_count(uint64_t v)
{
	v -= v >> 1 & UINT64_C(0x5555555555555555);
	v = (v & UINT64_C(0x3333333333333333)) + (v >> 2 & UINT64_C(0x3333333333333333));
	v = (v + (v >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	return (unsigned) (v * UINT64_C(0x0101010101010101) >> 56);
}

static inline nodemask node_bit(unsigned node)
{
	return UINT64_C(1) << node;
}

static inline void mask_set(struct mask *m, unsigned cpu)
{
	m->w[cpu / 64] |= UINT64_C(1) << (cpu % 64);
}

static inline void mask_clear(struct mask *m, unsigned cpu)
{
	m->w[cpu / 64] &= ~(UINT64_C(1) << (cpu % 64));
}

static inline bool mask_test(const struct mask *m, unsigned cpu)
{
	return cpu < CPU_MAX && (m->w[cpu / 64] >> (cpu % 64) & 1);
}

bool mask_empty(const struct mask *m);
bool mask_equal(const struct mask *a, const struct mask *b);
bool mask_intersects(const struct mask *a, const struct mask *b);
bool mask_subset(const struct mask *part, const struct mask *whole);
unsigned mask_weight(const struct mask *m);
void mask_or(struct mask *m, const struct mask *other);
void mask_and(struct mask *m, const struct mask *other);
void mask_andnot(struct mask *m, const struct mask *other);
/* The lowest member >= from, or CPU_MAX when there is none. */
unsigned mask_next(const struct mask *m, unsigned from);
#define MASK_FOR_EACH(cpu, m) \
	for (unsigned cpu = mask_next((m), 0); cpu < CPU_MAX; cpu = mask_next((m), cpu + 1))

/*
 * Kernel list format. Surrounding white space and an empty list are fine; descending ranges, junk and missing numbers
 * are -EINVAL; an id beyond capacity is -ERANGE.
 */
int mask_parse(const char *list, struct mask *ret_mask) must_check;
int nodemask_parse(const char *list, nodemask *ret_nodes) must_check;
/* malloc'd list, "" for the empty set; NULL when out of memory. */
char *mask_format(const struct mask *m) must_check;
char *nodemask_format(nodemask nodes) must_check;

/* The lowest node >= from, or NODE_MAX when there is none. */
static inline unsigned nodemask_next(nodemask nodes, unsigned from)
{
	nodes = from < NODE_MAX ? nodes >> from << from : 0;
	return nodes ? (unsigned) __builtin_ctzll(nodes) : NODE_MAX;
}

#define NODEMASK_FOR_EACH(node, nodes)                                         \
	for (unsigned node = nodemask_next((nodes), 0); node < NODE_MAX;       \
	     node = nodemask_next((nodes), node + 1))
