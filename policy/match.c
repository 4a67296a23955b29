#include <errno.h>
#include <stdio.h>

#include "condition.h"
#include "policy_read.h"
#include "utf8.h"

#define ID_SHOWN_MAX 80

/* One container being matched, and where to say what is wrong with it. */
struct matching {
	const struct policy *policy;
	const struct match_facts *facts;
	struct arena *arena;
	struct error *err;
	const char *id; /* printable */
};

static const char *fact_value(const struct match_facts *facts, const struct policy_condition *c, bool trust)
{
	switch (c->fact) {
	case FACT_ANNOTATION:
		return annotation_believed(facts->annotations, facts->id, c->annotation, trust);
	case FACT_ID:
		return facts->id;
	case FACT_CGROUP:
		return facts->cgroup_path;
	case FACT_IMAGE:
		return facts->image;
	case FACT_STAGE:
		return facts->stage;
	case FACT_UID:
		break;
	}
	return NULL;
}

static int condition_holds(const struct match_facts *facts, const struct policy_condition *c, bool trust)
{
	if (c->fact == FACT_UID)
		return facts->has_host_uid && facts->host_uid >= c->min && facts->host_uid <= c->max;
	return pattern_match(c, fact_value(facts, c, trust));
}

/* 1: every condition holds. A value that cannot be judged stops the search: a later rule might be a laxer one. */
static int rule_matches(const struct matching *m, const struct policy_rule *rule)
{
	int r = 1;

	for (size_t i = 0; i < rule->n_conditions && r == 1; i++)
		r = condition_holds(m->facts, &rule->conditions[i], rule->trust);
	if (r == -E2BIG) {
		policy_reject(m->policy, json_get(rule->where, "match"), m->err,
			      "container %s: a value is longer than the %d bytes that a regular expression is tried on",
			      m->id, REGEX_SUBJECT_MAX);
		return -EINVAL;
	}
	return r < 0 ? policy_no_memory(m->err) : r;
}

/* The text that stands for a variable; NULL: the container has none. */
static const char *piece_value(const struct matching *m, const struct template_piece *piece, bool trust)
{
	const struct match_facts *facts = m->facts;
	const char *key;

	switch (piece->variable) {
	case VARIABLE_LITERAL:
		return arena_strndup(m->arena, piece->text, piece->len);
	case VARIABLE_ID:
		return facts->id;
	case VARIABLE_CGROUP:
		return facts->cgroup_path;
	case VARIABLE_IMAGE:
		return facts->image;
	case VARIABLE_UID:
		return facts->has_host_uid ? arena_printf(m->arena, "%u", facts->host_uid) : NULL;
	case VARIABLE_ANNOTATION:
		key = arena_strndup(m->arena, piece->text, piece->len);
		return key ? annotation_believed(facts->annotations, facts->id, key, trust) : NULL;
	}
	return NULL;
}

/* A literal needs no check here, the parser saw it. Everything else may come from a stranger. */
static int check_piece(const struct matching *m, const struct json *where, const struct template_piece *piece,
		       const char *value, size_t used)
{
	static const char *const names[] = {
		[VARIABLE_LITERAL] = "the text", [VARIABLE_ID] = "${id}",   [VARIABLE_CGROUP] = "${cgroup}",
		[VARIABLE_IMAGE] = "${image}",   [VARIABLE_UID] = "${uid}", [VARIABLE_ANNOTATION] = "annotation ",
	};
	const char *name = names[piece->variable];
	int key_len = piece->variable == VARIABLE_ANNOTATION ? (int) piece->len : 0;
	cleanup_free char *shown = value ? printable(value, strlen(value), SIZE_MAX / 8) : NULL;
	uint32_t hidden;

	if (!value)
		return policy_reject(
			m->policy, where, m->err,
			"container %s has no %s%.*s, so its tenant cannot be told; add a condition for it, "
			"or a rule before this one",
			m->id, name, key_len, piece->text);
	if (!shown)
		return policy_no_memory(m->err);
	if (!*value)
		return policy_reject(m->policy, where, m->err, "container %s: %s%.*s is empty", m->id, name, key_len,
				     piece->text);
	if (utf8_find_hidden(value, strlen(value), &hidden))
		return policy_reject(m->policy, where, m->err,
				     "container %s: %s%.*s holds U+%04X, which does not show, so that two tenants could "
				     "look alike", m->id, name, key_len, piece->text, hidden);
	if (!str_eq(shown, value))
		return policy_reject(m->policy, where, m->err,
				     "container %s: %s%.*s holds control characters or invalid UTF-8", m->id, name,
				     key_len, piece->text);
	if (strlen(value) > TENANT_MAX - used)
		return policy_reject(m->policy, where, m->err,
				     "container %s: with %s%.*s the tenant's name is longer than %d bytes", m->id, name,
				     key_len, piece->text, TENANT_MAX);
	return 0;
}

static int fill_tenant(const struct matching *m, const struct policy_rule *rule, const char **ret_tenant)
{
	const struct json *where = json_get(rule->where, "tenant");
	char *tenant = arena_alloc(m->arena, TENANT_MAX + 1);
	const char *at = rule->tenant, *why = NULL;
	struct template_piece piece;
	size_t used = 0;
	int r;

	if (!tenant)
		return policy_no_memory(m->err);
	while ((r = template_next(&at, &piece, &why)) > 0) {
		const char *value = piece_value(m, &piece, rule->trust);

		r = check_piece(m, where, &piece, value, used);
		if (r < 0)
			return r;
		memcpy(tenant + used, value, strlen(value));
		used += strlen(value);
	}
	if (r < 0)
		return policy_reject(m->policy, where, m->err, "%s", why);
	if (name_hides_space(tenant))
		return policy_reject(m->policy, where, m->err,
				     "container %s: the tenant \"%s\" begins or ends with a space or holds two in a row, "
				     "so that two tenants could look alike", m->id, tenant);
	*ret_tenant = tenant;
	return 0;
}

/* Appends with % and / written as in a URL, so that only the one / between two parts is a /. */
static char *escape_part(char *out, const char *part)
{
	for (; *part; part++) {
		if (*part == '%' || *part == '/') {
			memcpy(out, *part == '%' ? "%25" : "%2F", 3);
			out += 3;
		} else {
			*out++ = *part;
		}
	}
	*out = '\0';
	return out;
}

/* The pod's id is the runtime's, but a runtime may be odd too. */
static int check_pod(const struct matching *m, const char *pod)
{
	cleanup_free char *shown = printable(pod, strlen(pod), SIZE_MAX / 8);

	if (!shown)
		return policy_no_memory(m->err);
	return str_eq(shown, pod) ? 0 :
				    error_set(m->err, EINVAL,
					      "container %s: its pod's id \"%s\" holds characters that do not show",
					      m->id, shown);
}

static int name_group(const struct matching *m, const struct policy_rule *rule, const char *tenant,
		      const char **ret_group)
{
	const struct policy_class *class = rule->class;
	const char *pod = annotation_pod_id(m->facts->annotations, m->facts->id, rule->trust), *part = NULL;
	char *group, *end;
	int r;

	if (class->isolation.scope != SCOPE_TENANT)
		part = class->isolation.scope == SCOPE_POD && pod ? pod : m->facts->id;
	if (class->isolation.scope != SCOPE_TENANT && !part)
		return error_set(m->err, EINVAL, "container %s has no id, which class %s needs to tell it from others",
				 m->id, class->name);
	r = part ? check_pod(m, part) : 0;
	if (r < 0)
		return r;
	group = arena_alloc(m->arena, 3 * (strlen(tenant) + (part ? strlen(part) : 0)) + sizeof("/"));
	if (!group)
		return policy_no_memory(m->err);
	end = escape_part(group, tenant);
	if (part) {
		*end++ = '/';
		escape_part(end, part);
	}
	*ret_group = group;
	return 0;
}

static int refuse_unmatched(const struct matching *m)
{
	return error_set(m->err, ENOENT,
			 "container %s: none of the %zu rules of %s matches; add a rule for it, or a last one with "
			 "\"match\": {}",
			 m->id, m->policy->n_rules, m->policy->documents[0].file);
}

static int match_rules(const struct matching *m, struct policy_match *ret)
{
	const struct policy *p = m->policy;
	size_t i;
	int r = 0;

	for (i = 0; i < p->n_rules && r == 0; i++)
		r = rule_matches(m, &p->rules[i]);
	if (r < 0)
		return r;
	if (r == 0)
		return refuse_unmatched(m);
	ret->rule_index = i - 1;
	ret->rule = &p->rules[ret->rule_index];
	ret->class = ret->rule->class;
	r = fill_tenant(m, ret->rule, &ret->tenant);
	return r < 0 ? r : name_group(m, ret->rule, ret->tenant, &ret->group);
}

int policy_match(const struct policy *p, const struct match_facts *facts, struct arena *a,
		 struct policy_match *ret_match, struct error *err)
{
	const char *id = facts->id ? facts->id : "(no id)", *one = NULL, *other = NULL;
	cleanup_free char *shown = printable(id, strlen(id), ID_SHOWN_MAX);
	struct matching m = { .policy = p, .facts = facts, .arena = a, .err = err, .id = shown };
	struct policy_match match = { 0 };
	int r;

	if (!shown)
		return policy_no_memory(err);
	if (annotation_conflict(facts->annotations, &one, &other) < 0)
		return error_set(
			err, EINVAL,
			"container %s carries both %s, which containerd writes, and %s, which CRI-O and the kubelet "
			"write: one of them is forged; remove it from the pod's annotations",
			shown, one, other);
	r = match_rules(&m, &match);
	if (r < 0)
		return r;
	*ret_match = match;
	return 0;
}
