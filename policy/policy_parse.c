#include <errno.h>
#include <stdio.h>

#include "policy_read.h"

#define KEY_SHOWN_MAX 64
#define CLASSES_MAX 256
#define RULES_MAX 4096

static const struct json_limits limits = { .max_bytes = POLICY_MAX, .max_values = 200000, .max_depth = 32 };

static int unknown_key(struct policy *p, enum section section, const struct json *member, struct error *err)
{
	const char **names = arena_new(&p->arena, const char *, n_policy_keys);
	size_t n = 0;

	if (!names)
		return policy_no_memory(err);
	for (size_t i = 0; i < n_policy_keys; i++)
		if (policy_keys[i].section == section)
			names[n++] = policy_keys[i].name;
	return policy_unknown_key(p, member, names, n, err);
}

/* A key of the whole machine may stand in one file only: which of two was meant could not be told. */
static int check_once(struct policy *p, const struct json *member, struct error *err)
{
	const char *path = json_path(&p->arena, member);

	if (!path)
		return policy_no_memory(err);
	for (size_t i = 0; i + 1 < p->n_documents; i++) {
		const struct json *first = json_find(p->documents[i].root, path);

		if (first)
			return policy_reject_key(p, member, err, "is set twice; the first is at %s:%u:%u",
						 p->documents[i].file, first->key_line, first->key_column);
	}
	return 0;
}

int policy_read_section(struct policy *p, enum section section, const struct json *object, void *base,
			struct error *err)
{
	int r = 0;

	if (object->type != JSON_OBJECT)
		return policy_unexpected(p, object, "an object", err);
	for (const struct json *member = object->first; member; member = member->next) {
		const struct policy_key *key = policy_key_find(section, member->key);

		if (!key)
			return unknown_key(p, section, member, err);
		if (key->once)
			r = check_once(p, member, err);
		if (r == 0)
			r = policy_read_value(p, key, member, base, err);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < n_policy_keys; i++)
		if (policy_keys[i].section == section && policy_keys[i].required &&
		    !json_get(object, policy_keys[i].name))
			return policy_reject(p, object, err, "key \"%s\" is missing", policy_keys[i].name);
	return 0;
}

/* FNV-1a, 64 bit; a NUL between the parts keeps ("ab", "c") apart from ("a", "bc"). */
static uint64_t digest_part(uint64_t hash, const char *text, size_t len)
{
	for (size_t i = 0; i <= len; i++) {
		hash ^= i < len ? (unsigned char) text[i] : 0;
		hash *= UINT64_C(0x100000001b3);
	}
	return hash;
}

static size_t children(const struct json *root, const char *key, enum json_type type)
{
	const struct json *v = json_get(root, key);

	return v && v->type == type ? v->len : 0;
}

/* Turns every source into a document, and makes room for what they hold. */
static int parse_sources(struct policy *p, const struct policy_source *sources, size_t n,
			 struct policy_document *documents, struct error *err)
{
	uint64_t digest = UINT64_C(0xcbf29ce484222325);
	size_t n_classes = 0, n_rules = 0;

	for (size_t i = 0; i < n; i++) {
		struct policy_document *d = &documents[i];
		int r = json_parse(&p->arena, sources[i].name, sources[i].text, sources[i].len, JSON_COMMENTS, &limits,
				   &d->root, err);

		if (r < 0)
			return r;
		d->file = arena_strdup(&p->arena, sources[i].name);
		if (!d->file)
			return policy_no_memory(err);
		digest = digest_part(digest, sources[i].name, strlen(sources[i].name));
		digest = digest_part(digest, sources[i].text, sources[i].len);
		n_classes += children(d->root, "classes", JSON_OBJECT);
		n_rules += children(d->root, "rules", JSON_ARRAY);
	}
	if (n_classes > CLASSES_MAX || n_rules > RULES_MAX)
		return error_set(err, E2BIG,
				 "%s and its drop-ins: %zu classes and %zu rules; at most %d and %d are supported",
				 sources[0].name, n_classes, n_rules, CLASSES_MAX, RULES_MAX);
	snprintf(p->digest, sizeof(p->digest), "%016llx", (unsigned long long) digest);
	p->classes = arena_new(&p->arena, struct policy_class *, n_classes + 1);
	p->rules = arena_new(&p->arena, struct policy_rule, n_rules + 1);
	return p->classes && p->rules ? 0 : policy_no_memory(err);
}

static int find_class(struct policy *p, struct policy_rule *rule, struct error *err)
{
	const struct json *name = json_get(rule->where, "class");
	struct nearest near = { .word = name->string };
	cleanup_free char *shown = printable(name->string, name->len, KEY_SHOWN_MAX);
	const char *list = "";

	for (size_t i = 0; i < p->n_classes; i++)
		if (str_eq(p->classes[i]->name, name->string)) {
			rule->class = p->classes[i];
			return 0;
		}
	for (size_t i = 0; i < p->n_classes && list; i++) {
		list = arena_printf(&p->arena, "%s%s%s", list, i ? ", " : "", p->classes[i]->name);
		nearest_try(&near, p->classes[i]->name);
	}
	if (!shown || !list)
		return policy_no_memory(err);
	return policy_reject(p, name, err, "there is no class \"%s\"; defined are: %s%s%s%s", shown, list,
			     near.best ? " (did you mean \"" : "", near.best ? near.best : "", near.best ? "\"?)" : "");
}

static int finish_rules(struct policy *p, struct error *err)
{
	const struct policy_rule *catch_all = NULL;
	int r = 0;

	for (struct policy_rule *rule = p->rules; rule < p->rules + p->n_rules && r == 0; rule++) {
		r = find_class(p, rule, err);
		if (r == 0)
			r = policy_check_rule(p, rule, err);
		if (r == 0 && catch_all)
			r = policy_warn(p, rule->where, err,
					"is never reached: the rule at %s:%u:%u matches every container",
					catch_all->file, catch_all->where->line, catch_all->where->column);
		if (!catch_all && !rule->n_conditions)
			catch_all = rule;
	}
	return r;
}

static int finish(struct policy *p, struct error *err)
{
	const struct json *main_root = p->documents[0].root;
	int r = policy_check_node(p, err);

	if (r < 0)
		return r;
	if (!p->n_classes)
		return policy_reject(p, main_root, err,
				     "no class is defined; a policy needs at least one in \"classes\"");
	if (!p->n_rules)
		return policy_reject(p, main_root, err,
				     "there is no rule, so no container could start; a last rule with \"match\": {} "
				     "is for all others");
	for (size_t i = 0; i < p->n_classes && r == 0; i++)
		r = policy_check_class(p, p->classes[i], err);
	return r < 0 ? r : finish_rules(p, err);
}

int policy_parse(const struct policy_source *sources, size_t n, struct policy **ret_policy, struct error *err)
{
	cleanup_policy struct policy *p = calloc(1, sizeof(*p));
	struct policy_document *documents = p ? arena_new(&p->arena, struct policy_document, n + 1) : NULL;
	int r;

	if (!documents)
		return policy_no_memory(err);
	if (!n)
		return error_set(err, EINVAL, "no policy file was given");
	r = parse_sources(p, sources, n, documents, err);
	if (r < 0)
		return r;
	policy_key_defaults(SECTION_TOP, SECTION_MODEL, p);
	p->documents = documents;
	for (size_t i = 0; i < n; i++) {
		p->n_documents = i + 1;
		r = policy_read_section(p, SECTION_TOP, documents[i].root, p, err);
		if (r < 0)
			return r;
	}
	r = finish(p, err);
	if (r < 0)
		return r;
	*ret_policy = TAKE_PTR(p);
	return 0;
}

void policy_free(struct policy *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_rules; i++)
		for (size_t k = 0; k < p->rules[i].n_conditions; k++)
			condition_done(&p->rules[i].conditions[k]);
	arena_done(&p->arena);
	free(p);
}

void policy_freep(struct policy **p)
{
	policy_free(*p);
	*p = NULL;
}

/* One line: path, what is allowed, default, meaning. */
static char *help_line(struct arena *a, const struct policy_key *key)
{
	const char *expects = policy_key_expects(a, key);
	const char *def = key->def && !*key->def ? "\"\"" : key->def;

	if (!expects)
		return NULL;
	return arena_printf(a, "%s%s: %s%s%s%s. %s\n", section_prefix(key->section), key->name, expects,
			    key->required ? "; required" : "", def ? "; default " : "", def ? def : "", key->help);
}

char *policy_help(void)
{
	cleanup_arena struct arena scratch = { 0 };
	cleanup_free char *text = calloc(1, 1);
	size_t len = 0;

	for (size_t i = 0; i < n_policy_keys; i++) {
		const char *line = help_line(&scratch, &policy_keys[i]);
		size_t n = line ? strlen(line) : 0;
		char *grown = line && text ? realloc(text, len + n + 1) : NULL;

		if (!grown)
			return NULL;
		text = grown;
		memcpy(text + len, line, n + 1);
		len += n;
	}
	return TAKE_PTR(text);
}
