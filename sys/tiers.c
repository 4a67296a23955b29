/*
 * Which memory tier each node is in, from what the kernel and the firmware say; never from its size. The first of these
 * that says anything decides how fast a node is, and the policy may override it (node.tiers):
 *
 *   memory tiers      /sys/devices/virtual/memory_tiering/memory_tierN, lower N = faster (mm/memory-tiers.c)
 *   HMAT attributes   nodeX/accessN/initiators (Documentation/admin-guide/mm/numaperf.rst)
 *   dax devices       where the memory of a hot-plugged node came from: an NVDIMM or a CXL region
 *   SLIT distances    as near as a CPU's own memory, or not
 *
 * Of a slower node the first two do not say what it is made of: that is the dax device's to tell, or it counts as CXL.
 */
#include "dir.h"
#include "discover.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#define NODES "/sys/devices/system/node"
#define TIERS "/sys/devices/virtual/memory_tiering"
#define DAX "/sys/bus/dax/devices"

static nodemask nodes_with_cpus(const struct topology *t)
{
	nodemask nodes = 0;

	for (size_t i = 0; i < t->n_nodes; i++)
		if (t->nodes[i].has_cpus)
			nodes |= node_bit(t->nodes[i].id);
	return nodes;
}

/* ---- CPUs ---- */

void topology_settle_nodes(struct topology *t)
{
	uint16_t first[CPU_MAX] = { 0 }; /* by core, plus 1; cores are no more than CPUs */
	nodemask own = 0;

	for (size_t k = 0; k < t->n_cpus; k++) {
		struct topo_cpu *cpu = &t->cpus[k];

		if (first[cpu->core])
			cpu->node = t->cpus[first[cpu->core] - 1].node;
		else
			first[cpu->core] = (uint16_t) (k + 1);
		if (cpu->node >= 0)
			own |= node_bit((unsigned) cpu->node);
	}
	for (size_t i = 0; i < t->n_nodes; i++)
		if (t->nodes[i].memory)
			t->nodes[i].has_cpus = own & node_bit(t->nodes[i].id);
}

/* The kernel gives every CPU one node; hwloc also calls CPU-less nodes near it local. */
static void fill_cpus(const struct sys *s, struct topology *t)
{
	cleanup_free char *online = NULL;

	if (file_readf(s, &online, NODES "/online") < 0)
		return; /* CONFIG_NUMA is off */
	for (size_t k = 0; k < t->n_cpus; k++)
		t->cpus[k].node = -1;
	for (size_t i = 0; i < t->n_nodes; i++) {
		struct topo_node *node = &t->nodes[i];
		cleanup_free char *list = NULL;
		struct mask cpus = { 0 };

		if (file_readf(s, &list, NODES "/node%u/cpulist", node->id) < 0 || mask_parse(list, &cpus) < 0)
			continue;
		node->has_cpus = mask_intersects(&cpus, &t->online);
		for (size_t k = 0; k < t->n_cpus && node->memory; k++)
			if (mask_test(&cpus, t->cpus[k].id))
				t->cpus[k].node = node->id;
	}
	topology_settle_nodes(t);
}

/* nodeX/cpuN is there for offline CPUs too, unlike in cpulist (drivers/base/node.c): such a node is plain DRAM. */
static bool has_offline_cpus(const struct sys *s, unsigned node)
{
	cleanup_free char *path = NULL;
	cleanup_free int *cpus = NULL;
	size_t n = 0;

	if (asprintf(&path, NODES "/node%u", node) < 0) {
		path = NULL;
		return false;
	}
	return dir_ids(s, path, "cpu", &cpus, &n) == 0 && n > 0;
}

/* ---- HMAT ---- */

static uint32_t read_number(const struct sys *s, const char *directory, const char *name)
{
	cleanup_free char *text = NULL;
	unsigned long long n;

	if (file_readf(s, &text, "%s/%s", directory, name) < 0)
		return 0;
	n = strtoull(text, NULL, 10);
	return n > UINT32_MAX ? UINT32_MAX : (uint32_t) n;
}

static nodemask list_nodes(const struct sys *s, const char *directory)
{
	cleanup_free int *ids = NULL;
	size_t n = 0;
	nodemask nodes = 0;

	if (dir_ids(s, directory, "node", &ids, &n) < 0)
		return 0;
	for (size_t i = 0; i < n; i++)
		if (ids[i] < NODE_MAX)
			nodes |= node_bit((unsigned) ids[i]);
	return nodes;
}

/* access1 is what the fastest CPUs get; access0 (alone before Linux 5.10) may speak of an accelerator. */
static void fill_attributes(const struct sys *s, struct topology *t)
{
	const nodemask cpu_nodes = nodes_with_cpus(t);

	for (size_t i = 0; i < t->n_nodes; i++) {
		struct topo_node *node = &t->nodes[i];

		for (int access = 1; access >= 0; access--) {
			cleanup_free char *path = NULL;
			nodemask initiators;

			if (asprintf(&path, NODES "/node%u/access%d/initiators", node->id, access) < 0) {
				path = NULL;
				return;
			}
			initiators = list_nodes(s, path) & cpu_nodes;
			if (!initiators)
				continue;
			node->initiators = initiators;
			node->read_bandwidth = read_number(s, path, "read_bandwidth");
			node->read_latency = read_number(s, path, "read_latency");
			break;
		}
	}
}

/* ---- hints ---- */

static void hint_tiers(const struct sys *s, const struct topology *t, int8_t hints[NODE_MAX])
{
	const nodemask cpu_nodes = nodes_with_cpus(t);
	int tier_of[NODE_MAX], fastest = INT_MAX, slowest = -1;
	cleanup_free int *tiers = NULL;
	size_t n = 0;

	if (dir_ids(s, TIERS, "memory_tier", &tiers, &n) < 0)
		return; /* before Linux 6.1 */
	for (unsigned node = 0; node < NODE_MAX; node++)
		tier_of[node] = -1;
	for (size_t i = 0; i < n; i++) {
		cleanup_free char *list = NULL;
		nodemask nodes = 0;

		if (file_readf(s, &list, TIERS "/memory_tier%d/nodelist", tiers[i]) < 0 ||
		    nodemask_parse(list, &nodes) < 0)
			continue;
		NODEMASK_FOR_EACH(node, nodes)
			tier_of[node] = tiers[i];
		if (nodes & cpu_nodes) {
			fastest = tiers[i] < fastest ? tiers[i] : fastest;
			slowest = tiers[i] > slowest ? tiers[i] : slowest;
		}
	}
	/* In the tier of the CPUs' memory is also what the kernel knows nothing about: no hint. */
	for (unsigned node = 0; node < NODE_MAX; node++)
		if (tier_of[node] >= 0 && slowest >= 0 && !(cpu_nodes & node_bit(node)) &&
		    (tier_of[node] < fastest || tier_of[node] > slowest))
			hints[node] = tier_of[node] < fastest ? TIER_HBM : TIER_CXL;
}

/* Where in the device tree a dax device hangs. hmem (EFI "specific purpose" memory) can be anything: no hint. */
static const struct {
	const char *part;
	enum memory_tier tier;
} dax_parents[] = {
	{ "/ndbus", TIER_PMEM },     /* drivers/nvdimm */
	{ "/dax_region", TIER_CXL }, /* drivers/cxl/core/region.c */
};

static void find_origins(const struct sys *s, int8_t origins[NODE_MAX])
{
	cleanup_dir DIR *dir = dir_open(s->root_fd, &DAX[1]);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		cleanup_free char *text = NULL, *link = calloc(1, PATH_MAX);
		long node;

		if (!link || file_readf(s, &text, DAX "/%s/target_node", entry->d_name) < 0 ||
		    readlinkat(dirfd(dir), entry->d_name, link, PATH_MAX - 1) < 0)
			continue;
		node = strtol(text, NULL, 10);
		for (size_t i = 0; i < ARRAY_LEN(dax_parents) && node >= 0 && node < NODE_MAX; i++)
			if (strstr(link, dax_parents[i].part))
				origins[node] = (int8_t) dax_parents[i].tier;
	}
}

/* ---- verdict ---- */

/*
 * Against the best DRAM that CPUs have of their own: half as much bandwidth again is HBM, nearly the same in both
 * figures is DRAM (a node of which all CPUs are gone), anything else is slower (TIER_CXL). Without figures, nothing.
 */
static int by_attributes(const struct topology *t, const struct topo_node *node)
{
	uint64_t bandwidth = 0, latency = 0;

	for (size_t i = 0; i < t->n_nodes; i++) {
		const struct topo_node *n = &t->nodes[i];

		if (!n->has_cpus || n->tier != TIER_DRAM || n->read_bandwidth <= bandwidth)
			continue;
		bandwidth = n->read_bandwidth;
		latency = n->read_latency;
	}
	if (!bandwidth || !node->read_bandwidth)
		return TIER_UNKNOWN;
	if (node->read_bandwidth * UINT64_C(2) >= bandwidth * 3)
		return TIER_HBM;
	if (node->read_bandwidth * UINT64_C(10) >= bandwidth * 9 && node->read_latency * UINT64_C(4) <= latency * 5)
		return TIER_DRAM;
	return TIER_CXL;
}

/*
 * A distance tells near from far, not fast from slow: CXL at 14 lies nearer than the DRAM of the other package at 21,
 * and HBM may be put further away than DRAM on purpose. Only what is as near as a CPU's own memory passes for that;
 * for the rest the slow tier is the guess that does least harm.
 */
static enum memory_tier by_distance(const struct topology *t, size_t node)
{
	for (size_t i = 0; i < t->n_nodes && t->distances; i++)
		if (t->nodes[i].has_cpus && t->distances[i * t->n_nodes + node] <= LOCAL_DISTANCE)
			return TIER_DRAM;
	return TIER_CXL;
}

static enum memory_tier judge(const struct topology *t, size_t node, int origin)
{
	int tier = by_attributes(t, &t->nodes[node]);

	if (tier == TIER_UNKNOWN)
		return origin == TIER_UNKNOWN ? by_distance(t, node) : (enum memory_tier) origin;
	return tier == TIER_CXL && origin != TIER_UNKNOWN ? (enum memory_tier) origin : (enum memory_tier) tier;
}

void tiers_classify(struct topology *t, const int8_t hints[NODE_MAX], const int8_t origins[NODE_MAX])
{
	for (size_t i = 0; i < t->n_nodes; i++) {
		const int8_t hint = hints[t->nodes[i].id], origin = origins[t->nodes[i].id];

		t->nodes[i].tier = hint == TIER_UNKNOWN ? TIER_DRAM : (enum memory_tier) hint;
		if (hint == TIER_CXL && origin != TIER_UNKNOWN)
			t->nodes[i].tier = (enum memory_tier) origin;
	}
	for (size_t i = 0; i < t->n_nodes; i++) {
		struct topo_node *node = &t->nodes[i];

		if (hints[node->id] == TIER_UNKNOWN && !node->has_cpus && node->memory)
			node->tier = judge(t, i, origins[node->id]);
	}
}

void tiers_fill(const struct sys *s, struct topology *t)
{
	int8_t hints[NODE_MAX], origins[NODE_MAX];

	memset(hints, TIER_UNKNOWN, sizeof(hints));
	memset(origins, TIER_UNKNOWN, sizeof(origins));
	fill_cpus(s, t);
	fill_attributes(s, t);
	hint_tiers(s, t, hints);
	find_origins(s, origins);
	for (size_t i = 0; i < t->n_nodes; i++)
		if (!t->nodes[i].has_cpus && has_offline_cpus(s, t->nodes[i].id))
			hints[t->nodes[i].id] = TIER_DRAM;
	tiers_classify(t, hints, origins);
}
