/* Regular expressions: what they match, and the limits of what they may ask. */
#include "policy.h"

#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define RULE(regex) "{\"match\":{\"image\":{\"regex\":\"" regex "\"}},\"tenant\":\"t\",\"class\":\"c\"}"
#define POLICY(rules) "{\"version\":1,\"classes\":{\"c\":{}},\"rules\":[" rules "]}"
#define SUBJECT_MAX 512

static int parse(const char *text, struct policy **ret, struct error *err)
{
	return policy_parse(&(struct policy_source){ "p.json", text, strlen(text) }, 1, ret, err);
}

/* The policy's only rule holds for an image. */
static int try_on(const struct policy *p, const char *value, struct error *err)
{
	const struct match_facts facts = { .id = "c1", .image = value };
	cleanup_arena struct arena a = { 0 };
	struct policy_match match;

	return policy_match(p, &facts, &a, &match, err);
}

/* In JSON, so backslashes are written twice. */
static const struct {
	const char *regex, *value;
	bool matches;
} matches[] = {
	{ "^a+$", "aaa", true },
	{ "^a+$", "aab", false },
	{ "a|b", "xbx", true },
	{ "^(pay|shop)-[0-9]{2}$", "pay-07", true },
	{ "^(pay|shop)-[0-9]{2}$", "pay-7", false },
	{ "", "", true },
	{ "^$", "", true },
	{ "^$", "a", false },
	{ "x^a", "xa", false },
	{ "(^|-)a", "b-a", true },
	{ "(^|-)a", "ba", false },
	{ "a$", "ba", true },
	{ "a$|b", "ab", true },
	{ "^a|^b", "cb", false },
	{ "b.a", "\nb\na\n", true },
	{ "\\u00e9$", "caf\u00e9", true },
	{ "[]^a[:digit:]-]{4}", "]^-7", true },
	{ "^[a-z0-9]{64}$", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", true },
};

static void test_matches(void **state)
{
	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(matches); i++) {
		cleanup_arena struct arena a = { 0 };
		cleanup_error struct error err = { 0 };
		cleanup_policy struct policy *p = NULL;

		print_message("%s on %s\n", matches[i].regex, matches[i].value);
		assert_int_equal(parse(arena_printf(&a, POLICY(RULE("%s")), matches[i].regex), &p, &err), 0);
		assert_int_equal(try_on(p, matches[i].value, &err), matches[i].matches ? 0 : -ENOENT);
	}
}

static const struct {
	const char *regex, *message;
} refused[] = {
	{ "(",
	  "not a POSIX extended regular expression: Unmatched ( or \\(" },
	{ "(a)\\\\1",
	  "at its byte 4: back-references are not allowed in a regular expression; make a rule for each text" },
	{ "((((a{1,20}){1,20}){1,20}){1,20}){1,20}",
	  "at its byte 19: a regular expression may come to 128 characters with its repeats written out; "
	  "shorten the repeats, use a glob, or make several rules of it" },
	{ "((((((((((a+)+)+)+)+)+)+)+)+)+)+",
	  "at its byte 9: parentheses may be nested 8 deep; make several rules of the expression" },
	{ "a+++++++++++++",
	  "at its byte 9: a regular expression may come to 128 characters with its repeats written out; "
	  "shorten the repeats, use a glob, or make several rules of it" },
	{ "(a|b){86}",
	  "at its byte 10: a regular expression may come to 128 characters with its repeats written out; "
	  "shorten the repeats, use a glob, or make several rules of it" },
	{ "a{99999999999999999999}",
	  "at its byte 24: a regular expression may come to 128 characters with its repeats written out; "
	  "shorten the repeats, use a glob, or make several rules of it" },
	{ "(b|(a*|b))+",
	  "at its byte 11: what can match the empty text must not be repeated; leave out one of the repeats" },
	{ "(a|^){2}",
	  "at its byte 6: ^ and $ must not be repeated; put them outside of the repeat" },
	{ "^^^^^^^^^",
	  "at its byte 9: a regular expression may have 8 anchors; put what is common to its alternatives "
	  "outside, as in ^(a|b)$" },
	{ "a\\\\b",
	  "at its byte 2: the anchors of a regular expression are ^ and $; for words write what stands "
	  "between them, as in (^|-)a(-|$)" },
	{ "a)(b",
	  "at its byte 2: a ) closes nothing; write \\) for the character" },
	{ "a{2",
	  "at its byte 2: a repeat is written {3}, {3,} or {3,5}; write \\{ for the character" },
	{ "a{3,2}",
	  "at its byte 2: a repeat is written {3}, {3,} or {3,5}; write \\{ for the character" },
	{ "a[[:alpha",
	  "at its byte 2: a [ is not closed; write \\[ for the character" },
	{ "[\\u00e9]",
	  "at its byte 1: brackets hold ASCII characters only; write the others as (x|y)" },
	{ "a\\\\",
	  "at its byte 2: a backslash ends the expression; write \\\\ for the character" },
	{ "*a",
	  "not a POSIX extended regular expression: Invalid preceding regular expression" },
};

static void test_refused(void **state)
{
	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		cleanup_arena struct arena a = { 0 };
		cleanup_error struct error err = { 0 };
		cleanup_policy struct policy *p = NULL;
		const char *want = arena_printf(&a, "p.json:1:69: rules[0].match.image.regex: %s", refused[i].message);

		assert_int_equal(parse(arena_printf(&a, POLICY(RULE("%s")), refused[i].regex), &p, &err), -EINVAL);
		assert_string_equal(error_text(&err), want);
	}
}

static void test_lengths(void **state)
{
	cleanup_arena struct arena a = { 0 };
	char *value = arena_alloc(&a, SUBJECT_MAX + 2), *expression = arena_alloc(&a, 1026);
	cleanup_error struct error err = { 0 };
	cleanup_policy struct policy *p = NULL;

	(void) state;
	assert_int_equal(parse(POLICY(RULE("^b")), &p, &err), 0);
	memset(value, 'a', SUBJECT_MAX);
	assert_int_equal(try_on(p, value, &err), -ENOENT);
	value[SUBJECT_MAX] = 'a';
	assert_int_equal(try_on(p, value, &err), -EINVAL);
	assert_non_null(strstr(error_text(&err), "rules[0].match: container c1: a value is longer than the 512 bytes that "
						 "a regular expression is tried on"));
	policy_free(TAKE_PTR(p));

	memset(expression, 'a', 1025);
	assert_int_equal(parse(arena_printf(&a, POLICY(RULE("%s")), expression), &p, &err), -EINVAL);
	assert_non_null(strstr(error_text(&err), "a regular expression may have 1024 bytes, this has 1025"));
}

/* Seventeen that are right one by one. */
static void test_all_together(void **state)
{
#define BIG RULE("(a|b){31}")
#define FOUR BIG "," BIG "," BIG "," BIG
	cleanup_error struct error err = { 0 };
	cleanup_policy struct policy *p = NULL;

	(void) state;
	assert_int_equal(parse(POLICY(FOUR "," FOUR "," FOUR "," FOUR), &p, &err), 0);
	policy_free(TAKE_PTR(p));
	assert_int_equal(parse(POLICY(FOUR "," FOUR "," FOUR "," FOUR "," BIG), &p, &err), -EINVAL);
	assert_non_null(strstr(error_text(&err), "rules[16].match.image.regex: all regular expressions together may come to "
						 "2048 characters with their repeats written out, and with this one they "
						 "are 2108; use globs where they will do"));
}

/* The value is the container's: whatever it holds, it must not cost more than a container start may. */
static void test_hostile_value(void **state)
{
	static const char *const expressions[] = {
		"(a|b)*a(a|b){28}c",
		"(a|b)*a[ab]{118}c",
		"(^|a)(^|a)(^|a)(^|a)(^|a)(^|a)(^|a)(a|b)*a(a|b){17}c",
	};
	enum { SOME_MB = 8 << 20 };
	char value[SUBJECT_MAX + 1] = "";
	uint32_t random = 1;

	(void) state;
	for (size_t i = 0; i < SUBJECT_MAX; i++) {
		random = random * 1103515245 + 12345;
		value[i] = random >> 16 & 1 ? 'a' : 'b';
	}
	for (size_t i = 0; i < ARRAY_LEN(expressions); i++) {
		cleanup_arena struct arena a = { 0 };
		cleanup_error struct error err = { 0 };
		cleanup_policy struct policy *p = NULL;
		size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;

		assert_int_equal(parse(arena_printf(&a, POLICY(RULE("%s")), expressions[i]), &p, &err), 0);
		assert_int_equal(try_on(p, value, &err), -ENOENT);
		assert_true(mallinfo2().uordblks + mallinfo2().hblkhd - before < SOME_MB);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matches),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_all_together),
		cmocka_unit_test(test_hostile_value),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
