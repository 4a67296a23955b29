/*
 * JSON as a tree of values that remember where they stood, and a writer. The only user of yajl is policy/json.c.
 *
 * Every document that reaches cotenant (policy, OCI state and config, ledger, topology cache) passes through here, so
 * the limits live here too: size, nesting, number of values. UTF-8 is checked. Nothing recurses on the input.
 */
#pragma once

#include "arena.h"
#include "error.h"

enum json_type { JSON_NULL, JSON_BOOL, JSON_INT, JSON_REAL, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
	enum json_type type;
	unsigned line, column;       /* 1-based place of the value's first byte (columns count bytes) */
	unsigned key_line, key_column; /* place of the member's key, when it has one */
	const char *key;             /* member name, NULL for array elements and the root */
	const struct json *parent;   /* NULL for the root */
	const struct json *next;     /* next member or element */
	size_t len;                  /* string: bytes; array, object: number of children */
	union {
		bool boolean;
		int64_t integer;
		double real;
		const char *string;       /* NUL-terminated; an embedded NUL (\u0000) is an error at parse time */
		const struct json *first; /* array, object */
	};
};

enum json_flags {
	JSON_COMMENTS = 1 << 0, /* allow slash-slash and slash-star comments */
	JSON_BIG_INTEGERS = 1 << 1, /* integers beyond int64 become JSON_REAL: rlimits of 2^64-1 stand in OCI configs */
};

struct json_limits {
	size_t max_bytes, max_values;
	unsigned max_depth; /* nesting of arrays and objects */
};

/*
 * Parses one document. Values live in the arena. `name` (a file name or a phrase such as "container state") begins
 * every error text: "NAME:LINE:COLUMN: what was wrong". Duplicate keys, trailing text, an empty document, invalid
 * UTF-8, integers beyond int64, half surrogate pairs (-EINVAL) and anything over the limits (-E2BIG) are errors.
 */
int json_parse(struct arena *a, const char *name, const char *text, size_t len, enum json_flags flags,
	       const struct json_limits *limits, const struct json **ret_root, struct error *err) must_check;

/* The member of an object, or NULL (also when `object` is NULL or not an object). */
const struct json *json_get(const struct json *object, const char *key);
/* Follows "a.b.c" through objects. */
const struct json *json_find(const struct json *object, const char *dotted);
/* "a string", "an object", … for messages. */
const char *json_type_name(enum json_type type);
/*
 * Path in the document, "classes.web.cpu.span", "rules[2].match" or "annotations["a.b"]", in the arena. Odd keys are
 * made printable; the root is "the document". NULL when out of memory.
 */
const char *json_path(struct arena *a, const struct json *value) must_check;

/* Writer. Errors are sticky and come out of json_writer_take(). */
struct json_writer;
struct json_writer *json_writer_new(bool pretty) must_check; /* NULL when out of memory */
void json_writer_free(struct json_writer *w);
void json_writer_freep(struct json_writer **w);
#define cleanup_json_writer cleanup_with(json_writer_freep)
/* In an object every value is preceded by its key; in an array key is NULL. */
void json_open_object(struct json_writer *w, const char *key);
void json_open_array(struct json_writer *w, const char *key);
void json_close(struct json_writer *w); /* closes the innermost array or object */
void json_string(struct json_writer *w, const char *key, const char *value); /* NULL value: the member is left out */
void json_int(struct json_writer *w, const char *key, int64_t value);
/* Nine digits; infinity and what is no number make the document fail with -EINVAL. */
void json_real(struct json_writer *w, const char *key, double value);
void json_bool(struct json_writer *w, const char *key, bool value);
/* The document cannot be completed: from here on every json_writer_take() fails with this negative errno. */
void json_writer_fail(struct json_writer *w, int error);
/* malloc'd text of the whole document with a final newline. The first error of the writer, when there was one. */
int json_writer_take(struct json_writer *w, char **ret_text, size_t *ret_len) must_check;
