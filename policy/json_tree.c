/* Reading a tree of JSON values. */
#include "json.h"

#define KEY_SHOWN 80 /* bytes of an odd key in a path */

static const char *const type_names[] = {
	[JSON_NULL] = "null",
	[JSON_BOOL] = "true or false",
	[JSON_INT] = "an integer",
	[JSON_REAL] = "a real number",
	[JSON_STRING] = "a string",
	[JSON_ARRAY] = "an array",
	[JSON_OBJECT] = "an object",
};

const char *json_type_name(enum json_type type)
{
	return (size_t) type < ARRAY_LEN(type_names) ? type_names[type] : "an unknown value";
}

static const struct json *get_member(const struct json *object, const char *key, size_t len)
{
	if (!object || object->type != JSON_OBJECT)
		return NULL;
	for (const struct json *m = object->first; m; m = m->next) {
		if (strncmp(m->key, key, len) == 0 && !m->key[len])
			return m;
	}
	return NULL;
}

const struct json *json_get(const struct json *object, const char *key)
{
	return get_member(object, key, strlen(key));
}

const struct json *json_find(const struct json *object, const char *dotted)
{
	for (;;) {
		size_t n = strcspn(dotted, ".");

		object = get_member(object, dotted, n);
		if (!dotted[n] || !object)
			return object;
		dotted += n + 1;
	}
}

/* One step of a path: `.key`, `["odd.key"]` or `[3]`. */
static const char *path_step(struct arena *a, const struct json *value)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
	cleanup_free char *shown = NULL;
	size_t index = 0;

	if (!value->key) {
		for (const struct json *v = value->parent->first; v != value; v = v->next)
			index++;
		return arena_printf(a, "[%zu]", index);
	}
	if (*value->key && !value->key[strspn(value->key, plain)])
		return arena_printf(a, "%s%s", value->parent->parent ? "." : "", value->key);
	shown = printable(value->key, strlen(value->key), KEY_SHOWN);
	return shown ? arena_printf(a, "[\"%s\"]", shown) : NULL;
}

const char *json_path(struct arena *a, const struct json *value)
{
	const char *path = "";

	if (!value->parent)
		return "the document";
	for (; value->parent && path; value = value->parent) {
		const char *step = path_step(a, value);

		path = step ? arena_printf(a, "%s%s", step, path) : NULL;
	}
	return path;
}
