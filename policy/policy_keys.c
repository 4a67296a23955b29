#include "policy_keys.h"

#include "condition.h"

#define ROOT(member) .offset = offsetof(struct policy, member)
#define CLASS(member) .offset = offsetof(struct policy_class, member)
#define RULE(member) .offset = offsetof(struct policy_rule, member)
#define ENUM(what, value) .kind = KIND_ENUM, .names = &what##_names, .def = value
#define BOOL(value) .kind = KIND_BOOL, .def = value
#define CHILD(section) .kind = KIND_SECTION, .child = section
#define NUMBER(what, low, high, value) .kind = what, .min = low, .max = high, .def = value
#define WEIGHT_RANGE .min = 1, .max = UINT8_MAX
#define CONDITION_FIELD(member) .offset = offsetof(struct policy_condition, member)
#define CONDITION(what) .kind = KIND_PATTERN, .fact = what

const struct policy_key policy_keys[] = {
	{ SECTION_TOP, .name = "$schema", .kind = KIND_STRING, .help = "For editors; not used." },
	{ SECTION_TOP, .name = "version", .required = true, NUMBER(KIND_VERSION, 1, 1, NULL),
	  .help = "Version of this format." },
	{ SECTION_TOP, .name = "node", CHILD(SECTION_NODE), .help = "What holds for the machine as a whole." },
	{ SECTION_TOP, .name = "classes", .kind = KIND_CLASSES, .child = SECTION_CLASS,
	  .help = "What each class of container gets, by the class's name." },
	{ SECTION_TOP, .name = "rules", .kind = KIND_RULES, .child = SECTION_RULE,
	  .help = "Which tenant and class a container belongs to; the first rule that matches decides." },
	{ SECTION_TOP, .name = "on_error", .once = true, ROOT(on_error), ENUM(on_error, "refuse"),
	  .help = "What happens to a container that cannot be placed: not started, or started and marked degraded." },

	{ SECTION_NODE, .name = "reserved_cpus", .once = true, ROOT(node.reserved), .kind = KIND_CPUS, .def = "",
	  .help = "CPUs that are never given to a container." },
	{ SECTION_NODE, .name = "weights", .once = true, ROOT(node.weights), .kind = KIND_NODE_WEIGHTS, .def = "keep",
	  .names = &weights_mode_names, WEIGHT_RANGE,
	  .help = "The machine's interleave weights: left alone, derived from bandwidth, or these, by tier or by "
		  "node." },
	{ SECTION_NODE, .name = "confine_unmanaged", .once = true, ROOT(node.confine_unmanaged), BOOL("false"),
	  .help = "Whether what cotenant did not place is kept off the cores of tenants in mode cores." },
	{ SECTION_NODE, .name = "tiers", CHILD(SECTION_TIERS),
	  .help = "Nodes that the operator puts into a memory tier, whatever the firmware says." },
	{ SECTION_TIERS, .name = "dram", .once = true, ROOT(node.tiers[TIER_DRAM]), .kind = KIND_NODES,
	  .help = "Nodes of ordinary memory." },
	{ SECTION_TIERS, .name = "hbm", .once = true, ROOT(node.tiers[TIER_HBM]), .kind = KIND_NODES,
	  .help = "Nodes of high-bandwidth memory." },
	{ SECTION_TIERS, .name = "cxl", .once = true, ROOT(node.tiers[TIER_CXL]), .kind = KIND_NODES,
	  .help = "Nodes of CXL-attached memory." },
	{ SECTION_TIERS, .name = "pmem", .once = true, ROOT(node.tiers[TIER_PMEM]), .kind = KIND_NODES,
	  .help = "Nodes of persistent memory." },
	{ SECTION_NODE, .name = "model", CHILD(SECTION_MODEL),
	  .help = "Constants of the cost by which places are compared." },
	{ SECTION_MODEL, .name = "smt_thread", .once = true, ROOT(node.model.smt_thread),
	  NUMBER(KIND_FACTOR, 0, 1, "0.6"),
	  .help = "What a further thread of a core does beside the first, in cores." },
	{ SECTION_MODEL, .name = "queueing", .once = true, ROOT(node.model.queueing),
	  NUMBER(KIND_FACTOR, 0, 1, "0.05"),
	  .help = "Share of its work that a fully used core loses because tasks wait for one another." },
	{ SECTION_MODEL, .name = "stream_spread", .once = true, ROOT(node.model.stream_spread),
	  NUMBER(KIND_FACTOR, 0, 1, "1"),
	  .help = "Share of its time for which a container of a class that spreads streams memory." },
	{ SECTION_MODEL, .name = "stream_other", .once = true, ROOT(node.model.stream_other),
	  NUMBER(KIND_FACTOR, 0, 1, "0.1"),
	  .help = "Share of its time for which any other container streams memory." },
	{ SECTION_MODEL, .name = "llc_stream", .once = true, ROOT(node.model.llc_stream),
	  NUMBER(KIND_FACTOR, 0, 16, "0.125"),
	  .help = "Streaming CPUs that a last-level cache feeds for each of its cores; never less than one in all." },
	{ SECTION_MODEL, .name = "stream_bandwidth", .once = true, ROOT(node.model.stream_bandwidth),
	  NUMBER(KIND_COUNT, 1, 1000000, "36000"),
	  .help = "Bandwidth in MB/s that one streaming CPU draws." },
	{ SECTION_MODEL, .name = "memory_bound", .once = true, ROOT(node.model.memory_bound),
	  NUMBER(KIND_FACTOR, 0, 1, "0.3"),
	  .help = "Share of its time for which a container waits for memory when all of it is near." },
	{ SECTION_MODEL, .name = "hbm_latency", .once = true, ROOT(node.model.hbm_latency),
	  NUMBER(KIND_FACTOR, 1, 100, "1.1"),
	  .help = "Latency of high-bandwidth memory against DRAM, where the machine does not say." },
	{ SECTION_MODEL, .name = "cxl_latency", .once = true, ROOT(node.model.cxl_latency),
	  NUMBER(KIND_FACTOR, 1, 100, "2"),
	  .help = "Latency of CXL-attached memory against DRAM, where the machine does not say." },
	{ SECTION_MODEL, .name = "pmem_latency", .once = true, ROOT(node.model.pmem_latency),
	  NUMBER(KIND_FACTOR, 1, 100, "3"),
	  .help = "Latency of persistent memory against DRAM, where the machine does not say." },
	{ SECTION_MODEL, .name = "memory_short", .once = true, ROOT(node.model.memory_short),
	  NUMBER(KIND_FACTOR, 0, 1000, "1"),
	  .help = "CPUs that a container loses for every GiB for which there is no room." },
	{ SECTION_MODEL, .name = "pack_llc", .once = true, ROOT(node.model.pack_llc),
	  NUMBER(KIND_FACTOR, 0, 1, "0.1"),
	  .help = "Share of its work that a container of a class that packs loses when its threads share no cache." },
	{ SECTION_MODEL, .name = "pack_node", .once = true, ROOT(node.model.pack_node),
	  NUMBER(KIND_FACTOR, 0, 1, "0.2"),
	  .help = "Share of its work that a container of a class that packs loses when its threads share no node." },
	{ SECTION_MODEL, .name = "collision", .once = true, ROOT(node.model.collision),
	  NUMBER(KIND_FACTOR, 0, 1, "0.1"),
	  .help = "Share of the time for which different cookies want the same core that is lost by waiting." },
	{ SECTION_MODEL, .name = "burst", .once = true, ROOT(node.model.burst),
	  NUMBER(KIND_FACTOR, 0, 1, "0.05"),
	  .help = "What a container without a hard limit gains from further CPUs, as a share of its demand." },
	{ SECTION_MODEL, .name = "move_gib", .once = true, ROOT(node.model.move_gib),
	  NUMBER(KIND_FACTOR, 0, 1000, "1"),
	  .help = "CPU seconds that moving a GiB of memory costs." },
	{ SECTION_MODEL, .name = "move_horizon", .once = true, ROOT(node.model.move_horizon),
	  NUMBER(KIND_FACTOR, 1, 86400, "60"),
	  .help = "Seconds within which a move must pay." },

	{ SECTION_CLASS, .name = "isolation", CHILD(SECTION_ISOLATION), .help = "Who may share a physical core." },
	{ SECTION_CLASS, .name = "cpu", CHILD(SECTION_CPU), .help = "Which CPUs the container runs on." },
	{ SECTION_CLASS, .name = "memory", CHILD(SECTION_MEMORY), .help = "Where the container's memory lies." },
	{ SECTION_CLASS, .name = "rebalance", CHILD(SECTION_REBALANCE), .help = "Moving it later, as load shifts." },
	{ SECTION_CLASS, .name = "on_error", CLASS(on_error), .kind = KIND_ENUM, .names = &on_error_names,
	  .help = "As at the top, for this class; that one's value is the default." },

	{ SECTION_ISOLATION, .name = "mode", CLASS(isolation.mode), ENUM(isolation_mode, "cookie"),
	  .help = "Core-scheduling cookies, whole cores that no other tenant gets, the cheaper of the two, or "
		  "nothing." },
	{ SECTION_ISOLATION, .name = "scope", CLASS(isolation.scope), ENUM(isolation_scope, "tenant"),
	  .help = "Who shares a cookie or a set of cores: the whole tenant, one pod, or one container." },
	{ SECTION_ISOLATION, .name = "on_unsupported", CLASS(isolation.on_unsupported), ENUM(on_unsupported, "refuse"),
	  .help = "Where the kernel lacks core scheduling: do not start, use whole cores, or start without "
		  "isolation." },
	{ SECTION_ISOLATION, .name = "guard", CLASS(isolation.guard), .kind = KIND_GUARD, .names = &guard_names,
	  .help = "What the container may not change itself; true is [\"cookie\"], the default but in mode none." },
	{ SECTION_ISOLATION, .name = "exec", CLASS(isolation.exec), ENUM(exec_cover, "gate"),
	  .help = "How processes of a later exec get the cookie: held until they have it, soon after, or at each "
		  "pass." },

	{ SECTION_CPU, .name = "span", CLASS(cpu.span), ENUM(cpu_span, "node"),
	  .help = "The widest part of the machine that the container may run on." },
	{ SECTION_CPU, .name = "placement", CLASS(cpu.placement), ENUM(cpu_placement, "auto"),
	  .help = "Close together, apart, or whichever costs less." },
	{ SECTION_CPU, .name = "level", CLASS(cpu.level), ENUM(cpu_level, "llc"),
	  .help = "What placement spread goes over first." },
	{ SECTION_CPU, .name = "exclusive", CLASS(cpu.exclusive), BOOL("false"),
	  .help = "Whole cores for this container alone." },
	{ SECTION_CPU, .name = "smt", CLASS(cpu.smt), ENUM(cpu_smt, "use"),
	  .help = "Whether all threads of a core are used, or one and the others stay idle." },
	{ SECTION_CPU, .name = "count", CLASS(cpu.count_mcpu), NUMBER(KIND_MILLI, 0, CPU_MAX, NULL),
	  .help = "Number of CPUs wanted when the container's OCI limits say none; may be a fraction." },

	{ SECTION_MEMORY, .name = "policy", CLASS(memory.policy), ENUM(memory_policy, "inherit"),
	  .help = "The kernel memory policy of every thread, set from outside before the first instruction." },
	{ SECTION_MEMORY, .name = "tiers", CLASS(memory.tiers), .kind = KIND_TIERS, .names = &memory_tier_names,
	  .help = "Memory tiers of the policy's nodes, best first; [\"dram\"] for a policy that needs nodes." },
	{ SECTION_MEMORY, .name = "nodes", CLASS(memory.nodes), .kind = KIND_NODES,
	  .help = "The policy's nodes by number, in place of tiers." },
	{ SECTION_MEMORY, .name = "weights", CLASS(memory.weights), .kind = KIND_WEIGHTS, WEIGHT_RANGE,
	  .help = "Interleave weights of this class's own, by tier or by node." },
	{ SECTION_MEMORY, .name = "migrate", CLASS(memory.migrate), BOOL("false"),
	  .help = "Whether pages may be moved after the start." },

	{ SECTION_REBALANCE, .name = "enabled", CLASS(rebalance.enabled), BOOL("true"),
	  .help = "Whether the container may be placed anew at all." },
	{ SECTION_REBALANCE, .name = "min_dwell", CLASS(rebalance.min_dwell_s), NUMBER(KIND_COUNT, 0, 86400, "60"),
	  .help = "Seconds that a placement is kept at least." },
	{ SECTION_REBALANCE, .name = "max_moves_per_minute", CLASS(rebalance.max_moves_per_minute),
	  NUMBER(KIND_COUNT, 1, 1000, "6"), .help = "Most moves of this class's containers in one minute." },
	{ SECTION_REBALANCE, .name = "min_gain", CLASS(rebalance.min_gain), NUMBER(KIND_SHARE, 0, 1, "0.05"),
	  .help = "Least predicted gain of a move, as a share: 0.05 is 5 %." },

	{ SECTION_RULE, .name = "match", .required = true, CHILD(SECTION_MATCH),
	  .help = "Conditions that must all hold; {} matches every container." },
	{ SECTION_RULE, .name = "tenant", .required = true, RULE(tenant), .kind = KIND_TEMPLATE,
	  .help = "The tenant's name; ${id}, ${annotation:KEY}, ${cgroup}, ${image} and ${uid} are filled in, $$ is "
		  "$." },
	{ SECTION_RULE, .name = "class", .required = true, .kind = KIND_CLASS_NAME, .help = "The container's class." },
	{ SECTION_RULE, .name = "trust", RULE(trust), BOOL("false"),
	  .help = "Allows a tenant's name that whoever starts the container can choose." },

	{ SECTION_MATCH, .name = "annotation", .kind = KIND_ANNOTATIONS, .fact = FACT_ANNOTATION,
	  .help = "Patterns by the annotation's name." },
	{ SECTION_MATCH, .name = "id", CONDITION(FACT_ID), .help = "The container's id." },
	{ SECTION_MATCH, .name = "cgroup", CONDITION(FACT_CGROUP), .help = "Its cgroup path, as in /proc/PID/cgroup." },
	{ SECTION_MATCH, .name = "image", CONDITION(FACT_IMAGE),
	  .help = "Its image, as the container engine names it." },
	{ SECTION_MATCH, .name = "stage", CONDITION(FACT_STAGE), .help = "The OCI hook stage, such as createRuntime." },
	{ SECTION_MATCH, .name = "uid", .kind = KIND_UID, .child = SECTION_UID,
	  .help = "Range of the host user id of the container's root." },
	{ SECTION_UID, .name = "min", CONDITION_FIELD(min), NUMBER(KIND_COUNT, 0, UINT32_MAX, "0"),
	  .help = "Lowest id." },
	{ SECTION_UID, .name = "max", CONDITION_FIELD(max), NUMBER(KIND_COUNT, 0, UINT32_MAX, "4294967295"),
	  .help = "Highest id." },
};
const size_t n_policy_keys = ARRAY_LEN(policy_keys);

const char *section_prefix(enum section section)
{
	static const char *const prefixes[] = {
		[SECTION_TOP] = "",
		[SECTION_NODE] = "node.",
		[SECTION_TIERS] = "node.tiers.",
		[SECTION_MODEL] = "node.model.",
		[SECTION_CLASS] = "classes.NAME.",
		[SECTION_ISOLATION] = "classes.NAME.isolation.",
		[SECTION_CPU] = "classes.NAME.cpu.",
		[SECTION_MEMORY] = "classes.NAME.memory.",
		[SECTION_REBALANCE] = "classes.NAME.rebalance.",
		[SECTION_RULE] = "rules[].",
		[SECTION_MATCH] = "rules[].match.",
		[SECTION_UID] = "rules[].match.uid.",
	};

	return prefixes[section];
}

const struct policy_key *policy_key_find(enum section section, const char *name)
{
	for (size_t i = 0; i < n_policy_keys; i++)
		if (policy_keys[i].section == section && str_eq(policy_keys[i].name, name))
			return &policy_keys[i];
	return NULL;
}

static void set_default(const struct policy_key *key, void *base)
{
	void *field = (char *) base + key->offset;

	if (key->kind == KIND_BOOL)
		*(bool *) field = str_eq(key->def, "true");
	else if (key->kind == KIND_COUNT)
		*(unsigned *) field = (unsigned) strtoul(key->def, NULL, 10);
	else if (key->kind == KIND_SHARE)
		*(double *) field = strtod(key->def, NULL);
	else if (key->kind == KIND_FACTOR)
		*(unsigned *) field = (unsigned) (strtod(key->def, NULL) * 1000 + 0.5);
	else if (key->kind == KIND_ENUM && name_find(key->names, key->def, field) < 0)
		*(unsigned *) field = 0;
}

void policy_key_defaults(enum section first, enum section last, void *base)
{
	for (size_t i = 0; i < n_policy_keys; i++)
		if (policy_keys[i].section >= first && policy_keys[i].section <= last && policy_keys[i].def)
			set_default(&policy_keys[i], base);
}

const char *names_list(struct arena *a, const struct name_table *names)
{
	const char *list = "";

	for (size_t i = 0; i < names->n && list; i++)
		list = arena_printf(a, "%s%s%s", list, i ? ", " : "", names->names[i]);
	return list;
}

static const char *expects_names(struct arena *a, const struct policy_key *key)
{
	static const char *const forms[KIND_COUNT_OF_KINDS] = {
		[KIND_ENUM] = "one of: %s",
		[KIND_NODE_WEIGHTS] = "one of: %s; or an object of weights by tier or by node number",
		[KIND_TIERS] = "an array of: %s",
		[KIND_GUARD] = "true, false, or an array of: %s",
	};
	const char *names = names_list(a, key->names), *form = forms[key->kind], *mark = strstr(form, "%s");

	return names ? arena_printf(a, "%.*s%s%s", (int) (mark - form), form, names, mark + strlen("%s")) : NULL;
}

const char *policy_key_expects(struct arena *a, const struct policy_key *key)
{
	static const char *const words[KIND_COUNT_OF_KINDS] = {
		[KIND_SECTION] = "an object",
		[KIND_CLASSES] = "an object of classes by name",
		[KIND_RULES] = "an array of rules",
		[KIND_VERSION] = "the number 1",
		[KIND_STRING] = "a string",
		[KIND_BOOL] = "true or false",
		[KIND_CPUS] = "a list of CPUs such as \"0-3,8\"",
		[KIND_NODES] = "a list of NUMA nodes such as \"0,2-3\"",
		[KIND_WEIGHTS] = "an object of weights by tier or by node number",
		[KIND_PATTERN] = "a string (* stands for any text) or {\"regex\": \"...\"}",
		[KIND_ANNOTATIONS] = "an object of patterns by annotation name",
		[KIND_UID] = "an object with min and max",
		[KIND_TEMPLATE] = "a string",
		[KIND_CLASS_NAME] = "the name of a class",
	};

	if (key->kind == KIND_COUNT)
		return arena_printf(a, "a whole number from %u to %u", key->min, key->max);
	if (key->kind == KIND_SHARE || key->kind == KIND_FACTOR)
		return arena_printf(a, "a number from %u to %u", key->min, key->max);
	if (key->kind == KIND_MILLI)
		return arena_printf(a, "a number from 0.001 to %u", key->max);
	return words[key->kind] ? words[key->kind] : expects_names(a, key);
}

/* Edits from one word to the other, a swap of neighbours being one (optimal string alignment). */
static unsigned edit_distance(const char *a, size_t n, const char *b, size_t m)
{
	enum { MAX = 32 };
	unsigned row[MAX + 1][MAX + 1];

	if (n > MAX || m > MAX)
		return UINT32_MAX;
	for (size_t i = 0; i <= n; i++)
		for (size_t j = 0; j <= m; j++) {
			unsigned best;

			if (!i || !j) {
				row[i][j] = (unsigned) (i + j);
				continue;
			}
			best = row[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
			if (row[i - 1][j] + 1 < best)
				best = row[i - 1][j] + 1;
			if (row[i][j - 1] + 1 < best)
				best = row[i][j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    row[i - 2][j - 2] + 1 < best)
				best = row[i - 2][j - 2] + 1;
			row[i][j] = best;
		}
	return row[n][m];
}

void nearest_try(struct nearest *n, const char *candidate)
{
	size_t len = strlen(n->word);
	unsigned distance = edit_distance(n->word, len, candidate, strlen(candidate));

	/* A third of the letters wrong is the most that a slip of the fingers explains. */
	if (distance > (len + 2) / 3 || (n->best && distance >= n->distance))
		return;
	n->best = candidate;
	n->distance = distance;
}
