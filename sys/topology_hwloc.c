#include "discover.h"

#include <errno.h>
#include <hwloc.h>
#include <limits.h>

/* What hwloc takes only from its environment. Its plugins are for devices, which are of no interest here, and opening
 * them loads GPU drivers. What else the caller has there would change what is read, or make hwloc talk. */
static const char *const environment[][2] = {
	{ "HWLOC_HIDE_ERRORS", "2" },
	{ "HWLOC_PLUGINS_PATH", "/nonexistent" },
	{ "HWLOC_FSROOT", NULL },
	{ "HWLOC_XMLFILE", NULL },
	{ "HWLOC_SYNTHETIC", NULL },
	{ "HWLOC_COMPONENTS", NULL },
	{ "HWLOC_THISSYSTEM", NULL },
	{ "HWLOC_XML_VERBOSE", NULL },
	{ "HWLOC_SYNTHETIC_VERBOSE", NULL },
	{ "HWLOC_COMPONENTS_VERBOSE", NULL },
};

/* Stands in for the size of nodes when the source has none at all, so that they do not pass for memory-less. */
#define UNSTATED_MEMORY (UINT64_C(1) << 40)

/* Dense numbers for objects, in the order in which they are met. */
struct dense {
	hwloc_obj_t *objs;
	unsigned n;
};

struct build {
	hwloc_topology_t hw;
	struct topology *t;
	hwloc_obj_t *nodes; /* as t->nodes */
	struct dense cores, llcs, packages;
	int8_t hints[NODE_MAX];
};

static void build_done(struct build *b)
{
	if (b->hw)
		hwloc_topology_destroy(b->hw);
	topology_free(b->t);
	free(b->nodes);
	free(b->cores.objs);
	free(b->llcs.objs);
	free(b->packages.objs);
}

/* Newest first: neighbours in hwloc's order mostly share. There is room for one object per CPU. */
static uint16_t dense_index(struct dense *d, hwloc_obj_t obj)
{
	for (unsigned i = d->n; i-- > 0;)
		if (d->objs[i] == obj)
			return (uint16_t) i;
	d->objs[d->n] = obj;
	return (uint16_t) d->n++;
}

/* ---- loading ---- */

static int clean_environment(void)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(environment) && r == 0; i++)
		r = environment[i][1] ? setenv(environment[i][0], environment[i][1], 1) : unsetenv(environment[i][0]);
	return r;
}

static int choose_source(hwloc_topology_t hw, enum topology_source source, const char *arg)
{
	switch (source) {
	case TOPOLOGY_LIVE:
		return 0;
	case TOPOLOGY_FSROOT:
		return setenv("HWLOC_FSROOT", arg, 1);
	case TOPOLOGY_XML: /* the NUL counts */
		return hwloc_topology_set_xmlbuffer(hw, arg, (int) size_min(strlen(arg) + 1, INT_MAX));
	case TOPOLOGY_SYNTHETIC:
		return hwloc_topology_set_synthetic(hw, arg);
	}
	errno = EINVAL;
	return -1;
}

static int load_failed(enum topology_source source, const char *arg, int code, struct error *err)
{
	switch (source) {
	case TOPOLOGY_FSROOT:
		return error_set(err, code, "topology below %s: hwloc cannot read it: %s", arg, strerror(code));
	case TOPOLOGY_XML:
		return error_set(err, code, "hwloc cannot read it: something in it is missing, or not as hwloc writes "
				 "it; lstopo FILE.xml writes one");
	case TOPOLOGY_SYNTHETIC:
		return error_set(err, code, "hwloc cannot read \"%s\"; one that it reads is "
				 "\"pack:2 [numa(memory=64GiB)] l3:2 core:4 pu:2\"", arg);
	case TOPOLOGY_LIVE:
		break;
	}
	return error_set(err, code, "this machine's topology: hwloc cannot read it: %s", strerror(code));
}

/* The hook's own cgroup and binding say nothing about the machine, and hwloc must not hop over all CPUs to look. */
static int load(struct build *b, enum topology_source source, const char *arg, struct error *err)
{
	const unsigned long flags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING;
	int r;

	if (clean_environment() < 0)
		return error_set(err, errno, "environment of hwloc: %s", strerror(errno));
	if (hwloc_topology_init(&b->hw) < 0) {
		b->hw = NULL;
		return error_set(err, ENOMEM, "hwloc cannot start");
	}
	errno = EINVAL; /* hwloc does not always set it */
	r = choose_source(b->hw, source, arg);
	if (r == 0)
		r = hwloc_topology_set_flags(b->hw, flags);
	if (r == 0)
		r = hwloc_topology_load(b->hw);
	return r == 0 ? 0 : load_failed(source, arg, errno ? errno : EINVAL, err);
}

/* ---- nodes ---- */

static int by_os_index(const void *a, const void *b)
{
	const struct hwloc_obj *x = *(hwloc_obj_t const *) a, *y = *(hwloc_obj_t const *) b;

	return (x->os_index > y->os_index) - (x->os_index < y->os_index);
}

/* hwloc's own classification, where the file carries it. "SPM" (specific purpose memory) can be anything. */
static const struct {
	const char *subtype;
	enum memory_tier tier;
} subtypes[] = {
	{ "DRAM", TIER_DRAM }, { "HBM", TIER_HBM },       { "MCDRAM", TIER_HBM },  { "CXL", TIER_CXL },
	{ "NVM", TIER_PMEM }, { "CXL-NVM", TIER_PMEM }, { "CXL-DRAM", TIER_CXL },
};

static int8_t hint_of(const struct hwloc_obj *node)
{
	for (size_t i = 0; i < ARRAY_LEN(subtypes) && node->subtype; i++)
		if (str_eq(node->subtype, subtypes[i].subtype))
			return (int8_t) subtypes[i].tier;
	/* All its CPUs are offline or belong to others: a plain node. */
	if (hwloc_bitmap_iszero(node->cpuset) && !hwloc_bitmap_iszero(node->complete_cpuset))
		return TIER_DRAM;
	return TIER_UNKNOWN;
}

static int collect_nodes(struct build *b, struct error *err)
{
	const size_t n = (size_t) hwloc_get_nbobjs_by_type(b->hw, HWLOC_OBJ_NUMANODE);
	const bool sized = hwloc_get_root_obj(b->hw)->total_memory > 0;
	struct topology *t = b->t;

	b->nodes = calloc(n + 1, sizeof(hwloc_obj_t));
	t->nodes = calloc(n + 1, sizeof(*t->nodes));
	if (!b->nodes || !t->nodes)
		return error_set(err, ENOMEM, "no memory for %zu nodes", n);
	for (hwloc_obj_t obj = NULL; (obj = hwloc_get_next_obj_by_type(b->hw, HWLOC_OBJ_NUMANODE, obj));)
		if (!sized || obj->attr->numanode.local_memory || !hwloc_bitmap_iszero(obj->cpuset))
			b->nodes[t->n_nodes++] = obj;
	qsort(b->nodes, t->n_nodes, sizeof(hwloc_obj_t), by_os_index);
	for (size_t i = 0; i < t->n_nodes; i++) {
		const struct hwloc_obj *obj = b->nodes[i];

		if (obj->os_index >= NODE_MAX)
			return error_set(err, ERANGE, "NUMA node %u: cotenant knows nodes 0-%d only", obj->os_index,
					 NODE_MAX - 1);
		if (i && t->nodes[i - 1].id == obj->os_index)
			return error_set(err, EINVAL, "NUMA node %u is there twice", obj->os_index);
		b->hints[obj->os_index] = hint_of(obj);
		if (b->hints[obj->os_index] != TIER_UNKNOWN)
			t->nodes[i].tier = (enum memory_tier) b->hints[obj->os_index];
		t->nodes[i].id = (uint8_t) obj->os_index;
		t->nodes[i].memory = sized ? obj->attr->numanode.local_memory : UNSTATED_MEMORY;
		if (t->nodes[i].memory)
			t->memory_nodes |= node_bit(t->nodes[i].id);
	}
	return 0;
}

/* ---- CPUs ---- */

static hwloc_obj_t ancestor(hwloc_obj_t obj, hwloc_obj_type_t type)
{
	while (obj && obj->type != type)
		obj = obj->parent;
	return obj;
}

/* Of a core: what its threads do not share is no last level. */
static hwloc_obj_t outermost_cache(hwloc_obj_t core)
{
	hwloc_obj_t found = NULL;

	for (hwloc_obj_t obj = core->parent; obj; obj = obj->parent)
		if (hwloc_obj_type_is_cache(obj->type) && obj->attr->cache.type == HWLOC_OBJ_CACHE_UNIFIED)
			found = obj;
	return found;
}

static uint8_t kind_of(const struct build *b, hwloc_obj_t pu)
{
	int kind = hwloc_cpukinds_get_by_cpuset(b->hw, pu->cpuset, 0), efficiency = -1;

	if (kind < 0 || hwloc_cpukinds_get_info(b->hw, (unsigned) kind, NULL, &efficiency, NULL, NULL, 0) < 0)
		return 0;
	return efficiency > 0 ? (uint8_t) size_min((size_t) efficiency, UINT8_MAX) : 0;
}

static int by_id(const void *a, const void *b)
{
	return ((const struct topo_cpu *) a)->id - ((const struct topo_cpu *) b)->id;
}

static int collect_cpus(struct build *b, struct error *err)
{
	const size_t n = (size_t) hwloc_get_nbobjs_by_type(b->hw, HWLOC_OBJ_PU);
	hwloc_obj_t machine = hwloc_get_root_obj(b->hw);
	struct topology *t = b->t;

	t->cpus = calloc(n + 1, sizeof(*t->cpus));
	b->cores.objs = calloc(n + 1, sizeof(hwloc_obj_t));
	b->llcs.objs = calloc(n + 1, sizeof(hwloc_obj_t));
	b->packages.objs = calloc(n + 1, sizeof(hwloc_obj_t));
	if (!t->cpus || !b->cores.objs || !b->llcs.objs || !b->packages.objs)
		return error_set(err, ENOMEM, "no memory for %zu CPUs", n);
	for (hwloc_obj_t pu = NULL; (pu = hwloc_get_next_obj_by_type(b->hw, HWLOC_OBJ_PU, pu));) {
		hwloc_obj_t core = ancestor(pu, HWLOC_OBJ_CORE), package = ancestor(pu, HWLOC_OBJ_PACKAGE);
		hwloc_obj_t llc = outermost_cache(core ? core : pu);

		if (pu->os_index >= CPU_MAX)
			return error_set(err, ERANGE, "CPU %u: cotenant knows CPUs 0-%d only", pu->os_index,
					 CPU_MAX - 1);
		if (mask_test(&t->online, pu->os_index))
			return error_set(err, EINVAL, "CPU %u is there twice", pu->os_index);
		package = package ? package : machine;
		t->cpus[t->n_cpus++] = (struct topo_cpu){
			.id = (uint16_t) pu->os_index,
			.core = dense_index(&b->cores, core ? core : pu),
			.llc = dense_index(&b->llcs, llc ? llc : package),
			.package = dense_index(&b->packages, package),
			.node = -1,
			.kind = kind_of(b, pu),
		};
		mask_set(&t->online, pu->os_index);
	}
	if (!t->n_cpus)
		return error_set(err, EINVAL, "it has no CPU");
	t->n_cores = b->cores.n;
	t->n_llcs = b->llcs.n;
	t->n_packages = b->packages.n;
	qsort(t->cpus, t->n_cpus, sizeof(*t->cpus), by_id);
	return 0;
}

static int count_threads(struct topology *t, struct error *err)
{
	cleanup_free unsigned *threads = calloc(t->n_cores + 1, sizeof(*threads));

	if (!threads)
		return error_no_memory(err);
	for (size_t i = 0; i < t->n_cpus; i++)
		if (++threads[t->cpus[i].core] > t->smt)
			t->smt = threads[t->cpus[i].core];
	return 0;
}

/* ---- which node is a CPU's own ---- */

/* Of two nodes local to a CPU: DRAM first, then memory at all, then the one fewer CPUs share, then the lower id. */
static bool better(const struct build *b, size_t i, size_t than)
{
	const struct topo_node *x = &b->t->nodes[i], *y = &b->t->nodes[than];
	int shared_x = hwloc_bitmap_weight(b->nodes[i]->cpuset), shared_y = hwloc_bitmap_weight(b->nodes[than]->cpuset);

	if ((x->tier == TIER_DRAM) != (y->tier == TIER_DRAM))
		return x->tier == TIER_DRAM;
	if (!x->memory != !y->memory)
		return x->memory != 0;
	if (shared_x != shared_y)
		return shared_x < shared_y;
	return x->id < y->id;
}

static void assign_nodes(struct build *b)
{
	struct topology *t = b->t;

	for (size_t k = 0; k < t->n_cpus; k++) {
		size_t best = t->n_nodes;

		for (size_t i = 0; i < t->n_nodes; i++)
			if (hwloc_bitmap_isset(b->nodes[i]->cpuset, t->cpus[k].id) &&
			    (best == t->n_nodes || better(b, i, best)))
				best = i;
		if (best == t->n_nodes)
			continue;
		t->nodes[best].has_cpus = true;
		if (t->nodes[best].memory)
			t->cpus[k].node = t->nodes[best].id;
	}
	topology_settle_nodes(t);
}

/* ---- distances, attributes, packages ---- */

static void set_distance(struct topology *t, size_t from, size_t to, uint64_t distance)
{
	t->distances[from * t->n_nodes + to] = (uint8_t) size_min(distance, UINT8_MAX);
}

static void fill_distances(struct build *b)
{
	struct hwloc_distances_s *found = NULL;
	struct topology *t = b->t;
	unsigned n = 1; /* there is room for one; hwloc gives the first then, and says how many there are */

	for (size_t i = 0; i < t->n_nodes; i++)
		for (size_t k = 0; k < t->n_nodes; k++)
			set_distance(t, i, k, i == k ? LOCAL_DISTANCE : REMOTE_DISTANCE);
	if (hwloc_distances_get_by_name(b->hw, "NUMALatency", &n, &found, 0) < 0 || !found)
		return;
	for (size_t i = 0; i < t->n_nodes; i++)
		for (size_t k = 0; k < t->n_nodes; k++) {
			int from = hwloc_distances_obj_index(found, b->nodes[i]);
			int to = hwloc_distances_obj_index(found, b->nodes[k]);

			if (from >= 0 && to >= 0)
				set_distance(t, i, k, found->values[(unsigned) from * found->nbobjs + (unsigned) to]);
		}
	hwloc_distances_release(b->hw, found);
}

/* The best value of an attribute over its initiators, and the nodes whose CPUs get it. */
static uint32_t attribute(const struct build *b, hwloc_memattr_id_t id, bool least, size_t node,
			  nodemask *ret_initiators)
{
	cleanup_free struct hwloc_location *from = calloc(CPU_MAX, sizeof(*from));
	cleanup_free hwloc_uint64_t *values = calloc(CPU_MAX, sizeof(*values));
	hwloc_uint64_t best = 0;
	unsigned n = CPU_MAX;

	if (!from || !values || hwloc_memattr_get_initiators(b->hw, id, b->nodes[node], 0, &n, from, values) < 0)
		return 0;
	for (unsigned i = 0; i < n && i < CPU_MAX; i++) {
		if (from[i].type != HWLOC_LOCATION_TYPE_CPUSET || !values[i])
			continue;
		if (!best || (least ? values[i] < best : values[i] > best)) {
			best = values[i];
			*ret_initiators = 0;
		}
		for (size_t k = 0; k < b->t->n_cpus && values[i] == best; k++)
			if (b->t->cpus[k].node >= 0 && hwloc_bitmap_isset(from[i].location.cpuset, b->t->cpus[k].id))
				*ret_initiators |= node_bit((unsigned) b->t->cpus[k].node);
	}
	return (uint32_t) size_min(best, UINT32_MAX);
}

static void fill_attributes(struct build *b)
{
	for (size_t i = 0; i < b->t->n_nodes; i++) {
		struct topo_node *node = &b->t->nodes[i];
		nodemask by_latency = 0;

		node->read_bandwidth = attribute(b, HWLOC_MEMATTR_ID_READ_BANDWIDTH, false, i, &node->initiators);
		if (!node->read_bandwidth)
			node->read_bandwidth = attribute(b, HWLOC_MEMATTR_ID_BANDWIDTH, false, i, &node->initiators);
		node->read_latency = attribute(b, HWLOC_MEMATTR_ID_READ_LATENCY, true, i, &by_latency);
		if (!node->read_latency)
			node->read_latency = attribute(b, HWLOC_MEMATTR_ID_LATENCY, true, i, &by_latency);
		if (!node->initiators)
			node->initiators = by_latency;
	}
}

/* The package that holds all CPUs the node is local to; -1 when that is none or several. */
static int package_of(const struct build *b, size_t node)
{
	int package = -1;

	for (size_t k = 0; k < b->t->n_cpus; k++) {
		if (!hwloc_bitmap_isset(b->nodes[node]->cpuset, b->t->cpus[k].id))
			continue;
		if (package >= 0 && package != b->t->cpus[k].package)
			return -1;
		package = b->t->cpus[k].package;
	}
	return package;
}

/* A node that hangs off the whole machine counts to the package of the nearest node that has one. */
static void assign_packages(struct build *b)
{
	struct topology *t = b->t;

	for (size_t i = 0; i < t->n_nodes; i++) {
		int package = package_of(b, i);
		unsigned nearest = UINT8_MAX + 1;

		for (size_t k = 0; k < t->n_nodes && package < 0; k++) {
			const unsigned distance = t->distances[i * t->n_nodes + k];
			int candidate = package_of(b, k);

			if (candidate < 0 || distance >= nearest)
				continue;
			nearest = distance;
			t->nodes[i].package = (uint16_t) candidate;
		}
		if (package >= 0)
			t->nodes[i].package = (uint16_t) package;
	}
}

int topology_from_hwloc(enum topology_source source, const char *arg, struct topology **ret_topology, struct error *err)
{
	cleanup_with(build_done) struct build b = { .t = calloc(1, sizeof(struct topology)) };
	int8_t origins[NODE_MAX]; /* hwloc's subtypes say that too, and are hints */
	int r;

	if (!b.t)
		return error_no_memory(err);
	memset(b.hints, TIER_UNKNOWN, sizeof(b.hints));
	r = load(&b, source, arg, err);
	if (r == 0)
		r = collect_nodes(&b, err);
	if (r == 0)
		r = collect_cpus(&b, err);
	if (r == 0)
		r = count_threads(b.t, err);
	if (r < 0)
		return r;
	b.t->distances = calloc(b.t->n_nodes * b.t->n_nodes + 1, sizeof(*b.t->distances));
	if (!b.t->distances)
		return error_no_memory(err);
	assign_nodes(&b);
	fill_distances(&b);
	fill_attributes(&b);
	assign_packages(&b);
	memset(origins, TIER_UNKNOWN, sizeof(origins));
	tiers_classify(b.t, b.hints, origins);
	*ret_topology = TAKE_PTR(b.t);
	return 0;
}
