#include "json.h"
#include "utf8.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <yajl/yajl_parse.h>

/* Bytes of a hostile text that a message shows. */
#define SHOWN 40

struct spot {
	unsigned line, column;
};

/* A value while its document is being read. */
struct node {
	struct json value;
	struct node *up;   /* the container around it, while this container is open */
	struct json *last; /* its last child so far */
};

struct parser {
	yajl_handle yajl;
	struct arena *arena;
	struct error *err;
	const struct json_limits *limits;
	const char *name, *text;
	size_t len;
	enum json_flags flags;
	bool finishing; /* yajl has seen all of the text, and its offsets no longer refer to it */
	int code;       /* what a callback stopped with */

	size_t end;     /* of the last token that a callback saw */
	size_t counted; /* lines are counted up to here, so that no byte is looked at twice */
	size_t line_start;
	unsigned line;

	struct node *root, *top; /* top: innermost open container */
	unsigned depth;
	size_t values;
	const char *key; /* a key that waits for its value */
	struct spot key_spot;

	const struct json **sorted; /* scratch for check_keys() */
	size_t sorted_room;
};

/* Line and column of an offset. Offsets never decrease from call to call. */
static struct spot spot_of(struct parser *p, size_t offset)
{
	const char *newline;

	while ((newline = memchr(p->text + p->counted, '\n', offset - p->counted))) {
		p->counted = p->line_start = (size_t) (newline - p->text) + 1;
		p->line++;
	}
	p->counted = offset;
	return (struct spot){ p->line, (unsigned) (offset - p->line_start) + 1 };
}

/* Returns -code. */
static int printf_like(4, 5) fail(struct parser *p, struct spot spot, int code, const char *fmt, ...)
{
	cleanup_free char *what = NULL;
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&what, fmt, args) < 0)
		what = NULL;
	va_end(args);
	p->code = -code;
	return error_set(p->err, code, "%s:%u:%u: %s", p->name, spot.line, spot.column, what ? what : "out of memory");
}

/* Offset of the first byte from `pos` on that is neither white space nor part of a whole comment. */
static size_t skip_blank(const struct parser *p, size_t pos)
{
	while (pos < p->len) {
		const char *at = p->text + pos, *close;
		size_t left = p->len - pos;

		if (*at == ' ' || (*at >= '\t' && *at <= '\r')) {
			pos++;
		} else if (!(p->flags & JSON_COMMENTS) || left < 2 || at[0] != '/') {
			break;
		} else if (at[1] == '/') {
			close = memchr(at, '\n', left);
			pos = close ? (size_t) (close - p->text) + 1 : p->len;
		} else if (at[1] == '*' && (close = memmem(at + 2, left - 2, "*/", 2))) {
			pos = (size_t) (close - p->text) + 2;
		} else {
			break;
		}
	}
	return pos;
}

/* Where the token after the last one begins, and whether the separator that is due there was passed. */
static size_t next_token(const struct parser *p, bool *ret_separated)
{
	char separator = p->key ? ':' : p->top && p->top->last ? ',' : '\0';
	size_t pos = skip_blank(p, p->end);

	*ret_separated = separator && pos < p->len && p->text[pos] == separator;
	return *ret_separated ? skip_blank(p, pos + 1) : pos;
}

/* For callbacks: moves on to the token that yajl reports, and returns where it begins. */
static size_t take_token(struct parser *p)
{
	bool separated;
	size_t start = next_token(p, &separated);

	p->end = p->finishing ? p->len : yajl_get_bytes_consumed(p->yajl);
	return start;
}

static struct node *add_value(struct parser *p, enum json_type type, size_t start)
{
	struct spot spot = spot_of(p, start);
	struct node *node;

	if (p->values >= p->limits->max_values) {
		(void) fail(p, spot, E2BIG, "more than %zu values", p->limits->max_values);
		return NULL;
	}
	node = arena_new(p->arena, struct node, 1);
	if (!node) {
		(void) fail(p, spot, ENOMEM, "out of memory");
		return NULL;
	}
	p->values++;
	node->value.type = type;
	node->value.line = spot.line;
	node->value.column = spot.column;
	node->value.key = p->key;
	node->value.key_line = p->key_spot.line;
	node->value.key_column = p->key_spot.column;
	p->key = NULL;
	p->key_spot = (struct spot){ 0 };
	if (!p->top) {
		p->root = node;
		return node;
	}
	node->value.parent = &p->top->value;
	if (p->top->last)
		p->top->last->next = &node->value;
	else
		p->top->value.first = &node->value;
	p->top->last = &node->value;
	p->top->value.len++;
	return node;
}

static int on_null(void *ctx)
{
	struct parser *p = ctx;

	return add_value(p, JSON_NULL, take_token(p)) != NULL;
}

static int on_bool(void *ctx, int value)
{
	struct parser *p = ctx;
	struct node *node = add_value(p, JSON_BOOL, take_token(p));

	if (node)
		node->value.boolean = value;
	return node != NULL;
}

/* False when the text is no integer or does not fit. */
static bool parse_integer(const char *text, size_t len, int64_t *ret)
{
	bool negative = len && text[0] == '-';
	int64_t value = 0;

	for (size_t i = negative; i < len; i++) {
		int digit = text[i] - '0';

		if (digit < 0 || digit > 9 || __builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, negative ? -digit : digit, &value))
			return false;
	}
	*ret = value;
	return true;
}

static int on_number(void *ctx, const char *text, size_t len)
{
	struct parser *p = ctx;
	size_t start = take_token(p);
	struct node *node = add_value(p, JSON_INT, start);
	cleanup_free char *shown = NULL;
	char *copy, *end;

	if (!node || parse_integer(text, len, &node->value.integer))
		return node != NULL;
	if (p->flags & JSON_BIG_INTEGERS || memchr(text, '.', len) || memchr(text, 'e', len) ||
	    memchr(text, 'E', len)) {
		copy = arena_strndup(p->arena, text, len);
		if (!copy) {
			(void) fail(p, spot_of(p, start), ENOMEM, "out of memory");
			return 0;
		}
		node->value.type = JSON_REAL;
		node->value.real = strtod(copy, &end);
		if (!*end && isfinite(node->value.real))
			return 1;
	}
	shown = printable(text, len, SHOWN);
	(void) fail(p, spot_of(p, start), EINVAL, "number %s does not fit", shown ? shown : "");
	return 0;
}

/* The \u escape at s, or -1. yajl has checked the digits. */
static int escaped_unit(const char *s, size_t left)
{
	int unit = 0;

	if (left < 6 || s[0] != '\\' || s[1] != 'u')
		return -1;
	for (size_t i = 2; i < 6; i++)
		unit = unit << 4 | (s[i] <= '9' ? s[i] - '0' : (s[i] | 0x20) - 'a' + 10);
	return unit;
}

/*
 * yajl 2.1 decodes a lone surrogate to "?" and may swallow what follows it (yajl_encode.c, yajl_string_decode), so that
 * two different texts would become the same tenant name. Returns whether the raw text of a string is free of them.
 */
static bool surrogates_paired(const char *raw, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		const char *escape = memchr(raw + i, '\\', len - i);
		int unit;

		if (!escape)
			break;
		i = (size_t) (escape - raw);
		unit = escaped_unit(escape, len - i);
		if (unit >= 0xd800 && unit <= 0xdbff) {
			int low = escaped_unit(escape + 6, len - i - 6);

			if (low < 0xdc00 || low > 0xdfff)
				return false;
			i += 11;
		} else if (unit >= 0xdc00 && unit <= 0xdfff) {
			return false;
		} else {
			i++; /* past the escaped character, which may be a backslash */
		}
	}
	return true;
}

/* A copy of a decoded string, which must be one that C can hold. */
static const char *copy_string(struct parser *p, size_t start, const unsigned char *text, size_t len)
{
	const char *copy;

	if (memchr(text, '\0', len)) {
		(void) fail(p, spot_of(p, start), EINVAL, "\\u0000 is not allowed in a string");
		return NULL;
	}
	if (!surrogates_paired(p->text + start + 1, p->end - start - 2)) {
		(void) fail(p, spot_of(p, start), EINVAL, "half of a surrogate pair (\\ud800 to \\udfff) in a string");
		return NULL;
	}
	copy = arena_strndup(p->arena, (const char *) text, len);
	if (!copy)
		(void) fail(p, spot_of(p, start), ENOMEM, "out of memory");
	return copy;
}

static int on_string(void *ctx, const unsigned char *text, size_t len)
{
	struct parser *p = ctx;
	size_t start = take_token(p);
	const char *copy = copy_string(p, start, text, len);
	struct node *node = copy ? add_value(p, JSON_STRING, start) : NULL;

	if (!node)
		return 0;
	node->value.string = copy;
	node->value.len = len;
	return 1;
}

static int on_key(void *ctx, const unsigned char *text, size_t len)
{
	struct parser *p = ctx;
	size_t start = take_token(p);

	p->key = copy_string(p, start, text, len);
	p->key_spot = spot_of(p, start);
	return p->key != NULL;
}

static int open_container(struct parser *p, enum json_type type)
{
	size_t start = take_token(p);
	struct node *node;

	if (p->depth >= p->limits->max_depth) {
		(void) fail(p, spot_of(p, start), E2BIG, "nested deeper than %u arrays and objects",
			    p->limits->max_depth);
		return 0;
	}
	node = add_value(p, type, start);
	if (!node)
		return 0;
	node->up = p->top;
	p->top = node;
	p->depth++;
	return 1;
}

static int close_container(struct parser *p)
{
	(void) take_token(p);
	p->top = p->top->up;
	p->depth--;
	return 1;
}

static int by_key(const void *a, const void *b)
{
	const struct json *x = *(const struct json *const *) a, *y = *(const struct json *const *) b;
	int order = strcmp(x->key, y->key);

	if (!order)
		order = (x->key_line > y->key_line) - (x->key_line < y->key_line);
	return order ? order : (x->key_column > y->key_column) - (x->key_column < y->key_column);
}

/* Fails when a key stands twice in the object. Sorts, because a hostile object may have very many members. */
static int check_keys(struct parser *p, const struct json *object)
{
	size_t n = 0;

	if (object->len > p->sorted_room) {
		const struct json **grown = realloc(p->sorted, object->len * 2 * sizeof(*grown));

		if (!grown)
			return fail(p, (struct spot){ object->line, object->column }, ENOMEM, "out of memory");
		p->sorted = grown;
		p->sorted_room = object->len * 2;
	}
	if (object->len < 2)
		return 0;
	for (const struct json *m = object->first; m; m = m->next)
		p->sorted[n++] = m;
	qsort(p->sorted, n, sizeof(*p->sorted), by_key);
	for (size_t i = 1; i < n; i++) {
		const struct json *first = p->sorted[i - 1], *again = p->sorted[i];
		cleanup_free char *shown = NULL;

		if (!str_eq(first->key, again->key))
			continue;
		shown = printable(again->key, strlen(again->key), SHOWN);
		return fail(p, (struct spot){ again->key_line, again->key_column }, EINVAL,
			    "key \"%s\" again: it stands at %u:%u already", shown ? shown : "", first->key_line,
			    first->key_column);
	}
	return 0;
}

static int on_open_object(void *ctx)
{
	return open_container(ctx, JSON_OBJECT);
}

static int on_close_object(void *ctx)
{
	struct parser *p = ctx;

	return check_keys(p, &p->top->value) == 0 && close_container(p);
}

static int on_open_array(void *ctx)
{
	return open_container(ctx, JSON_ARRAY);
}

static int on_close_array(void *ctx)
{
	return close_container(ctx);
}

static const yajl_callbacks callbacks = {
	.yajl_null = on_null,
	.yajl_boolean = on_bool,
	.yajl_number = on_number,
	.yajl_string = on_string,
	.yajl_start_map = on_open_object,
	.yajl_map_key = on_key,
	.yajl_end_map = on_close_object,
	.yajl_start_array = on_open_array,
	.yajl_end_array = on_close_array,
};

/* Whether a value or a key is due. */
static bool string_due(const struct parser *p, bool separated)
{
	return separated || (p->top ? !p->key && !p->top->last : !p->root);
}

/* What is due after the last token, in words. */
static const char *expected(const struct parser *p, bool separated)
{
	if (p->key)
		return separated ? "a value" : "':' after the key";
	if (!p->top)
		return "a value";
	if (p->top->value.type == JSON_ARRAY)
		return !p->top->last ? "a value or ']'" : separated ? "a value after ','" : "',' or ']'";
	return !p->top->last ? "a key in double quotes or '}'" :
	       separated     ? "a key in double quotes after ','" :
			       "',' or '}'";
}

/* Bytes of the token at `pos`, as far as a message shows it. */
static size_t token_len(const struct parser *p, size_t pos)
{
	static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-.";
	size_t n = 0;

	if (p->text[pos] == '"') {
		const char *close = memchr(p->text + pos + 1, '"', p->len - pos - 1);

		return close ? (size_t) (close - p->text) + 1 - pos : p->len - pos;
	}
	while (pos + n < p->len && memchr(word, p->text[pos + n], sizeof(word) - 1))
		n++;
	return n ? n : utf8_sequence(p->text + pos, p->len - pos);
}

static int string_error(struct parser *p, size_t at)
{
	unsigned char c = (unsigned char) p->text[at];

	if (c < 0x20)
		return fail(p, spot_of(p, at), EINVAL, "control character \\x%02x in a string: write it as an escape",
			    c);
	return fail(p, spot_of(p, at), EINVAL,
		    "bad escape in a string: allowed are \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\u with four "
		    "hex digits");
}

/* yajl gave up on the text: says where and why, in our words. `consumed` is how far yajl came. */
static int syntax_error(struct parser *p, size_t consumed)
{
	bool separated;
	size_t pos = next_token(p, &separated);
	char first = pos < p->len ? p->text[pos] : '\0';
	cleanup_free char *shown = pos < p->len ? printable(p->text + pos, token_len(p, pos), SHOWN) : NULL;
	const char *quote;

	if (pos == p->len && !p->root)
		return fail(p, spot_of(p, pos), EINVAL, "empty: a JSON document is expected");
	if (pos == p->len && p->top)
		return fail(p, spot_of(p, pos), EINVAL, "cut short: %s expected (the %s from %u:%u is still open)",
			    expected(p, separated), p->top->value.type == JSON_ARRAY ? "array" : "object",
			    p->top->value.line, p->top->value.column);
	if (first == '/' && p->flags & JSON_COMMENTS && pos + 1 < p->len && p->text[pos + 1] == '*')
		return fail(p, spot_of(p, pos), EINVAL, "a comment that is not closed by */");
	if (first == '/')
		return fail(p, spot_of(p, pos), EINVAL, "%s",
			    p->flags & JSON_COMMENTS ? "'/' begins no comment" : "comments are not allowed here");
	if (p->root && !p->top)
		return fail(p, spot_of(p, pos), EINVAL, "text after the end of the document: %s", shown ? shown : "");
	if (p->finishing)
		return fail(p, spot_of(p, pos), EINVAL, "cut short inside %s", shown ? shown : "a token");
	/* Strings are welcome here, so it is the inside of this one that yajl stopped at. */
	if (first == '"' && string_due(p, separated) && consumed < p->len)
		return string_error(p, consumed);
	quote = first == '"' ? "" : "'";
	return fail(p, spot_of(p, pos), EINVAL, "%s expected, found %s%s%s", expected(p, separated), quote,
		    shown ? shown : "", quote);
}

static int parse_text(struct parser *p)
{
	static const char bom[] = "\xef\xbb\xbf";
	yajl_status status;
	size_t consumed, valid;

	if (p->len > p->limits->max_bytes)
		return error_set(p->err, E2BIG, "%s: %zu bytes, more than the %zu that are allowed", p->name, p->len,
				 p->limits->max_bytes);
	valid = utf8_valid(p->text, p->len);
	if (valid < p->len)
		return fail(p, spot_of(p, valid), EINVAL, "byte \\x%02x is not UTF-8", (unsigned char) p->text[valid]);
	if (p->len >= 3 && memcmp(p->text, bom, 3) == 0)
		return fail(p, spot_of(p, 0), EINVAL, "begins with a byte order mark: save the text without it");

	status = yajl_parse(p->yajl, (const unsigned char *) p->text, p->len);
	consumed = yajl_get_bytes_consumed(p->yajl);
	if (status == yajl_status_ok) {
		p->finishing = true;
		status = yajl_complete_parse(p->yajl);
	}
	if (status == yajl_status_client_canceled)
		return p->code;
	/* An open comment at the very end is no error to yajl. */
	if (status == yajl_status_ok && skip_blank(p, p->end) == p->len)
		return 0;
	return syntax_error(p, consumed);
}

int json_parse(struct arena *a, const char *name, const char *text, size_t len, enum json_flags flags,
	       const struct json_limits *limits, const struct json **ret_root, struct error *err)
{
	struct parser p = {
		.arena = a, .err = err, .limits = limits, .name = name, .text = len ? text : "", .len = len,
		.flags = flags, .line = 1,
	};
	int r;

	p.yajl = yajl_alloc(&callbacks, NULL, &p);
	if (!p.yajl)
		return error_set(err, ENOMEM, "%s: out of memory", name);
	yajl_config(p.yajl, yajl_allow_comments, flags & JSON_COMMENTS ? 1 : 0);
	/* Checked before, more strictly (yajl takes surrogates and overlong forms) and in comments too. */
	yajl_config(p.yajl, yajl_dont_validate_strings, 1);
	r = parse_text(&p);
	yajl_free(p.yajl);
	free(p.sorted);
	if (r < 0)
		return r;
	*ret_root = &p.root->value;
	return 0;
}
