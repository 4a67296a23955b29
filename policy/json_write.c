/*
 * The JSON writer. Not yajl's generator: that one looks at its depth after using it (yajl_gen.c, INCREMENT_DEPTH),
 * takes surrogates and overlong forms for UTF-8 (yajl_encode.c), and crashes when malloc fails (yajl_buf.c).
 */
#include "json.h"
#include "utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define DEPTH_MAX 64

struct json_writer {
	int error; /* the first, a negative errno */
	bool pretty;
	unsigned depth;
	struct {
		bool is_array, filled;
	} open[DEPTH_MAX]; /* containers, outermost first */
	char *text;
	size_t len, size;
};

struct json_writer *json_writer_new(bool pretty)
{
	struct json_writer *w = calloc(1, sizeof(*w));

	if (w)
		w->pretty = pretty;
	return w;
}

void json_writer_free(struct json_writer *w)
{
	if (w)
		free(w->text);
	free(w);
}

void json_writer_freep(struct json_writer **w)
{
	json_writer_free(*w);
	*w = NULL;
}

static void put(struct json_writer *w, const char *text, size_t len)
{
	if (w->error < 0)
		return;
	if (len >= w->size - w->len) {
		size_t size = (w->size + len) * 2 + 512;
		char *grown = realloc(w->text, size);

		if (!grown) {
			w->error = -ENOMEM;
			return;
		}
		w->text = grown;
		w->size = size;
	}
	memcpy(w->text + w->len, text, len);
	w->len += len;
	w->text[w->len] = '\0';
}

static void put_text(struct json_writer *w, const char *text)
{
	put(w, text, strlen(text));
}

static void put_quoted(struct json_writer *w, const char *text)
{
	static const char special[] = "\"\\"
				      "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
				      "\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f";
	size_t len = strlen(text);

	if (w->error == 0 && utf8_valid(text, len) < len)
		w->error = -EINVAL;
	put_text(w, "\"");
	for (;;) {
		size_t run = strcspn(text, special);
		char escape[sizeof("\\u0000")];

		put(w, text, run);
		text += run;
		if (!*text)
			break;
		if (*text == '"' || *text == '\\')
			snprintf(escape, sizeof(escape), "\\%c", *text);
		else
			snprintf(escape, sizeof(escape), "\\u%04x", (unsigned char) *text);
		put_text(w, escape);
		text++;
	}
	put_text(w, "\"");
}

static void break_line(struct json_writer *w)
{
	if (!w->pretty)
		return;
	put_text(w, "\n");
	for (unsigned i = 0; i < w->depth; i++)
		put_text(w, "  ");
}

/* Comma, line break and key: all that comes before a value. */
static void begin_value(struct json_writer *w, const char *key)
{
	bool in_object = w->depth && !w->open[w->depth - 1].is_array;

	if (w->error == 0 && (in_object != (key != NULL) || (!w->depth && w->len)))
		w->error = -EINVAL;
	if (w->depth) {
		if (w->open[w->depth - 1].filled)
			put_text(w, ",");
		w->open[w->depth - 1].filled = true;
		break_line(w);
	}
	if (key) {
		put_quoted(w, key);
		put_text(w, w->pretty ? ": " : ":");
	}
}

static void open_container(struct json_writer *w, const char *key, bool is_array)
{
	begin_value(w, key);
	if (w->error == 0 && w->depth == DEPTH_MAX)
		w->error = -E2BIG;
	if (w->error < 0)
		return;
	w->open[w->depth].is_array = is_array;
	w->open[w->depth].filled = false;
	w->depth++;
	put_text(w, is_array ? "[" : "{");
}

void json_open_object(struct json_writer *w, const char *key)
{
	open_container(w, key, false);
}

void json_open_array(struct json_writer *w, const char *key)
{
	open_container(w, key, true);
}

void json_close(struct json_writer *w)
{
	if (w->error == 0 && !w->depth)
		w->error = -EINVAL;
	if (w->error < 0)
		return;
	w->depth--;
	if (w->open[w->depth].filled)
		break_line(w);
	put_text(w, w->open[w->depth].is_array ? "]" : "}");
}

void json_string(struct json_writer *w, const char *key, const char *value)
{
	if (!value)
		return;
	begin_value(w, key);
	put_quoted(w, value);
}

void json_int(struct json_writer *w, const char *key, int64_t value)
{
	char digits[sizeof("-9223372036854775808")];

	begin_value(w, key);
	snprintf(digits, sizeof(digits), "%" PRId64, value);
	put_text(w, digits);
}

void json_real(struct json_writer *w, const char *key, double value)
{
	char digits[sizeof("-1.23456789e+308")];

	begin_value(w, key);
	if (!(value - value <= 0))
		json_writer_fail(w, -EINVAL);
	snprintf(digits, sizeof(digits), "%.9g", value); /* no program sets LC_NUMERIC: it is a point */
	put_text(w, digits);
}

void json_bool(struct json_writer *w, const char *key, bool value)
{
	begin_value(w, key);
	put_text(w, value ? "true" : "false");
}

void json_writer_fail(struct json_writer *w, int error)
{
	if (w->error == 0)
		w->error = error;
}

int json_writer_take(struct json_writer *w, char **ret_text, size_t *ret_len)
{
	if (w->error == 0 && (w->depth || !w->len))
		w->error = -EINVAL;
	put_text(w, "\n");
	if (w->error < 0)
		return w->error;
	*ret_len = w->len;
	*ret_text = TAKE_PTR(w->text);
	w->error = -EINVAL; /* it is given away */
	return 0;
}
