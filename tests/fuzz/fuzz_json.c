/* json_parse() on any bytes, with and without comments; what it accepts must have sound places and paths. */
#include "json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

/* The value after `v` in document order. */
static const struct json *following(const struct json *v)
{
	if ((v->type == JSON_ARRAY || v->type == JSON_OBJECT) && v->first)
		return v->first;
	while (v && !v->next)
		v = v->parent;
	return v ? v->next : NULL;
}

/* A string that was accepted can be written, and reads back the same. */
static void check_round_trip(struct arena *a, const char *string)
{
	static const struct json_limits limits = { .max_bytes = 8 << 20, .max_values = 1, .max_depth = 0 };
	cleanup_json_writer struct json_writer *w = json_writer_new(true);
	cleanup_free char *text = NULL;
	const struct json *again;
	size_t len;

	require(w != NULL);
	json_string(w, NULL, string);
	require(json_writer_take(w, &text, &len) == 0);
	require(json_parse(a, "again", text, len, 0, &limits, &again, NULL) == 0);
	require(again->type == JSON_STRING && str_eq(again->string, string));
}

static void check_tree(struct arena *a, const struct json *root)
{
	unsigned line = 1, column = 0, keys = 0, strings = 0;

	require(!root->parent && !root->next && !root->key);
	for (const struct json *v = root; v; v = following(v)) {
		require(v->line > line || (v->line == line && v->column > column));
		line = v->line;
		column = v->column;
		require(!v->parent || (v->key != NULL) == (v->parent->type == JSON_OBJECT));
		if (v->type == JSON_STRING) {
			require(strlen(v->string) == v->len);
			if (strings++ < 4)
				check_round_trip(a, v->string);
		}
		if (v->key && keys++ < 16) {
			require(json_get(v->parent, v->key) == v);
			require(json_path(a, v) != NULL);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct json_limits limits = { .max_bytes = 1 << 20, .max_values = 1 << 12, .max_depth = 16 };
	static const enum json_flags flags[] = { 0, JSON_COMMENTS, JSON_BIG_INTEGERS };

	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		cleanup_arena struct arena a = { 0 };
		cleanup_error struct error err = { 0 };
		const struct json *root = NULL;
		int r = json_parse(&a, "fuzz", (const char *) data, size, flags[i], &limits, &root, &err);

		require((r == 0) == (root != NULL) && (r < 0) == (err.text != NULL));
		if (r == 0)
			check_tree(&a, root);
		else
			require(str_starts(err.text, "fuzz:") && !strpbrk(err.text, "\n\r\x1b"));
	}
	return 0;
}
