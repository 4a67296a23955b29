/* Patterns of a match: exact texts, globs of which only * is special, and POSIX extended regular expressions. */
#include <errno.h>
#include <stdio.h>

#include "condition.h"

#define REGERROR_MAX 256

/* Takes the escapes out, and tells whether a * stands without one. -EINVAL for any other escape. */
static int unescape(const char *text, char *out, bool *ret_star)
{
	bool star = false;

	while (*text) {
		star = star || *text == '*';
		if (*text == '\\' && *++text != '*' && *text != '\\')
			return -EINVAL;
		*out++ = *text++;
	}
	*out = '\0';
	*ret_star = star;
	return 0;
}

int pattern_from_text(struct arena *a, const char *text, struct policy_condition *c, const char **ret_why)
{
	char *plain = arena_alloc(a, strlen(text) + 1);
	bool star = false;

	if (!plain)
		return -ENOMEM;
	if (unescape(text, plain, &star) < 0) {
		*ret_why = "a backslash may only stand before * or another backslash; for more than globs use "
			   "{\"regex\": \"...\"}";
		return -EINVAL;
	}
	c->kind = star ? PATTERN_GLOB : PATTERN_EXACT;
	c->text = star ? text : plain;
	return 0;
}

/*
 * Whether an expression matches anywhere is all that is asked, so it is tried once from the start and not, as regexec()
 * would, from every byte of the text, each of which could take states of its own.
 */
static int compile(const char *text, bool anchored, regex_t *regex)
{
	cleanup_free char *whole = NULL;

	if (asprintf(&whole, anchored ? "%s" : "^.*(%s)", text) < 0) {
		whole = NULL;
		return REG_ESPACE;
	}
	return regcomp(regex, whole, REG_EXTENDED | REG_NOSUB);
}

int pattern_from_regex(struct arena *a, const char *text, struct policy_condition *c, const char **ret_why)
{
	char message[REGERROR_MAX];
	bool anchored = false;
	regex_t *regex;
	int code, r;

	if (strlen(text) > REGEX_MAX) {
		*ret_why = arena_printf(a, "a regular expression may have %d bytes, this has %zu; make several rules "
					   "of it", REGEX_MAX, strlen(text));
		return -EINVAL;
	}
	r = regex_check(a, text, &c->size, &anchored, ret_why);
	if (r < 0)
		return r;
	regex = arena_new(a, regex_t, 1);
	if (!regex)
		return -ENOMEM;
	code = compile(text, anchored, regex);
	if (code == REG_ESPACE)
		return -ENOMEM;
	if (code) {
		regerror(code, regex, message, sizeof(message));
		*ret_why = arena_printf(a, "not a POSIX extended regular expression: %s", message);
		return -EINVAL;
	}
	c->kind = PATTERN_REGEX;
	c->text = text;
	c->regex = regex;
	return 0;
}

void condition_done(struct policy_condition *c)
{
	if (c->regex)
		regfree(c->regex);
	c->regex = NULL;
}

/* Goes back to the last * only: time is at most the product of the lengths, whatever the pattern. */
static bool glob_match(const char *glob, const char *s)
{
	const char *after_star = NULL, *resume = NULL;

	while (*s) {
		const char *literal = *glob == '\\' ? glob + 1 : glob;

		if (*glob == '*') {
			after_star = ++glob;
			resume = s;
		} else if (*literal && *literal == *s) {
			glob = literal + 1;
			s++;
		} else if (after_star) {
			glob = after_star;
			s = ++resume;
		} else {
			return false;
		}
	}
	while (*glob == '*')
		glob++;
	return !*glob;
}

int pattern_match(const struct policy_condition *c, const char *value)
{
	int code;

	if (!value)
		return 0;
	if (c->kind == PATTERN_EXACT)
		return str_eq(c->text, value);
	if (c->kind == PATTERN_GLOB)
		return glob_match(c->text, value);
	if (strlen(value) > REGEX_SUBJECT_MAX)
		return -E2BIG;
	code = regexec(c->regex, value, 0, NULL, 0);
	return code == REG_ESPACE ? -ENOMEM : code == 0;
}
