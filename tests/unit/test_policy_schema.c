/* The table of keys, the JSON Schema and the help text say the same. */
#include "../../policy/policy_keys.h"
#include "../../policy/policy_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct arena arena;
static const struct json *schema;

static int read_schema(void **state)
{
	static const struct json_limits limits = { .max_bytes = POLICY_MAX, .max_values = 10000, .max_depth = 32 };
	cleanup_free char *text = malloc(POLICY_MAX);
	cleanup_error struct error err = { 0 };
	FILE *f = fopen("policy/policy.schema.json", "r");
	size_t len;

	(void) state;
	if (!f || !text)
		return -1;
	len = fread(text, 1, POLICY_MAX, f);
	fclose(f);
	return json_parse(&arena, "policy.schema.json", text, len, 0, &limits, &schema, &err);
}

static int free_schema(void **state)
{
	(void) state;
	arena_done(&arena);
	return 0;
}

/* The schema of the objects of a section. */
static const struct json *schema_of(enum section section)
{
	static const char *const paths[] = {
		[SECTION_TOP] = "",
		[SECTION_NODE] = "properties.node",
		[SECTION_TIERS] = "properties.node.properties.tiers",
		[SECTION_MODEL] = "properties.node.properties.model",
		[SECTION_CLASS] = "properties.classes.additionalProperties",
		[SECTION_ISOLATION] = "properties.classes.additionalProperties.properties.isolation",
		[SECTION_CPU] = "properties.classes.additionalProperties.properties.cpu",
		[SECTION_MEMORY] = "properties.classes.additionalProperties.properties.memory",
		[SECTION_REBALANCE] = "properties.classes.additionalProperties.properties.rebalance",
		[SECTION_RULE] = "properties.rules.items",
		[SECTION_MATCH] = "properties.rules.items.properties.match",
		[SECTION_UID] = "properties.rules.items.properties.match.properties.uid",
	};

	return *paths[section] ? json_find(schema, paths[section]) : schema;
}

static const struct json *schema_key(const struct policy_key *key)
{
	return json_get(json_get(schema_of(key->section), "properties"), key->name);
}

/* Where the names stand in a key's schema, by kind. */
static const struct json *schema_names(const struct json *s)
{
	const struct json *choice = json_get(s, "anyOf");

	for (choice = choice ? choice->first : s; choice; choice = choice == s ? NULL : choice->next) {
		const struct json *names = json_get(choice, "enum");

		if (!names)
			names = json_find(choice, "items.enum");
		if (names)
			return names;
	}
	return NULL;
}

static void expect_names(const struct policy_key *key, const struct json *names)
{
	const struct json *name = names ? names->first : NULL;

	for (size_t i = 0; i < key->names->n; i++, name = name->next) {
		if (!name || name->type != JSON_STRING || !str_eq(name->string, key->names->names[i]))
			fail_msg("%s%s: the schema lacks \"%s\"", section_prefix(key->section), key->name,
				 key->names->names[i]);
	}
	if (name)
		fail_msg("%s%s: the schema has one name more", section_prefix(key->section), key->name);
}

/* The default as it would stand in the file, without quotes. */
static void expect_default(const struct policy_key *key, const struct json *def)
{
	const char *text = NULL;

	if (def && def->type == JSON_STRING)
		text = def->string;
	else if (def && def->type == JSON_BOOL)
		text = def->boolean ? "true" : "false";
	else if (def && def->type == JSON_INT)
		text = arena_printf(&arena, "%lld", (long long) def->integer);
	else if (def && def->type == JSON_REAL)
		text = arena_printf(&arena, "%g", def->real);
	assert_int_equal(def != NULL, key->def != NULL);
	if (text)
		assert_string_equal(text, key->def);
}

static void expect_bounds(const struct policy_key *key, const struct json *s)
{
	const struct json *min = json_get(s, "minimum"), *max = json_get(s, "maximum");

	if (key->kind != KIND_COUNT && key->kind != KIND_SHARE && key->kind != KIND_MILLI &&
	    key->kind != KIND_FACTOR)
		return;
	assert_non_null(min);
	assert_non_null(max);
	assert_int_equal(max->integer, key->max);
	if (key->kind != KIND_MILLI)
		assert_int_equal(min->integer, key->min);
}

static void test_table_in_schema(void **state)
{
	(void) state;
	for (size_t i = 0; i < n_policy_keys; i++) {
		const struct policy_key *key = &policy_keys[i];
		const struct json *s = schema_key(key), *description = json_get(s, "description");

		if (!s || !description)
			fail_msg("%s%s is not described in the schema", section_prefix(key->section), key->name);
		assert_string_equal(description->string, key->help);
		if (key->names)
			expect_names(key, schema_names(s));
		expect_default(key, json_get(s, "default"));
		expect_bounds(key, s);
	}
}

static void test_schema_in_table(void **state)
{
	(void) state;
	for (unsigned section = SECTION_TOP; section <= SECTION_UID; section++) {
		const struct json *s = schema_of((enum section) section), *keys = json_get(s, "properties");
		const struct json *extra = json_get(s, "additionalProperties"), *required = json_get(s, "required");
		size_t n_required = 0, n_keys = 0;

		assert_non_null(keys);
		for (const struct json *k = keys->first; k; k = k->next)
			if (!policy_key_find((enum section) section, k->key))
				fail_msg("%s%s is in the schema only", section_prefix((enum section) section), k->key);
		assert_true(extra && extra->type == JSON_BOOL && !extra->boolean);
		for (size_t i = 0; i < n_policy_keys; i++) {
			n_keys += policy_keys[i].section == section;
			n_required += policy_keys[i].section == section && policy_keys[i].required;
		}
		assert_int_equal(keys->len, n_keys);
		assert_int_equal(required ? required->len : 0, n_required);
		for (const struct json *r = required ? required->first : NULL; r; r = r->next)
			assert_true(policy_key_find((enum section) section, r->string)->required);
	}
}

static void test_weights_in_schema(void **state)
{
	const struct json *weight = json_find(schema, "$defs.weight");
	const struct json *tiers = json_find(schema, "$defs.weights.anyOf");
	const struct json *by_tier = json_get(tiers->first, "properties");

	(void) state;
	assert_int_equal(json_get(weight, "minimum")->integer, policy_key_find(SECTION_MEMORY, "weights")->min);
	assert_int_equal(json_get(weight, "maximum")->integer, policy_key_find(SECTION_MEMORY, "weights")->max);
	assert_int_equal(by_tier->len, TIER_COUNT);
	for (unsigned tier = 0; tier < TIER_COUNT; tier++) {
		assert_non_null(json_get(by_tier, memory_tier_name((enum memory_tier) tier)));
		assert_non_null(policy_key_find(SECTION_TIERS, memory_tier_name((enum memory_tier) tier)));
	}
	assert_int_equal(json_find(schema, "$defs.pattern.anyOf")->first->next->type, JSON_OBJECT);
	assert_int_equal(
		json_find(json_find(schema, "$defs.pattern.anyOf")->first->next, "properties.regex.maxLength")->integer,
		REGEX_MAX);
	assert_int_equal(json_find(schema_key(policy_key_find(SECTION_RULE, "tenant")), "maxLength")->integer,
			 TEMPLATE_MAX);
}

/* Every key stands in the man page as an item, with its default. */
static void test_table_in_help(void **state)
{
	cleanup_free char *help = policy_help();
	const char *line = help;

	(void) state;
	assert_non_null(help);
	for (size_t i = 0; i < n_policy_keys; i++) {
		const struct policy_key *key = &policy_keys[i];
		const char *path = arena_printf(&arena, "%s%s: ", section_prefix(key->section), key->name);
		const char *end = strchr(line, '\n'), *text = arena_strndup(&arena, line, (size_t) (end - line));

		assert_true(str_starts(text, path));
		assert_non_null(strstr(text, key->help));
		if (key->def && *key->def)
			assert_non_null(strstr(text, arena_printf(&arena, "; default %s. ", key->def)));
		for (size_t n = 0; key->names && n < key->names->n; n++)
			assert_non_null(strstr(text, key->names->names[n]));
		line = end + 1;
	}
	assert_int_equal(*line, '\0');
}

static void test_table_in_man_page(void **state)
{
	cleanup_free char *text = calloc(1, POLICY_MAX);
	FILE *f = fopen("policy/cotenant-policy.5", "r");

	(void) state;
	assert_non_null(f);
	assert_true(fread(text, 1, POLICY_MAX - 1, f) > 0);
	fclose(f);
	for (size_t i = 0; i < n_policy_keys; i++) {
		const struct policy_key *key = &policy_keys[i];
		const char *item = arena_printf(&arena, "\n.It Ic %s%s\n", section_prefix(key->section), key->name);
		const char *at = strstr(text, item), *end = at ? strstr(at + 1, "\n.It ") : NULL;
		const char *entry = at ? arena_strndup(&arena, at, end ? (size_t) (end - at) : strlen(at)) : NULL;

		if (!entry)
			fail_msg("%s%s is not in the man page", section_prefix(key->section), key->name);
		for (size_t n = 0; key->names && key->kind == KIND_ENUM && n < key->names->n; n++)
			if (!strstr(entry, arena_printf(&arena, ".Cm %s", key->names->names[n])))
				fail_msg("%s%s: the man page lacks %s", section_prefix(key->section), key->name,
					 key->names->names[n]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table_in_schema),   cmocka_unit_test(test_schema_in_table),
		cmocka_unit_test(test_weights_in_schema), cmocka_unit_test(test_table_in_help),
		cmocka_unit_test(test_table_in_man_page),
	};

	return cmocka_run_group_tests(tests, read_schema, free_schema);
}
