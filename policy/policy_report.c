/* What is said about a place in a policy file. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "policy_read.h"

#define SHOWN_MAX 64 /* characters of a text from the file that a message repeats */

int policy_no_memory(struct error *err)
{
	return error_set(err, ENOMEM, "out of memory while reading the policy");
}

const char *policy_file_of(const struct policy *p, const struct json *at)
{
	while (at->parent)
		at = at->parent;
	for (size_t i = 0; i < p->n_documents; i++)
		if (p->documents[i].root == at)
			return p->documents[i].file;
	return "policy";
}

/* malloc'd "FILE:LINE:COLUMN: PATH: " */
static char *place_of(const struct policy *p, const struct json *at, bool of_key)
{
	cleanup_arena struct arena scratch = { 0 };
	const char *path = json_path(&scratch, at);
	char *text;

	if (asprintf(&text, "%s:%u:%u: %s%s", policy_file_of(p, at), of_key ? at->key_line : at->line,
		     of_key ? at->key_column : at->column, path ? path : "", path && *path ? ": " : "") < 0)
		return NULL;
	return text;
}

static int printf_like(5, 0) reject(const struct policy *p, const struct json *at, bool of_key, struct error *err,
				    const char *fmt, va_list args)
{
	cleanup_free char *place = place_of(p, at, of_key), *text = NULL;

	if (vasprintf(&text, fmt, args) < 0)
		text = NULL;
	if (!place || !text)
		return policy_no_memory(err);
	return error_set(err, EINVAL, "%s%s", place, text);
}

int policy_reject(const struct policy *p, const struct json *at, struct error *err, const char *fmt, ...)
{
	va_list args;
	int r;

	va_start(args, fmt);
	r = reject(p, at, false, err, fmt, args);
	va_end(args);
	return r;
}

int policy_reject_key(const struct policy *p, const struct json *at, struct error *err, const char *fmt, ...)
{
	va_list args;
	int r;

	va_start(args, fmt);
	r = reject(p, at, true, err, fmt, args);
	va_end(args);
	return r;
}

/* malloc'd: what stands there, in a few words. */
static char *describe(const struct json *v)
{
	cleanup_free char *shown = NULL;
	char *text = NULL;
	int r = 0;

	switch (v->type) {
	case JSON_STRING:
		shown = printable(v->string, v->len, SHOWN_MAX);
		r = shown ? asprintf(&text, "\"%s\"", shown) : -1;
		break;
	case JSON_INT:
		r = asprintf(&text, "%lld", (long long) v->integer);
		break;
	case JSON_REAL:
		r = asprintf(&text, "%g", v->real);
		break;
	case JSON_BOOL:
		r = asprintf(&text, "%s", v->boolean ? "true" : "false");
		break;
	case JSON_NULL:
	case JSON_ARRAY:
	case JSON_OBJECT:
		r = asprintf(&text, "%s",
			     v->type == JSON_NULL || v->len ? json_type_name(v->type)
			     : v->type == JSON_ARRAY        ? "an empty array"
							    : "an empty object");
		break;
	}
	return r < 0 ? NULL : text;
}

int policy_unexpected(struct policy *p, const struct json *found, const char *expected, struct error *err)
{
	cleanup_free char *what = describe(found);

	if (!what || !expected)
		return policy_no_memory(err);
	return policy_reject(p, found, err, "found %s, expected %s", what, expected);
}

int policy_unknown_name(struct policy *p, const struct json *found, const struct name_table *names,
			const char *expected, struct error *err)
{
	cleanup_free char *what = describe(found);
	struct nearest near = { .word = found->string };

	if (!what || !expected)
		return policy_no_memory(err);
	for (size_t i = 0; i < names->n; i++)
		nearest_try(&near, names->names[i]);
	if (!near.best)
		return policy_unexpected(p, found, expected, err);
	return policy_reject(p, found, err, "found %s, expected %s (did you mean \"%s\"?)", what, expected, near.best);
}

int policy_unknown_key(struct policy *p, const struct json *member, const char *const *names, size_t n,
		       struct error *err)
{
	cleanup_free char *shown = printable(member->key, strlen(member->key), SHOWN_MAX);
	struct nearest near = { .word = member->key };
	const char *list = "";

	for (size_t i = 0; i < n && list; i++) {
		list = arena_printf(&p->arena, "%s%s%s", list, *list ? ", " : "", names[i]);
		nearest_try(&near, names[i]);
	}
	if (!shown || !list)
		return policy_no_memory(err);
	return policy_reject_key(p, member, err, "unknown key \"%s\"; known here: %s%s%s%s", shown, list,
				 near.best ? " (did you mean \"" : "", near.best ? near.best : "",
				 near.best ? "\"?)" : "");
}

int policy_warn(struct policy *p, const struct json *at, struct error *err, const char *fmt, ...)
{
	cleanup_free char *place = place_of(p, at, false), *text = NULL;
	char **grown, *line;
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) < 0)
		text = NULL;
	va_end(args);
	line = place && text ? arena_printf(&p->arena, "%s%s", place, text) : NULL;
	if (!line)
		return policy_no_memory(err);
	/* Room doubles when the number of warnings is a power of two. */
	if (!(p->n_warnings & (p->n_warnings - 1))) {
		grown = arena_new(&p->arena, char *, p->n_warnings ? 2 * p->n_warnings : 1);
		if (!grown)
			return policy_no_memory(err);
		if (p->n_warnings)
			memcpy(grown, p->warnings, p->n_warnings * sizeof(*grown));
		p->warnings = grown;
	}
	p->warnings[p->n_warnings++] = line;
	return 0;
}
