/* What facts_discover() is made of. Only sys/ and its tests see it. */
#pragma once

#include "sys.h"

/* No tier is known for a node, in an array of hints by node id. */
#define TIER_UNKNOWN (-1)

/* include/linux/topology.h: what node_distance() says of a node itself, and of others when firmware has no SLIT. */
#define LOCAL_DISTANCE 10
#define REMOTE_DISTANCE 20

/* What is the cpuset controller's and the unified hierarchy's mount. Nothing mounted: an empty layout, and 0. */
int cgroup_discover(const struct sys *s, struct cgroup_layout *ret, struct error *err) must_check;

/*
 * Whether a text is XML of hwloc's with at least one CPU, and within limits; `path` is for errors. As
 * topology_from_file(), but for what only hwloc can tell.
 */
int topology_check_xml(const char *path, const char *text, size_t len, struct error *err) must_check;

/* Node sizes and SLIT distances as libnuma reads them from this machine. */
void numa_fill(struct topology *t);

/*
 * All threads of a core get the node of its first: some hypervisors give them different ones (the kernel complains and
 * goes on), and whatever is placed by cores could make nothing of that. A node with memory has CPUs when any are its
 * own then; of a node without memory that stays as it was.
 */
void topology_settle_nodes(struct topology *t);

/*
 * From sysfs, below the root: which node each CPU belongs to, HMAT attributes, tiers. Whatever the kernel or the
 * firmware does not say stays as it was.
 */
void tiers_fill(const struct sys *s, struct topology *t);
/*
 * A hint (enum memory_tier) wins; nodes with CPUs are DRAM; the others are judged by their HMAT attributes, then by
 * origin, then by distance. Of what is slower, the origin says what it is. Both arrays are by node id.
 */
void tiers_classify(struct topology *t, const int8_t hints[NODE_MAX], const int8_t origins[NODE_MAX]);
