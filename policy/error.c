#include "error.h"
#include "utf8.h"

#include <stdarg.h>
#include <stdio.h>

void error_done(struct error *err)
{
	free(err->text);
	err->text = NULL;
}

const char *error_text(const struct error *err)
{
	return err->text ? err->text : "unknown error (no memory for its text)";
}

int(error_set)(struct error *err, int code, const char *fmt, ...)
{
	va_list args;
	char *text = NULL;

	if (!err)
		return -code;
	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) < 0)
		text = NULL;
	va_end(args);
	free(err->text);
	err->text = text;
	return -code;
}

int(error_prefix)(struct error *err, int code, const char *fmt, ...)
{
	va_list args;
	char *prefix = NULL, *text = NULL;

	if (!err)
		return code;
	va_start(args, fmt);
	if (vasprintf(&prefix, fmt, args) < 0)
		prefix = NULL;
	va_end(args);
	if (prefix && asprintf(&text, "%s: %s", prefix, error_text(err)) >= 0) {
		free(err->text);
		err->text = text;
	}
	free(prefix);
	return code;
}

/* Bytes at the front that a terminal or a log viewer shows as one character, itself; 0 when they are none. */
static size_t shown_as_is(const char *s, size_t left)
{
	size_t n = utf8_sequence(s, left);
	uint32_t code = n ? utf8_code(s, n) : 0;
	bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);

	return control || utf8_hidden(code) ? 0 : n;
}

char *printable(const char *text, size_t len, size_t max)
{
	static const char hex[] = "0123456789abcdef";
	char *out = malloc(size_min(len, max) * 4 + sizeof("..."));
	size_t at = 0, shown = 0, i = 0;

	if (!out)
		return NULL;
	while (i < len && shown < max) {
		size_t n = shown_as_is(text + i, len - i);

		if (n) {
			memcpy(out + at, text + i, n);
			at += n;
			i += n;
		} else {
			out[at++] = '\\';
			out[at++] = 'x';
			out[at++] = hex[(unsigned char) text[i] >> 4];
			out[at++] = hex[text[i] & 15];
			i++;
		}
		shown++;
	}
	memcpy(out + at, i < len ? "..." : "", i < len ? 4 : 1);
	return out;
}
