/* The values of the policy's keys, one reader per kind. */
#include <errno.h>
#include <stdio.h>

#include "policy_read.h"
#include "utf8.h"

#define CLASS_NAME_MAX 64

typedef int (*value_reader)(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
			    struct error *err);

static void *field_of(const struct policy_key *key, void *base)
{
	return (char *) base + key->offset;
}

static int unexpected(struct policy *p, const struct policy_key *key, const struct json *v, struct error *err)
{
	return policy_unexpected(p, v, policy_key_expects(&p->arena, key), err);
}

static int read_section(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
			struct error *err)
{
	return policy_read_section(p, key->child, v, base, err);
}

static int read_version(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
			struct error *err)
{
	(void) base;
	return v->type == JSON_INT && v->integer == key->max ? 0 : unexpected(p, key, v, err);
}

static int read_string(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
		       struct error *err)
{
	(void) base;
	return v->type == JSON_STRING ? 0 : unexpected(p, key, v, err);
}

static int read_bool(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
		     struct error *err)
{
	if (v->type != JSON_BOOL)
		return unexpected(p, key, v, err);
	*(bool *) field_of(key, base) = v->boolean;
	return 0;
}

/* One of the key's names. */
static int read_name(struct policy *p, const struct policy_key *key, const struct json *v, unsigned *ret,
		     struct error *err)
{
	if (v->type != JSON_STRING)
		return unexpected(p, key, v, err);
	if (name_find(key->names, v->string, ret) < 0)
		return policy_unknown_name(p, v, key->names, policy_key_expects(&p->arena, key), err);
	return 0;
}

static int read_enum(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
		     struct error *err)
{
	_Static_assert(sizeof(enum isolation_mode) == sizeof(unsigned), "enums are stored as unsigned");

	return read_name(p, key, v, field_of(key, base), err);
}

static int read_count(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
		      struct error *err)
{
	if (v->type != JSON_INT || v->integer < key->min || v->integer > key->max)
		return unexpected(p, key, v, err);
	*(unsigned *) field_of(key, base) = (unsigned) v->integer;
	return 0;
}

/* A number of either kind; false when it is none or outside of the key's range. */
static bool number_in_range(const struct policy_key *key, const struct json *v, double *ret)
{
	double number;

	if (v->type != JSON_INT && v->type != JSON_REAL)
		return false;
	number = v->type == JSON_INT ? (double) v->integer : v->real;
	if (!(number >= key->min && number <= key->max))
		return false;
	*ret = number;
	return true;
}

static int read_milli(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
		      struct error *err)
{
	double number;

	if (!number_in_range(key, v, &number) || number < 0.001)
		return unexpected(p, key, v, err);
	*(unsigned *) field_of(key, base) = (unsigned) (number * 1000 + 0.5);
	return 0;
}

static int read_factor(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
		       struct error *err)
{
	double number;

	if (!number_in_range(key, v, &number))
		return unexpected(p, key, v, err);
	*(unsigned *) field_of(key, base) = (unsigned) (number * 1000 + 0.5);
	return 0;
}

static int read_share(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
		      struct error *err)
{
	double number;

	if (!number_in_range(key, v, &number))
		return unexpected(p, key, v, err);
	*(double *) field_of(key, base) = number;
	return 0;
}

static int read_cpus(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
		     struct error *err)
{
	int r = v->type == JSON_STRING ? mask_parse(v->string, field_of(key, base)) : -EINVAL;

	if (r == -ERANGE)
		return policy_reject(p, v, err, "\"%s\" names a CPU above %d, the highest that is supported", v->string,
				     CPU_MAX - 1);
	return r < 0 ? unexpected(p, key, v, err) : 0;
}

static int read_nodes(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
		      struct error *err)
{
	nodemask nodes = 0;
	int r = v->type == JSON_STRING ? nodemask_parse(v->string, &nodes) : -EINVAL;

	if (r == -ERANGE)
		return policy_reject(p, v, err, "\"%s\" names a node above %d, the highest that is supported",
				     v->string, NODE_MAX - 1);
	if (r < 0 || !nodes)
		return unexpected(p, key, v, err);
	*(nodemask *) field_of(key, base) = nodes;
	return 0;
}

/* A node's number as a key: digits without leading zeros, so that no node has two names. */
static bool node_number(const char *text, unsigned *ret)
{
	unsigned number = 0;

	if (!*text || (*text == '0' && text[1]))
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9' || number > NODE_MAX)
			return false;
		number = number * 10 + (unsigned) (*text - '0');
	}
	*ret = number;
	return true;
}

static int unknown_weight(struct policy *p, const struct json *member, struct error *err)
{
	cleanup_free char *shown = printable(member->key, strlen(member->key), CLASS_NAME_MAX);
	const char *tiers = names_list(&p->arena, &memory_tier_names);
	struct nearest near = { .word = member->key };

	if (!shown || !tiers)
		return policy_no_memory(err);
	for (size_t i = 0; i < memory_tier_names.n; i++)
		nearest_try(&near, memory_tier_names.names[i]);
	return policy_reject_key(
		p, member, err, "\"%s\" is neither a memory tier (%s) nor a node number up to %d%s%s%s", shown, tiers,
		NODE_MAX - 1, near.best ? "; did you mean \"" : "", near.best ? near.best : "", near.best ? "\"?" : "");
}

static int read_weight(struct policy *p, const struct policy_key *key, const struct json *member, struct weights *w,
		       struct error *err)
{
	unsigned at = 0;
	bool by_node = node_number(member->key, &at);

	if (by_node ? at >= NODE_MAX : name_find(&memory_tier_names, member->key, &at) < 0)
		return unknown_weight(p, member, err);
	if (!member->parent || member == member->parent->first)
		w->by_node = by_node;
	else if (w->by_node != by_node)
		return policy_reject_key(p, member, err, "weights are either all by tier or all by node number");
	if (member->type != JSON_INT || member->integer < key->min || member->integer > key->max)
		return policy_unexpected(p, member,
					 arena_printf(&p->arena, "a weight from %u to %u", key->min, key->max), err);
	*(by_node ? &w->node[at] : &w->tier[at]) = (uint8_t) member->integer;
	return 0;
}

static int read_weights(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
			struct error *err)
{
	struct weights w = { 0 };

	if (v->type != JSON_OBJECT || !v->first)
		return unexpected(p, key, v, err);
	for (const struct json *member = v->first; member; member = member->next) {
		int r = read_weight(p, key, member, &w, err);

		if (r < 0)
			return r;
	}
	*(struct weights *) field_of(key, base) = w;
	return 0;
}

static int read_node_weights(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
			     struct error *err)
{
	unsigned mode = WEIGHTS_FIXED;
	int r = v->type == JSON_OBJECT ? read_weights(p, key, v, base, err) : read_name(p, key, v, &mode, err);

	if (r == 0)
		p->node.weights_mode = (enum weights_mode) mode;
	return r;
}

static int read_tiers(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
		      struct error *err)
{
	enum memory_tier *tiers = field_of(key, base);
	struct policy_class *class = base;
	unsigned seen = 0;

	if (v->type != JSON_ARRAY || !v->len)
		return unexpected(p, key, v, err);
	for (const struct json *item = v->first; item; item = item->next) {
		unsigned tier = 0;
		int r = read_name(p, key, item, &tier, err);

		if (r < 0)
			return r;
		if (seen >> tier & 1)
			return policy_reject(p, item, err, "\"%s\" is named twice", item->string);
		seen |= 1u << tier;
		tiers[class->memory.n_tiers++] = (enum memory_tier) tier;
	}
	return 0;
}

static int read_guard(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
		      struct error *err)
{
	unsigned guard = 0, bit = 0;
	int r;

	if (v->type == JSON_BOOL)
		guard = v->boolean ? GUARD_COOKIE : 0;
	else if (v->type != JSON_ARRAY)
		return unexpected(p, key, v, err);
	for (const struct json *item = v->type == JSON_ARRAY ? v->first : NULL; item; item = item->next) {
		r = read_name(p, key, item, &bit, err);
		if (r < 0)
			return r;
		guard |= 1u << bit;
	}
	*(unsigned *) field_of(key, base) = guard;
	return 0;
}

static int read_pattern(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
			struct error *err)
{
	struct policy_rule *rule = base;
	struct policy_condition *c = &rule->conditions[rule->n_conditions];
	const struct json *regex = v->type == JSON_OBJECT && v->len == 1 ? json_get(v, "regex") : NULL;
	const char *why = NULL;
	int r;

	*c = (struct policy_condition){ .fact = (enum fact) key->fact };
	if (c->fact == FACT_ANNOTATION)
		c->annotation = v->key;
	if (v->type == JSON_STRING)
		r = pattern_from_text(&p->arena, v->string, c, &why);
	else if (regex && regex->type == JSON_STRING)
		r = pattern_from_regex(&p->arena, regex->string, c, &why);
	else
		return policy_unexpected(p, v, "a string (* stands for any text) or {\"regex\": \"...\"}", err);
	if (r < 0)
		return r == -ENOMEM || !why ? policy_no_memory(err)
					    : policy_reject(p, regex ? regex : v, err, "%s", why);
	rule->n_conditions++;
	p->regex_size += c->size;
	if (p->regex_size > REGEX_SIZES_MAX)
		return policy_reject(p, regex, err,
				     "all regular expressions together may come to %d characters with their repeats "
				     "written out, and with this one they are %zu; use globs where they will do",
				     REGEX_SIZES_MAX, p->regex_size);
	return 0;
}

static int read_annotations(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
			    struct error *err)
{
	if (v->type != JSON_OBJECT)
		return unexpected(p, key, v, err);
	for (const struct json *member = v->first; member; member = member->next) {
		int r = read_pattern(p, key, member, base, err);

		if (r < 0)
			return r;
	}
	return 0;
}

static int read_uid(struct policy *p, const struct policy_key *key, const struct json *v, void *base, struct error *err)
{
	struct policy_rule *rule = base;
	struct policy_condition *c = &rule->conditions[rule->n_conditions];
	int r;

	*c = (struct policy_condition){ .fact = FACT_UID };
	policy_key_defaults(key->child, key->child, c);
	r = policy_read_section(p, key->child, v, c, err);
	if (r < 0)
		return r;
	if (c->min > c->max)
		return policy_reject(p, v, err, "min %u is above max %u", c->min, c->max);
	rule->n_conditions++;
	return 0;
}

static int read_template(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
			 struct error *err)
{
	if (v->type != JSON_STRING)
		return unexpected(p, key, v, err);
	if (!v->len || v->len > TEMPLATE_MAX)
		return policy_reject(p, v, err, "a tenant has 1 to %d bytes, this has %zu", TEMPLATE_MAX, v->len);
	*(const char **) field_of(key, base) = v->string;
	return 0;
}

static bool class_name_ok(const char *name)
{
	size_t len = strlen(name);

	return len && len <= CLASS_NAME_MAX &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len;
}

static int read_class(struct policy *p, const struct policy_key *key, const struct json *member, struct error *err)
{
	struct policy_class *class;
	uint32_t hidden;

	if (utf8_find_hidden(member->key, strlen(member->key), &hidden))
		return policy_reject_key(p, member, err,
					 "U+%04X is not allowed in a class's name: it does not show, so that two names "
					 "could look alike", hidden);
	if (!class_name_ok(member->key))
		return policy_reject_key(p, member, err,
					 "a class's name has 1 to %d letters, digits and any of \"._-\"",
					 CLASS_NAME_MAX);
	for (size_t i = 0; i < p->n_classes; i++)
		if (str_eq(p->classes[i]->name, member->key))
			return policy_reject_key(p, member, err,
						 "class \"%s\" is defined twice; the first is at %s:%u:%u", member->key,
						 policy_file_of(p, p->classes[i]->where),
						 p->classes[i]->where->key_line, p->classes[i]->where->key_column);
	class = arena_new(&p->arena, struct policy_class, 1);
	if (!class)
		return policy_no_memory(err);
	class->name = member->key;
	class->where = member;
	policy_key_defaults(SECTION_CLASS, SECTION_REBALANCE, class);
	p->classes[p->n_classes++] = class;
	return policy_read_section(p, key->child, member, class, err);
}

static int read_classes(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
			struct error *err)
{
	(void) base;
	if (v->type != JSON_OBJECT)
		return unexpected(p, key, v, err);
	for (const struct json *member = v->first; member; member = member->next) {
		int r = read_class(p, key, member, err);

		if (r < 0)
			return r;
	}
	return 0;
}

static size_t members(const struct json *v)
{
	return v && v->type == JSON_OBJECT ? v->len : 0;
}

static int read_rules(struct policy *p, const struct policy_key *key, const struct json *v, void *base,
		      struct error *err)
{
	(void) base;
	if (v->type != JSON_ARRAY)
		return unexpected(p, key, v, err);
	for (const struct json *item = v->first; item; item = item->next) {
		struct policy_rule *rule = &p->rules[p->n_rules++];
		const struct json *match = json_get(item, "match");
		size_t room = members(match) + members(json_get(match, "annotation"));
		int r;

		rule->where = item;
		rule->file = policy_file_of(p, item);
		policy_key_defaults(key->child, key->child, rule);
		rule->conditions = arena_new(&p->arena, struct policy_condition, room + 1);
		if (!rule->conditions)
			return policy_no_memory(err);
		r = policy_read_section(p, key->child, item, rule, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int policy_read_value(struct policy *p, const struct policy_key *key, const struct json *value, void *base,
		      struct error *err)
{
	static const value_reader readers[KIND_COUNT_OF_KINDS] = {
		[KIND_SECTION] = read_section,   [KIND_CLASSES] = read_classes,
		[KIND_RULES] = read_rules,       [KIND_VERSION] = read_version,
		[KIND_STRING] = read_string,     [KIND_BOOL] = read_bool,
		[KIND_ENUM] = read_enum,         [KIND_COUNT] = read_count,
		[KIND_MILLI] = read_milli,       [KIND_SHARE] = read_share,
		[KIND_FACTOR] = read_factor,
		[KIND_CPUS] = read_cpus,         [KIND_NODES] = read_nodes,
		[KIND_WEIGHTS] = read_weights,   [KIND_NODE_WEIGHTS] = read_node_weights,
		[KIND_TIERS] = read_tiers,       [KIND_GUARD] = read_guard,
		[KIND_PATTERN] = read_pattern,   [KIND_ANNOTATIONS] = read_annotations,
		[KIND_UID] = read_uid,           [KIND_TEMPLATE] = read_template,
		[KIND_CLASS_NAME] = read_string, /* resolved when every file has been read */
	};

	return readers[key->kind](p, key, value, base, err);
}
