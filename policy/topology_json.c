/*
 * The topology as the cache keeps it. A hook reads it at every container start, so it is made to be short: cores with
 * the same surroundings share one record, and a core is just the list of its threads.
 *
 *   { "key": "…",
 *     "cores": [ { "package": 0, "node": 0, "llc": 0, "kind": 0, "threads": [ "0,64", "1,65" ] } ],
 *     "nodes": [ { "id": 0, "tier": "dram", … } ],
 *     "distances": [ [ 10, 21 ], [ 21, 10 ] ] }
 */
#include "topology.h"

#include <errno.h>

/* The largest machine we can hold (4,096 cores that share nothing, 64 nodes, their distances) takes half of this. */
static const struct json_limits limits = { .max_bytes = 1u << 20, .max_values = 1u << 16, .max_depth = 8 };

/* ---- writing ---- */

static bool same_place(const struct topo_cpu *a, const struct topo_cpu *b)
{
	return a->package == b->package && a->node == b->node && a->llc == b->llc && a->kind == b->kind;
}

/* One member of every core in *first, by core index, and its threads in masks. */
static int collect_cores(const struct topology *t, const struct topo_cpu **first, struct mask *threads)
{
	for (size_t i = 0; i < t->n_cpus; i++) {
		const struct topo_cpu *cpu = &t->cpus[i];

		if (cpu->core >= t->n_cores || cpu->id >= CPU_MAX)
			return -EINVAL;
		if (!first[cpu->core])
			first[cpu->core] = cpu;
		if (!same_place(first[cpu->core], cpu))
			return -EINVAL;
		mask_set(&threads[cpu->core], cpu->id);
	}
	for (unsigned core = 0; core < t->n_cores; core++)
		if (!first[core])
			return -EINVAL;
	return 0;
}

static int write_cores(struct json_writer *w, const struct topology *t)
{
	cleanup_free const struct topo_cpu **first = calloc(t->n_cores + 1, sizeof(*first));
	cleanup_free struct mask *threads = calloc(t->n_cores + 1, sizeof(*threads));
	int r;

	if (!first || !threads)
		return -ENOMEM;
	r = collect_cores(t, first, threads);
	if (r < 0)
		return r;
	json_open_array(w, "cores");
	for (unsigned core = 0; core < t->n_cores; core++) {
		cleanup_free char *list = mask_format(&threads[core]);

		if (!list)
			return -ENOMEM;
		if (core == 0 || !same_place(first[core - 1], first[core])) {
			json_open_object(w, NULL);
			json_int(w, "package", first[core]->package);
			json_int(w, "node", first[core]->node);
			json_int(w, "llc", first[core]->llc);
			json_int(w, "kind", first[core]->kind);
			json_open_array(w, "threads");
		}
		json_string(w, NULL, list);
		if (core + 1 == t->n_cores || !same_place(first[core], first[core + 1])) {
			json_close(w);
			json_close(w);
		}
	}
	json_close(w);
	return 0;
}

static int write_node(struct json_writer *w, const struct topo_node *node)
{
	cleanup_free char *initiators = nodemask_format(node->initiators);

	if (!initiators)
		return -ENOMEM;
	json_open_object(w, NULL);
	json_int(w, "id", node->id);
	json_bool(w, "has_cpus", node->has_cpus);
	json_string(w, "tier", memory_tier_name(node->tier));
	json_int(w, "package", node->package);
	json_int(w, "memory", node->memory > INT64_MAX ? INT64_MAX : (int64_t) node->memory);
	json_int(w, "read_bandwidth", node->read_bandwidth);
	json_int(w, "read_latency", node->read_latency);
	json_string(w, "initiators", initiators);
	json_close(w);
	return 0;
}

static void write_distances(struct json_writer *w, const struct topology *t)
{
	json_open_array(w, "distances");
	for (size_t from = 0; t->distances && from < t->n_nodes; from++) {
		json_open_array(w, NULL);
		for (size_t to = 0; to < t->n_nodes; to++)
			json_int(w, NULL, t->distances[from * t->n_nodes + to]);
		json_close(w);
	}
	json_close(w);
}

int topology_format(const struct topology *t, char **ret_text, size_t *ret_len)
{
	cleanup_json_writer struct json_writer *w = json_writer_new(false);
	int r;

	if (!w)
		return -ENOMEM;
	json_open_object(w, NULL);
	json_string(w, "key", t->key);
	r = write_cores(w, t);
	if (r < 0)
		return r;
	json_open_array(w, "nodes");
	for (size_t i = 0; i < t->n_nodes; i++) {
		r = write_node(w, &t->nodes[i]);
		if (r < 0)
			return r;
	}
	json_close(w);
	write_distances(w, t);
	json_close(w);
	return json_writer_take(w, ret_text, ret_len);
}

/* ---- reading ---- */

struct reader {
	const char *name;
	struct arena *arena;
	struct error *err;
};

static int bad(const struct reader *in, const struct json *at, const char *what)
{
	const char *path = json_path(in->arena, at);

	return error_set(in->err, EINVAL, "%s:%u:%u: %s: %s", in->name, at->line, at->column, path ? path : "?", what);
}

/* A member that must be there and lie in min … max. */
static int get_int(const struct reader *in, const struct json *object, const char *key, int64_t min, int64_t max,
		   int64_t *ret)
{
	const struct json *value = json_get(object, key);

	if (!value || value->type != JSON_INT || value->integer < min || value->integer > max)
		return error_set(in->err, EINVAL, "%s:%u:%u: \"%s\" must be a number from %lld to %lld", in->name,
				 value ? value->line : object->line, value ? value->column : object->column, key,
				 (long long) min, (long long) max);
	*ret = value->integer;
	return 0;
}

static int get_array(const struct reader *in, const struct json *object, const char *key, size_t max,
		     const struct json **ret)
{
	const struct json *value = json_get(object, key);

	if (!value || value->type != JSON_ARRAY)
		return error_set(in->err, EINVAL, "%s:%u:%u: \"%s\" must be an array", in->name,
				 value ? value->line : object->line, value ? value->column : object->column, key);
	if (value->len > max)
		return bad(in, value, "more entries than any machine has");
	*ret = value;
	return 0;
}

/* CPUs where their number says, until all are known and they are packed. */
struct by_id {
	struct topo_cpu *cpus;
	unsigned room;
};

static void by_id_done(struct by_id *b)
{
	free(b->cpus);
}

/* No more room than the machine needs: to clear it for the largest there is would be most of the reading. */
static int make_room(struct by_id *b, unsigned cpu)
{
	unsigned room = b->room ? b->room : 64;
	struct topo_cpu *cpus;

	if (cpu < b->room)
		return 0;
	while (room <= cpu)
		room *= 2;
	cpus = realloc(b->cpus, room * sizeof(*cpus));
	if (!cpus)
		return -ENOMEM;
	memset(cpus + b->room, 0, (room - b->room) * sizeof(*cpus));
	b->cpus = cpus;
	b->room = room;
	return 0;
}

/* One core: its threads become CPUs that share `place`. */
static int read_core(const struct reader *in, const struct json *value, struct topology *t, struct by_id *by_id,
		     const struct topo_cpu *place)
{
	struct mask threads;
	unsigned n;

	if (value->type != JSON_STRING || mask_parse(value->string, &threads) < 0 || mask_empty(&threads))
		return bad(in, value, "a core is the list of its CPUs, such as \"0,64\"");
	if (mask_intersects(&threads, &t->online))
		return bad(in, value, "a CPU belongs to two cores");
	MASK_FOR_EACH(cpu, &threads) {
		if (make_room(by_id, cpu) < 0)
			return -ENOMEM;
		by_id->cpus[cpu] = *place;
		by_id->cpus[cpu].id = (uint16_t) cpu;
		by_id->cpus[cpu].core = (uint16_t) t->n_cores;
	}
	n = mask_weight(&threads);
	if (n > t->smt)
		t->smt = n;
	mask_or(&t->online, &threads);
	t->n_cores++;
	t->n_cpus += n;
	return 0;
}

static int read_cluster(const struct reader *in, const struct json *cluster, struct topology *t, struct by_id *by_id)
{
	struct topo_cpu place = { 0 };
	const struct json *threads;
	int64_t package, node, llc, kind;
	int r;

	if ((r = get_int(in, cluster, "package", 0, CPU_MAX - 1, &package)) < 0 ||
	    (r = get_int(in, cluster, "node", -1, NODE_MAX - 1, &node)) < 0 ||
	    (r = get_int(in, cluster, "llc", 0, CPU_MAX - 1, &llc)) < 0 ||
	    (r = get_int(in, cluster, "kind", 0, UINT8_MAX, &kind)) < 0 ||
	    (r = get_array(in, cluster, "threads", CPU_MAX, &threads)) < 0)
		return r;
	place.package = (uint16_t) package;
	place.node = (int16_t) node;
	place.llc = (uint16_t) llc;
	place.kind = (uint8_t) kind;
	if (package >= t->n_packages)
		t->n_packages = (unsigned) package + 1;
	if (llc >= t->n_llcs)
		t->n_llcs = (unsigned) llc + 1;
	for (const struct json *core = threads->first; core; core = core->next) {
		r = read_core(in, core, t, by_id, &place);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_cores(const struct reader *in, const struct json *root, struct topology *t)
{
	cleanup_with(by_id_done) struct by_id by_id = { 0 };
	const struct json *cores;
	size_t at = 0;
	int r = get_array(in, root, "cores", CPU_MAX, &cores);

	if (r < 0)
		return r;
	for (const struct json *cluster = cores->first; cluster; cluster = cluster->next) {
		r = read_cluster(in, cluster, t, &by_id);
		if (r < 0)
			return r;
	}
	if (!t->n_cpus)
		return bad(in, cores, "a machine has at least one CPU");
	t->cpus = calloc(t->n_cpus, sizeof(*t->cpus));
	if (!t->cpus)
		return -ENOMEM;
	MASK_FOR_EACH(cpu, &t->online)
		t->cpus[at++] = by_id.cpus[cpu];
	return 0;
}

static int read_node(const struct reader *in, const struct json *value, struct topology *t)
{
	const struct json *has_cpus = json_get(value, "has_cpus"), *tier = json_get(value, "tier");
	const struct json *initiators = json_get(value, "initiators");
	struct topo_node *node = &t->nodes[t->n_nodes];
	int64_t id, package, memory, bandwidth, latency;
	int r;

	if ((r = get_int(in, value, "id", t->n_nodes ? t->nodes[t->n_nodes - 1].id + 1 : 0, NODE_MAX - 1, &id)) < 0 ||
	    (r = get_int(in, value, "package", 0, CPU_MAX - 1, &package)) < 0 ||
	    (r = get_int(in, value, "memory", 0, INT64_MAX, &memory)) < 0 ||
	    (r = get_int(in, value, "read_bandwidth", 0, UINT32_MAX, &bandwidth)) < 0 ||
	    (r = get_int(in, value, "read_latency", 0, UINT32_MAX, &latency)) < 0)
		return r;
	if (!has_cpus || has_cpus->type != JSON_BOOL)
		return bad(in, value, "\"has_cpus\" must be true or false");
	if (!tier || tier->type != JSON_STRING || memory_tier_from_name(tier->string, &node->tier) < 0)
		return bad(in, value, "\"tier\" must be the name of a memory tier");
	if (!initiators || initiators->type != JSON_STRING || nodemask_parse(initiators->string, &node->initiators) < 0)
		return bad(in, value, "\"initiators\" must be a list of nodes, such as \"0-1\"");
	node->id = (uint8_t) id;
	node->has_cpus = has_cpus->boolean;
	node->package = (uint16_t) package;
	node->memory = (uint64_t) memory;
	node->read_bandwidth = (uint32_t) bandwidth;
	node->read_latency = (uint32_t) latency;
	if (node->memory)
		t->memory_nodes |= node_bit((unsigned) id);
	t->n_nodes++;
	return 0;
}

static int read_nodes(const struct reader *in, const struct json *root, struct topology *t)
{
	const struct json *nodes;
	int r = get_array(in, root, "nodes", NODE_MAX, &nodes);

	if (r < 0)
		return r;
	t->nodes = calloc(nodes->len + 1, sizeof(*t->nodes));
	if (!t->nodes)
		return -ENOMEM;
	for (const struct json *value = nodes->first; value; value = value->next) {
		r = read_node(in, value, t);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < t->n_cpus; i++)
		if (t->cpus[i].node >= 0 && !topology_node(t, (unsigned) t->cpus[i].node))
			return bad(in, nodes, "a CPU belongs to a node that is not listed");
	return 0;
}

static int read_distances(const struct reader *in, const struct json *root, struct topology *t)
{
	const struct json *rows;
	uint8_t *at;
	int r = get_array(in, root, "distances", NODE_MAX, &rows);

	if (r < 0)
		return r;
	if (!rows->len)
		return 0;
	t->distances = calloc(t->n_nodes + 1, t->n_nodes + 1);
	if (!t->distances)
		return -ENOMEM;
	if (rows->len != t->n_nodes)
		return bad(in, rows, "one row for each node is needed");
	at = t->distances;
	for (const struct json *row = rows->first; row; row = row->next) {
		if (row->type != JSON_ARRAY || row->len != t->n_nodes)
			return bad(in, row, "one number for each node is needed");
		for (const struct json *value = row->first; value; value = value->next) {
			if (value->type != JSON_INT || value->integer < 0 || value->integer > UINT8_MAX)
				return bad(in, value, "a distance is a number from 0 to 255");
			*at++ = (uint8_t) value->integer;
		}
	}
	return 0;
}

int topology_parse(const char *name, const char *text, size_t len, struct topology **ret_topology, struct error *err)
{
	cleanup_topology struct topology *t = calloc(1, sizeof(*t));
	cleanup_arena struct arena arena = { 0 };
	const struct reader in = { .name = name, .arena = &arena, .err = err };
	const struct json *root, *key;
	int r;

	if (!t)
		return -ENOMEM;
	r = json_parse(&arena, name, text, len, 0, &limits, &root, err);
	if (r < 0)
		return r;
	if (root->type != JSON_OBJECT)
		return bad(&in, root, "a topology is an object");
	key = json_get(root, "key");
	if (key && key->type != JSON_STRING)
		return bad(&in, key, "the key must be a string");
	if (key) {
		t->key = strdup(key->string);
		if (!t->key)
			return -ENOMEM;
	}
	if ((r = read_cores(&in, root, t)) < 0 || (r = read_nodes(&in, root, t)) < 0 ||
	    (r = read_distances(&in, root, t)) < 0)
		return r;
	*ret_topology = TAKE_PTR(t);
	return 0;
}
