#include "error.h"

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

/* Length of the UTF-8 sequence at s, or 0 when it is none (also for overlong forms, surrogates and C1 controls). */
static size_t utf8_sequence(const unsigned char *s, size_t left)
{
	static const struct {
		unsigned char lead_mask, lead;
		size_t len;
		uint32_t low;
	} forms[] = { { 0xe0, 0xc0, 2, 0xa0 }, { 0xf0, 0xe0, 3, 0x800 }, { 0xf8, 0xf0, 4, 0x10000 } };

	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		uint32_t code = s[0] & (unsigned char) ~forms[i].lead_mask;

		if ((s[0] & forms[i].lead_mask) != forms[i].lead || forms[i].len > left)
			continue;
		for (size_t k = 1; k < forms[i].len; k++) {
			if ((s[k] & 0xc0) != 0x80)
				return 0;
			code = code << 6 | (s[k] & 0x3f);
		}
		if (code < forms[i].low || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
			return 0;
		/* Bidirectional overrides and line separators rewrite what a terminal or a log viewer shows. */
		if ((code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0x2028 ||
		    code == 0x2029)
			return 0;
		return forms[i].len;
	}
	return 0;
}

char *printable(const char *text, size_t len, size_t max)
{
	static const char hex[] = "0123456789abcdef";
	const unsigned char *s = (const unsigned char *) text;
	char *out = malloc(size_min(len, max) * 4 + sizeof("..."));
	size_t at = 0, shown = 0, i = 0;

	if (!out)
		return NULL;
	while (i < len && shown < max) {
		size_t n = s[i] >= 0x20 && s[i] < 0x7f ? 1 : s[i] >= 0xc2 ? utf8_sequence(s + i, len - i) : 0;

		if (n) {
			memcpy(out + at, s + i, n);
			at += n;
			i += n;
		} else {
			out[at++] = '\\';
			out[at++] = 'x';
			out[at++] = hex[s[i] >> 4];
			out[at++] = hex[s[i] & 15];
			i++;
		}
		shown++;
	}
	memcpy(out + at, i < len ? "..." : "", i < len ? 4 : 1);
	return out;
}
