/*
 * Errors that a person can act on. A fallible function returns a negative errno; where the errno alone would not
 * tell which object failed and what to do, it also fills a struct error with one line of text.
 *
 * The text names the object, the cause in words and, where there is one, the remedy. It never ends in a newline.
 */
#pragma once

#include <errno.h>

#include "base.h"

struct error {
	char *text; /* owned; NULL until set, and when memory ran out while setting it */
};

/* Frees the text. Safe on an error that was never set. */
void error_done(struct error *err);
#define cleanup_error cleanup_with(error_done)

/* The text, or a fixed phrase when there is none. Never NULL. */
const char *error_text(const struct error *err);

/* Replaces the text and returns -code (code is a positive errno). err may be NULL. */
int error_set(struct error *err, int code, const char *fmt, ...) printf_like(3, 4);

/* Puts "…: " before the text that is there; returns `code` unchanged (a negative errno). err may be NULL. */
int error_prefix(struct error *err, int code, const char *fmt, ...) printf_like(3, 4);

#ifdef __clang_analyzer__
/* The analyzer sees no bodies of other files: without these, every output behind "if (r < 0)" looks unset to it. */
#define error_set(err, code, ...) ((error_set) ((err), (code), __VA_ARGS__), -1)
#define error_prefix(err, code, ...) ((error_prefix) ((err), (code), __VA_ARGS__), (code))
#endif

static inline int error_no_memory(struct error *err)
{
	return error_set(err, ENOMEM, "no memory");
}

/*
 * Text from a container is hostile: control characters, invalid UTF-8 and what does not show would reach an operator's
 * terminal. Returns a malloc'd copy that is safe to print: such bytes appear as \xNN, and more than `max` characters
 * are cut with "...". NULL when out of memory.
 */
char *printable(const char *text, size_t len, size_t max) must_check;
