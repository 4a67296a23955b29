/* Reading a scenario. The tables below are its keys. */
#include <errno.h>

#include "policy_read.h"
#include "sim.h"
#include "utf8.h"

/* An event has at most a dozen members. */
#define VALUES_MAX (12u * SIM_EVENTS_MAX + 100000)
#define PASSES_MAX 100000

static const struct json_limits limits = { .max_bytes = SIM_SCENARIO_MAX, .max_values = VALUES_MAX, .max_depth = 32 };

/* A container's id, and whether it is there at the event that is being read. */
struct known {
	const char *id;
	size_t container;
	bool alive;
};

struct reader {
	struct policy p; /* its one document is the scenario: what policy/policy_report.c needs for messages */
	struct policy_document document;
	struct sim_scenario *s;
	const char *text;
	size_t len;
	struct known *known; /* hash table with as many slots again as events at least */
	size_t slots;
	struct error *err;
};

struct key {
	const char *name;
	int (*read)(struct reader *rd, const struct key *key, const struct json *v, void *base);
	size_t offset;
	double min, max;
	bool required;
	const char *expects;
};

struct keys {
	const struct key *list;
	size_t n;
};
#define KEYS(list) { (list), ARRAY_LEN(list) }

static void *field(const struct key *key, void *base)
{
	return (char *) base + key->offset;
}

static int unexpected(struct reader *rd, const struct key *key, const struct json *v)
{
	return policy_unexpected(&rd->p, v, key->expects, rd->err);
}

/* ---- objects ---- */

static int unknown_key(struct reader *rd, const struct keys *keys, const struct json *member)
{
	const char **names = arena_new(&rd->p.arena, const char *, keys->n);

	if (!names)
		return error_no_memory(rd->err);
	for (size_t i = 0; i < keys->n; i++)
		names[i] = keys->list[i].name;
	return policy_unknown_key(&rd->p, member, names, keys->n, rd->err);
}

static int read_object(struct reader *rd, const struct keys *keys, const struct json *object, void *base)
{
	if (object->type != JSON_OBJECT)
		return policy_unexpected(&rd->p, object, "an object", rd->err);
	for (const struct json *m = object->first; m; m = m->next) {
		size_t i = 0;
		int r;

		while (i < keys->n && !str_eq(keys->list[i].name, m->key))
			i++;
		r = i < keys->n ? keys->list[i].read(rd, &keys->list[i], m, base) : unknown_key(rd, keys, m);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < keys->n; i++)
		if (keys->list[i].required && !json_get(object, keys->list[i].name))
			return policy_reject(&rd->p, object, rd->err, "key \"%s\" is missing", keys->list[i].name);
	return 0;
}

/* ---- values ---- */

static int read_nothing(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	(void) base;
	return v->type == JSON_STRING ? 0 : unexpected(rd, key, v);
}

static int read_number(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	double number = v->type == JSON_INT ? (double) v->integer : v->type == JSON_REAL ? v->real : -1;

	if ((v->type != JSON_INT && v->type != JSON_REAL) || !(number >= key->min && number <= key->max))
		return unexpected(rd, key, v);
	*(double *) field(key, base) = number;
	return 0;
}

static int read_bool(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	if (v->type != JSON_BOOL)
		return unexpected(rd, key, v);
	*(bool *) field(key, base) = v->boolean;
	return 0;
}

/* Bytes, or "4GiB". Neither sign nor fraction. */
static bool parse_size(const char *text, uint64_t *ret)
{
	static const struct {
		const char *unit;
		unsigned shift;
	} units[] = { { "", 0 }, { "KiB", 10 }, { "MiB", 20 }, { "GiB", 30 }, { "TiB", 40 } };
	size_t digits = strspn(text, "0123456789");
	uint64_t value = 0;

	if (!digits || digits > 15)
		return false;
	for (size_t i = 0; i < digits; i++)
		value = value * 10 + (unsigned) (text[i] - '0');
	for (size_t i = 0; i < ARRAY_LEN(units); i++)
		if (str_eq(text + digits, units[i].unit)) {
			*ret = value << units[i].shift;
			return *ret >> units[i].shift == value && *ret <= INT64_MAX;
		}
	return false;
}

static int read_size(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	uint64_t size = v->type == JSON_INT ? (uint64_t) v->integer : 0;

	if ((v->type != JSON_INT || v->integer < 0) && (v->type != JSON_STRING || !parse_size(v->string, &size)))
		return unexpected(rd, key, v);
	*(uint64_t *) field(key, base) = size;
	return 0;
}

/* What is printed, and stands in pictures. */
static int read_name(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	cleanup_free char *shown = v->type == JSON_STRING ? printable(v->string, v->len, TENANT_MAX) : NULL;

	if (v->type == JSON_STRING && !shown)
		return error_no_memory(rd->err);
	if (v->type != JSON_STRING || !v->len || v->len > TENANT_MAX || !str_eq(shown, v->string))
		return unexpected(rd, key, v);
	*(const char **) field(key, base) = arena_strdup(&rd->s->arena, v->string);
	return *(const char **) field(key, base) ? 0 : error_no_memory(rd->err);
}

static int read_cpus(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	struct sim_container *c = base;

	if (v->type != JSON_STRING || mask_parse(v->string, &c->bind) < 0 || mask_empty(&c->bind))
		return unexpected(rd, key, v);
	c->has_bind = true;
	return 0;
}

static int read_annotations(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	struct oci_annotations *a = field(key, base);
	struct arena *arena = &rd->s->arena;

	if (v->type != JSON_OBJECT || v->len > OCI_ANNOTATIONS_MAX)
		return unexpected(rd, key, v);
	a->items = arena_new(arena, struct oci_annotation, v->len + 1);
	if (!a->items)
		return error_no_memory(rd->err);
	for (const struct json *m = v->first; m; m = m->next) {
		struct oci_annotation *item = &a->items[a->n];

		if (m->type != JSON_STRING)
			return policy_unexpected(&rd->p, m, "a string", rd->err);
		*item = (struct oci_annotation){ arena_strdup(arena, m->key), arena_strdup(arena, m->string) };
		if (!item->key || !item->value)
			return error_no_memory(rd->err);
		a->n++;
	}
	oci_annotations_sort(a);
	return 0;
}

/* ---- events ---- */

#define SECONDS_TEXT "seconds from 0 to 1000000000"
#define CPUS_TEXT "a number of CPUs from 0 to 4096"
#define ID_TEXT "a container's id: up to 255 letters, digits and \"_+-.\""

static struct known *find_known(const struct reader *rd, const char *id)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	size_t at;

	for (const char *c = id; *c; c++)
		hash = (hash ^ (unsigned char) *c) * UINT64_C(0x100000001b3);
	for (at = hash % rd->slots; rd->known[at].id && !str_eq(rd->known[at].id, id); at = (at + 1) % rd->slots)
		;
	return &rd->known[at];
}

static int read_id(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	(void) base;
	if (v->type != JSON_STRING || oci_id_check(v->string, v->len, NULL) < 0)
		return unexpected(rd, key, v);
	return 0;
}

#define AT(what) offsetof(struct sim_container, what)

static const struct key arrive_keys[] = {
	{ "at", read_number, AT(at), 0, SIM_SECONDS_MAX, true, SECONDS_TEXT },
	{ "arrive", read_id, .expects = ID_TEXT },
	{ "tenant", read_name, AT(tenant), .expects = "a name of 1 to 255 bytes that shows as it is" },
	{ "class", read_name, AT(class), .expects = "the name of a class of the policy" },
	{ "cpus", read_number, AT(cpus), 0, CPU_MAX, true, CPUS_TEXT },
	{ "threads", read_number, AT(threads), 1, 1e6, .expects = "a number of threads from 1 to 1000000" },
	{ "memory", read_size, AT(memory), .expects = "bytes, or a size such as \"4GiB\"" },
	{ "traffic", read_number, AT(traffic), 0, 1e4, .expects = "GB/s from 0 to 10000" },
	{ "sensitivity", read_number, AT(sensitivity), 0, 1, .expects = "a number from 0 to 1" },
	{ "switching", read_number, AT(switching), 0, 1, .expects = "a number from 0 to 1" },
	{ "limit", read_bool, AT(limit), .expects = "true or false" },
	{ "bind", read_cpus, .expects = "a list of CPUs below 4096, such as \"0-3,8\"" },
	{ "annotations", read_annotations, AT(annotations), .expects = "an object of at most 4096 strings" },
};
static const struct key load_keys[] = {
	{ "at", read_number, offsetof(struct sim_event, at), 0, SIM_SECONDS_MAX, true, SECONDS_TEXT },
	{ "load", read_id, .expects = ID_TEXT },
	{ "cpus", read_number, offsetof(struct sim_event, cpus), 0, CPU_MAX, true, CPUS_TEXT },
};
static const struct key leave_keys[] = {
	{ "at", read_number, offsetof(struct sim_event, at), 0, SIM_SECONDS_MAX, true, SECONDS_TEXT },
	{ "leave", read_id, .expects = ID_TEXT },
};

static int read_arrival(struct reader *rd, const struct json *v, const struct json *id, struct sim_event *e)
{
	static const struct keys keys = KEYS(arrive_keys);
	struct sim_container *c = &rd->s->containers[rd->s->n_containers];
	struct known *known;
	int r;

	r = read_object(rd, &keys, v, c);
	if (r < 0)
		return r;
	e->at = c->at;
	known = find_known(rd, id->string);
	if (known->alive)
		return policy_reject(&rd->p, id, rd->err, "container %s is there already; it has to leave first",
				     id->string);
	if (!known->id)
		known->id = arena_strdup(&rd->s->arena, id->string);
	if (!known->id)
		return error_no_memory(rd->err);
	c->id = known->id;
	known->alive = true;
	known->container = rd->s->n_containers++;
	e->container = known->container;
	return 0;
}

static int read_change(struct reader *rd, const struct json *v, const struct json *id, struct sim_event *e)
{
	static const struct keys load = KEYS(load_keys), leave = KEYS(leave_keys);
	struct known *known;
	int r = read_object(rd, e->kind == SIM_LOAD ? &load : &leave, v, e);

	if (r < 0)
		return r;
	known = find_known(rd, id->string);
	if (!known->alive)
		return policy_reject(&rd->p, id, rd->err,
				     known->id ? "container %s has left already" :
						 "there is no container %s at this time: no event before has it arrive",
				     id->string);
	e->container = known->container;
	known->alive = e->kind != SIM_LEAVE;
	return 0;
}

static int read_event(struct reader *rd, const struct json *v)
{
	struct sim_scenario *s = rd->s;
	struct sim_event *e = &s->events[s->n_events];
	const struct json *arrives = json_get(v, "arrive"), *load = json_get(v, "load"), *leaves = json_get(v, "leave");
	const struct json *at = json_get(v, "at");
	int r;

	if (v->type != JSON_OBJECT)
		return policy_unexpected(&rd->p, v, "an object", rd->err);
	if (!arrives && !load && !leaves)
		return policy_reject(&rd->p, v, rd->err, "an event has one of the keys: arrive, load, leave");
	e->kind = arrives ? SIM_ARRIVE : load ? SIM_LOAD : SIM_LEAVE;
	r = arrives ? read_arrival(rd, v, arrives, e) : read_change(rd, v, load ? load : leaves, e);
	if (r < 0)
		return r;
	if (s->n_events && e->at < s->events[s->n_events - 1].at)
		return policy_reject(&rd->p, at, rd->err,
				     "%g s is before the event above it, at %g s; events stand in the order of their "
				     "times",
				     e->at, s->events[s->n_events - 1].at);
	e->line = v->line;
	e->column = v->column;
	s->n_events++;
	return 0;
}

static int read_events(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	struct sim_scenario *s = base;
	int r = 0;

	if (v->type != JSON_ARRAY)
		return unexpected(rd, key, v);
	if (v->len > SIM_EVENTS_MAX) {
		(void) policy_reject(&rd->p, v, rd->err, "%zu events are too many; at most %d are supported", v->len,
				     SIM_EVENTS_MAX);
		return -E2BIG;
	}
	rd->slots = 2 * v->len + 1;
	rd->known = arena_new(&rd->p.arena, struct known, rd->slots);
	s->events = arena_new(&s->arena, struct sim_event, v->len + 1);
	s->containers = arena_new(&s->arena, struct sim_container, v->len + 1);
	if (!rd->known || !s->events || !s->containers)
		return error_no_memory(rd->err);
	for (const struct json *e = v->first; e && r == 0; e = e->next)
		r = read_event(rd, e);
	return r;
}

/* ---- the machine ---- */

static int read_tier(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	struct sim_node *node = base;

	if (v->type != JSON_STRING)
		return unexpected(rd, key, v);
	if (memory_tier_from_name(v->string, &node->tier) < 0)
		return policy_unknown_name(&rd->p, v, &memory_tier_names, key->expects, rd->err);
	node->has_tier = true;
	return 0;
}

static const struct key node_keys[] = {
	{ "memory", read_size, offsetof(struct sim_node, memory), .expects = "bytes, or a size such as \"4GiB\"" },
	{ "bandwidth", read_number, offsetof(struct sim_node, bandwidth), 0.001, 1e6,
	  .expects = "GB/s from 0.001 to 1000000" },
	{ "latency", read_number, offsetof(struct sim_node, latency), 1, 1e6, .expects = "ns from 1 to 1000000" },
	{ "tier", read_tier, .expects = "one of: dram, hbm, cxl, pmem" },
};

static int read_nodes(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	static const struct keys keys = KEYS(node_keys);
	int r = 0;

	(void) base;
	if (v->type != JSON_OBJECT)
		return unexpected(rd, key, v);
	for (const struct json *m = v->first; m && r == 0; m = m->next) {
		nodemask nodes;
		unsigned node;

		if (nodemask_parse(m->key, &nodes) < 0 || bit_count(nodes) != 1)
			return policy_reject_key(&rd->p, m, rd->err, "keys here are the numbers of nodes, 0 to %d",
						 NODE_MAX - 1);
		node = nodemask_next(nodes, 0);
		rd->s->nodes[node] = (struct sim_node){ .given = true, .line = m->key_line, .column = m->key_column };
		r = read_object(rd, &keys, m, &rd->s->nodes[node]);
	}
	return r;
}

static const struct key machine_keys[] = {
	{ "smt_gain", read_number, offsetof(struct sim_model, smt_gain), 0, 8, .expects = "a number from 0 to 8" },
	{ "llc_bandwidth", read_number, offsetof(struct sim_model, llc_bandwidth), 0, 1e6,
	  .expects = "GB/s from 0 to 1000000" },
	{ "link_bandwidth", read_number, offsetof(struct sim_model, link_bandwidth), 0, 1e6,
	  .expects = "GB/s from 0 to 1000000" },
	{ "nodes", read_nodes, .expects = "an object of nodes by their numbers" },
};

static int read_machine(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	static const struct keys keys = KEYS(machine_keys);

	return read_object(rd, &keys, v, field(key, base));
}

/* ---- the top ---- */

static int read_topology(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	static const char *const kinds[] = {
		[SIM_TOPOLOGY_XML] = "xml",
		[SIM_TOPOLOGY_SYNTHETIC] = "synthetic",
		[SIM_TOPOLOGY_ROOT] = "root",
	};
	struct sim_scenario *s = base;
	unsigned kind = 0;

	if (v->type != JSON_OBJECT || v->len != 1 || v->first->type != JSON_STRING || !v->first->len)
		return unexpected(rd, key, v);
	while (kind < ARRAY_LEN(kinds) && !str_eq(kinds[kind], v->first->key))
		kind++;
	if (kind == ARRAY_LEN(kinds))
		return policy_reject_key(&rd->p, v->first, rd->err,
					 "unknown key \"%s\"; known here: xml, synthetic, root", v->first->key);
	s->topology_kind = (enum sim_topology_kind) kind;
	s->topology = arena_strdup(&s->arena, v->first->string);
	return s->topology ? 0 : error_no_memory(rd->err);
}

/* Where a value of the document begins in the text. */
static size_t offset_of(const struct reader *rd, const struct json *v)
{
	size_t at = 0;

	for (unsigned line = 1; line < v->line; line++)
		at = (size_t) ((const char *) memchr(rd->text + at, '\n', rd->len - at) - rd->text) + 1;
	return at + v->column - 1;
}

/* Behind the object that begins at a place of a document that json_parse() has found to be right. */
static size_t object_end(const struct reader *rd, size_t at)
{
	const char *t = rd->text;
	size_t depth = 0;

	do {
		if (t[at] == '"')
			for (at++; t[at] != '"'; at++)
				at += t[at] == '\\';
		else if (t[at] == '/' && t[at + 1] == '/')
			at = (size_t) ((const char *) memchr(t + at, '\n', rd->len - at) - t);
		else if (t[at] == '/' && t[at + 1] == '*')
			at = (size_t) ((const char *) memmem(t + at + 2, rd->len - at - 2, "*/", 2) - t) + 1;
		else if (t[at] == '{')
			depth++;
		else if (t[at] == '}')
			depth--;
		at++;
	} while (depth);
	return at;
}

/* Line breaks and spaces before the policy make its places those of the scenario. */
static int read_policy(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	struct sim_scenario *s = base;
	size_t start, lines = v->line - 1, columns = v->column - 1, len;
	char *text;

	if (v->type == JSON_STRING && v->len)
		return (s->policy_file = arena_strdup(&s->arena, v->string)) ? 0 : error_no_memory(rd->err);
	if (v->type != JSON_OBJECT)
		return unexpected(rd, key, v);
	start = offset_of(rd, v);
	len = object_end(rd, start) - start;
	text = arena_alloc(&s->arena, lines + columns + len + 1);
	if (!text)
		return error_no_memory(rd->err);
	memset(text, '\n', lines);
	memset(text + lines, ' ', columns);
	memcpy(text + lines + columns, rd->text + start, len);
	s->policy_text = text;
	return 0;
}

static int read_strategies(struct reader *rd, const struct key *key, const struct json *v, void *base)
{
	const char *names[SIM_STRATEGIES], *expects;
	const struct name_table table = { names, SIM_STRATEGIES };
	struct sim_scenario *s = base;

	for (unsigned i = 0; i < SIM_STRATEGIES; i++) {
		names[i] = sim_strategy_name((enum sim_strategy) i);
		s->strategies[i] = false;
	}
	if (v->type != JSON_ARRAY || !v->len)
		return unexpected(rd, key, v);
	expects = names_list(&rd->p.arena, &table);
	expects = expects ? arena_printf(&rd->p.arena, "one of: %s", expects) : NULL;
	for (const struct json *m = v->first; m; m = m->next) {
		unsigned value;

		if (m->type != JSON_STRING)
			return policy_unexpected(&rd->p, m, expects, rd->err);
		if (name_find(&table, m->string, &value) < 0)
			return policy_unknown_name(&rd->p, m, &table, expects, rd->err);
		s->strategies[value] = true;
	}
	return 0;
}

static const struct key top_keys[] = {
	{ "$schema", read_nothing, .expects = "a string" },
	{ "name", read_name, offsetof(struct sim_scenario, name),
	  .expects = "a name of 1 to 255 bytes that shows as it is" },
	{ "topology", read_topology, .required = true,
	  .expects = "an object with one of: xml (a file), synthetic (a description), root (a directory)" },
	{ "machine", read_machine, .offset = offsetof(struct sim_scenario, model) },
	{ "policy", read_policy, .required = true, .expects = "a policy, or the name of its file" },
	{ "strategies", read_strategies, .expects = "an array of at least one strategy" },
	{ "until", read_number, offsetof(struct sim_scenario, until), 0.001, SIM_SECONDS_MAX + 1,
	  .expects = "seconds from 0.001 to 1000000000" },
	{ "rebalance", read_number, offsetof(struct sim_scenario, rebalance), 0, SIM_SECONDS_MAX,
	  .expects = SECONDS_TEXT },
	{ "events", read_events, .required = true, .expects = "an array of events" },
};

static int read_scenario(struct reader *rd, const struct json *root)
{
	static const struct keys keys = KEYS(top_keys);
	struct sim_scenario *s = rd->s;
	int r = read_object(rd, &keys, root, s);

	if (r < 0)
		return r;
	if (!s->n_events)
		return policy_reject(&rd->p, json_get(root, "events"), rd->err,
				     "there is no event, so nothing happens");
	if (s->until <= 0)
		s->until = s->events[s->n_events - 1].at + 1;
	if (s->rebalance > 0 && s->until / s->rebalance > PASSES_MAX)
		return policy_reject(&rd->p, json_get(root, "rebalance"), rd->err,
				     "comes to more than %d passes until %g s", PASSES_MAX, s->until);
	return 0;
}

int sim_parse(const char *file, const char *text, size_t len, struct sim_scenario **ret_scenario, struct error *err)
{
	cleanup_sim_scenario struct sim_scenario *s = calloc(1, sizeof(*s));
	struct reader rd = { .s = s, .text = text, .len = len, .err = err };
	const struct json *root = NULL;
	int r;

	if (!s)
		return error_no_memory(err);
	s->model.smt_gain = -1;
	for (unsigned i = 0; i < SIM_STRATEGIES; i++)
		s->strategies[i] = true;
	s->file = arena_strdup(&s->arena, file);
	s->name = s->file;
	r = s->file ? json_parse(&rd.p.arena, file, text, len, JSON_COMMENTS, &limits, &root, err) :
		      error_no_memory(err);
	if (r == -E2BIG)
		r = error_set(err, E2BIG, "%s; a scenario has at most %d events in %u MiB", error_text(err),
			      SIM_EVENTS_MAX, SIM_SCENARIO_MAX >> 20);
	if (r == 0) {
		rd.document = (struct policy_document){ .file = s->file, .root = root };
		rd.p.documents = &rd.document;
		rd.p.n_documents = 1;
		r = read_scenario(&rd, root);
	}
	arena_done(&rd.p.arena);
	if (r < 0)
		return r;
	*ret_scenario = TAKE_PTR(s);
	return 0;
}

void sim_scenario_free(struct sim_scenario *s)
{
	if (!s)
		return;
	arena_done(&s->arena);
	free(s);
}

void sim_scenario_freep(struct sim_scenario **s)
{
	sim_scenario_free(*s);
	*s = NULL;
}
