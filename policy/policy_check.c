/* What the parts of a policy must have in common, with each other and with the machine. */
#include <errno.h>

#include "policy_read.h"
#include "utf8.h"
#include "topology.h"

#define KEY_SHOWN_MAX 128

/* The value of a key that one file at most sets; NULL: none does. */
static const struct json *find_once(const struct policy *p, const char *path)
{
	const struct json *v = NULL;

	for (size_t i = 0; i < p->n_documents && !v; i++)
		v = json_find(p->documents[i].root, path);
	return v;
}

static const struct json *find_tier(const struct policy *p, unsigned tier)
{
	cleanup_arena struct arena scratch = { 0 };
	const char *path = arena_printf(&scratch, "node.tiers.%s", memory_tier_names.names[tier]);

	return path ? find_once(p, path) : NULL;
}

int policy_check_node(const struct policy *p, struct error *err)
{
	for (unsigned tier = 1; tier < TIER_COUNT; tier++)
		for (unsigned other = 0; other < tier; other++) {
			nodemask both = p->node.tiers[tier] & p->node.tiers[other];
			const struct json *where = both ? find_tier(p, tier) : NULL;

			if (where)
				return policy_reject(p, where, err, "node %d is in tier %s already",
						     __builtin_ctzll(both), memory_tier_names.names[other]);
			if (both)
				return policy_no_memory(err);
		}
	return 0;
}

/* ---- one class ---- */

static bool takes_nodes(enum memory_policy policy)
{
	return policy != MEMORY_INHERIT && policy != MEMORY_LOCAL;
}

/* A weight for a tier or node that the policy does not go to would do nothing. */
static int check_class_weights(struct policy *p, const struct policy_class *class, struct error *err)
{
	const struct json *weights = json_find(class->where, "memory.weights");
	unsigned tiers = 0;

	for (size_t i = 0; i < class->memory.n_tiers; i++)
		tiers |= 1u << class->memory.tiers[i];
	for (const struct json *w = weights->first; w; w = w->next) {
		unsigned at = 0;
		bool tier = name_find(&memory_tier_names, w->key, &at) == 0;

		if (tier && tiers && !(tiers >> at & 1))
			return policy_reject_key(p, w, err, "tier %s is not one of this class's memory.tiers", w->key);
		if (!tier && class->memory.nodes && !(class->memory.nodes >> strtoul(w->key, NULL, 10) & 1))
			return policy_reject_key(p, w, err, "node %s is not one of this class's memory.nodes", w->key);
	}
	return 0;
}

static int check_class_memory(struct policy *p, struct policy_class *class, struct error *err)
{
	const struct json *tiers = json_find(class->where, "memory.tiers");
	const struct json *nodes = json_find(class->where, "memory.nodes");
	const struct json *weights = json_find(class->where, "memory.weights");
	const char *policy = memory_policy_name(class->memory.policy);

	if (tiers && nodes)
		return policy_reject_key(p, nodes, err, "memory.tiers names the nodes already; keep one of the two");
	if ((tiers || nodes) && !takes_nodes(class->memory.policy))
		return policy_reject_key(p, tiers ? tiers : nodes, err,
					 "memory policy %s takes no nodes; set memory.policy to bind, preferred, "
					 "interleave or weighted-interleave",
					 policy);
	if (weights && class->memory.policy != MEMORY_WEIGHTED)
		return policy_reject_key(p, weights, err,
					 "memory policy %s takes no weights; set memory.policy to weighted-interleave",
					 policy);
	if (takes_nodes(class->memory.policy) && !tiers && !nodes) {
		class->memory.tiers[0] = TIER_DRAM;
		class->memory.n_tiers = 1;
	}
	class->memory.has_weights = weights != NULL;
	return weights ? check_class_weights(p, class, err) : 0;
}

int policy_check_class(struct policy *p, struct policy_class *class, struct error *err)
{
	const struct json *level = json_find(class->where, "cpu.level");

	if (level && class->cpu.placement != PLACEMENT_SPREAD)
		return policy_reject_key(p, level, err, "is for placement spread only; cpu.placement is %s",
					 cpu_placement_name(class->cpu.placement));
	if (!json_find(class->where, "isolation.guard") && class->isolation.mode != ISOLATION_NONE)
		class->isolation.guard = GUARD_COOKIE;
	if (!json_get(class->where, "on_error"))
		class->on_error = p->on_error;
	return check_class_memory(p, class, err);
}

/* ---- one rule ---- */

static enum annotation_source piece_source(const struct template_piece *piece)
{
	switch (piece->variable) {
	case VARIABLE_ANNOTATION:
		return annotation_source(piece->text, piece->len);
	case VARIABLE_IMAGE:
		return SOURCE_NAME;
	case VARIABLE_LITERAL:
	case VARIABLE_ID:
	case VARIABLE_CGROUP:
	case VARIABLE_UID:
		break;
	}
	return SOURCE_RUNTIME;
}

static int reject_template(const struct policy *p, const struct json *where, const struct template_piece *piece,
			   const char *why, struct error *err)
{
	cleanup_free char *shown = printable(piece->text, piece->len, KEY_SHOWN_MAX);

	return shown ? policy_reject(p, where, err, "\"%s\": %s", shown, why) : policy_no_memory(err);
}

static int check_literal(const struct policy *p, const struct json *where, const struct template_piece *piece,
			 struct error *err)
{
	cleanup_free char *shown = printable(piece->text, piece->len, TENANT_MAX + 1);
	uint32_t hidden;

	if (!shown)
		return policy_no_memory(err);
	if (piece->len > TENANT_MAX)
		return policy_reject(p, where, err, "a tenant's name has at most %d bytes", TENANT_MAX);
	if (utf8_find_hidden(piece->text, piece->len, &hidden))
		return policy_reject(p, where, err,
				     "U+%04X is not allowed in a tenant's name: it does not show, so that two names could "
				     "look alike", hidden);
	if (strlen(shown) != piece->len || memcmp(shown, piece->text, piece->len) != 0)
		return policy_reject(p, where, err, "control characters are not allowed in a tenant's name");
	return 0;
}

/*
 * Whoever can choose the tenant's name can put himself beside the tenant of his choice. A name or image is chosen, but
 * together with a namespace, id or the like it reaches no further than that.
 */
static int check_trust(struct policy *p, const struct policy_rule *rule, const struct template_piece *doubtful,
		       struct error *err)
{
	const struct json *where = json_get(rule->where, "tenant");
	bool image = doubtful->variable == VARIABLE_IMAGE;
	const char *text = image ? "${image}" : doubtful->text;
	cleanup_free char *shown = printable(text, image ? strlen(text) : doubtful->len, KEY_SHOWN_MAX);

	if (!shown)
		return policy_no_memory(err);
	if (!rule->trust)
		return policy_reject(
			p, where, err,
			"%s is chosen by whoever starts the container, who could thus join any tenant; use "
			"what the runtime writes, such as io.kubernetes.cri.sandbox-namespace or "
			"io.kubernetes.pod.namespace, or say \"trust\": true",
			shown);
	return policy_warn(p, where, err,
			   "%s is trusted, so whoever starts a container chooses its tenant, that of others included",
			   shown);
}

static int check_template(struct policy *p, const struct policy_rule *rule, struct error *err)
{
	const struct json *where = json_get(rule->where, "tenant");
	const char *at = rule->tenant, *why = NULL;
	struct template_piece piece, anyone = { 0 }, name = { 0 };
	bool bound = false;
	int r;

	if (name_hides_space(rule->tenant))
		return policy_reject(p, where, err, "a tenant's name must not begin or end with a space or hold two in a "
						    "row, so that no two look alike");
	while ((r = template_next(&at, &piece, &why)) > 0) {
		enum annotation_source source = piece_source(&piece);

		if (piece.variable == VARIABLE_LITERAL) {
			r = check_literal(p, where, &piece, err);
			if (r < 0)
				return r;
			continue;
		}
		bound = bound || source == SOURCE_RUNTIME;
		if (source == SOURCE_ANYONE && !anyone.text)
			anyone = piece;
		if (source == SOURCE_NAME && !name.text)
			name = piece;
	}
	if (r < 0)
		return reject_template(p, where, &piece, why, err);
	if (anyone.text)
		return check_trust(p, rule, &anyone, err);
	return name.text && !bound ? check_trust(p, rule, &name, err) : 0;
}

static int warn_conditions(struct policy *p, const struct policy_rule *rule, struct error *err)
{
	const struct json *annotations = json_find(rule->where, "match.annotation");

	for (const struct json *c = annotations ? annotations->first : NULL; c; c = c->next) {
		cleanup_free char *shown = printable(c->key, strlen(c->key), KEY_SHOWN_MAX);
		int r;

		if (annotation_source(c->key, strlen(c->key)) != SOURCE_ANYONE)
			continue;
		if (!shown)
			return policy_no_memory(err);
		r = policy_warn(p, c, err,
				"whoever starts a container can write %s, and so choose this rule or avoid it", shown);
		if (r < 0)
			return r;
	}
	return 0;
}

int policy_check_rule(struct policy *p, struct policy_rule *rule, struct error *err)
{
	int r = check_template(p, rule, err);

	return r < 0 ? r : warn_conditions(p, rule, err);
}

/* ---- the machine ---- */

static int check_nodes(const struct policy *p, const struct topology *topo, const struct json *where, nodemask wanted,
		       struct error *err)
{
	nodemask there = 0, missing;
	cleanup_free char *missing_list = NULL, *there_list = NULL;

	for (size_t i = 0; i < topo->n_nodes; i++)
		there |= node_bit(topo->nodes[i].id);
	missing = wanted & ~there;
	if (!missing)
		return 0;
	if (!where)
		return policy_no_memory(err);
	missing_list = nodemask_format(missing);
	there_list = nodemask_format(there);
	if (!missing_list || !there_list)
		return policy_no_memory(err);
	return policy_reject(p, where, err, "this machine has no NUMA node %s; it has: %s", missing_list, there_list);
}

static nodemask weighted_nodes(const struct weights *w)
{
	nodemask nodes = 0;

	for (unsigned node = 0; w->by_node && node < NODE_MAX; node++)
		if (w->node[node])
			nodes |= node_bit(node);
	return nodes;
}

static int check_reserved(const struct policy *p, const struct topology *topo, struct error *err)
{
	cleanup_free char *online = mask_format(&topo->online);
	const struct json *where = find_once(p, "node.reserved_cpus");

	if (!where || !mask_subset(&topo->online, &p->node.reserved))
		return 0;
	return online ? policy_reject(p, where, err, "leaves no CPU for containers: the machine's online CPUs are %s",
				      online)
		      : policy_no_memory(err);
}

int policy_check_machine(const struct policy *p, const struct topology *topo, struct error *err)
{
	int r = check_reserved(p, topo, err);

	if (r == 0 && p->node.weights_mode == WEIGHTS_FIXED)
		r = check_nodes(p, topo, find_once(p, "node.weights"), weighted_nodes(&p->node.weights), err);
	for (unsigned tier = 0; tier < TIER_COUNT && r == 0; tier++)
		r = check_nodes(p, topo, find_tier(p, tier), p->node.tiers[tier], err);
	for (size_t i = 0; i < p->n_classes && r == 0; i++) {
		const struct policy_class *c = p->classes[i];

		if (c->memory.nodes)
			r = check_nodes(p, topo, json_find(c->where, "memory.nodes"), c->memory.nodes, err);
		if (r == 0 && c->memory.has_weights)
			r = check_nodes(p, topo, json_find(c->where, "memory.weights"),
					weighted_nodes(&c->memory.weights), err);
	}
	return r;
}
