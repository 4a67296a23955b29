#include "json.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const struct json_limits limits = { .max_bytes = 1 << 20, .max_values = 1 << 17, .max_depth = 8 };

/* Parses a copy of exactly the right size, so that the sanitizer sees a read past its end. */
static int parse_bytes(struct arena *a, const char *text, size_t len, enum json_flags flags, const struct json **ret,
		       struct error *err)
{
	cleanup_free char *copy = malloc(len ? len : 1);

	assert_non_null(copy);
	memcpy(copy, text, len);
	return json_parse(a, "doc", copy, len, flags, &limits, ret, err);
}

static const struct json *parse_ok(struct arena *a, const char *text, enum json_flags flags)
{
	cleanup_error struct error err = { 0 };
	const struct json *root = NULL;

	if (parse_bytes(a, text, strlen(text), flags, &root, &err) < 0)
		fail_msg("%s: %s", text, error_text(&err));
	assert_null(err.text);
	return root;
}

static void expect_error(const char *text, size_t len, enum json_flags flags, int code, const char *message)
{
	cleanup_arena struct arena a = { 0 };
	cleanup_error struct error err = { 0 };
	const struct json *root = (const void *) text;

	assert_int_equal(parse_bytes(&a, text, len, flags, &root, &err), code);
	assert_string_equal(error_text(&err), message);
	assert_ptr_equal(root, text); /* untouched */
}

#define OPEN_OBJECT " (the object from 1:1 is still open)"
#define ESCAPES "allowed are \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\u with four hex digits"

static const struct {
	const char *text, *message;
} broken[] = {
	{ "", "doc:1:1: empty: a JSON document is expected" },
	{ " \n\t ", "doc:2:3: empty: a JSON document is expected" },
	{ "\xef\xbb\xbf{}", "doc:1:1: begins with a byte order mark: save the text without it" },
	/* cut short */
	{ "{", "doc:1:2: cut short: a key in double quotes or '}' expected" OPEN_OBJECT },
	{ "{\"a\"", "doc:1:5: cut short: ':' after the key expected" OPEN_OBJECT },
	{ "{\"a\":", "doc:1:6: cut short: a value expected" OPEN_OBJECT },
	{ "{\"a\":1", "doc:1:7: cut short: ',' or '}' expected" OPEN_OBJECT },
	{ "{\"a\":1,", "doc:1:8: cut short: a key in double quotes after ',' expected" OPEN_OBJECT },
	{ "{\n [1", "doc:2:2: a key in double quotes or '}' expected, found '['" },
	{ "[\n [1", "doc:2:4: cut short: ',' or ']' expected (the array from 2:2 is still open)" },
	{ "[1,", "doc:1:4: cut short: a value after ',' expected (the array from 1:1 is still open)" },
	{ "[", "doc:1:2: cut short: a value or ']' expected (the array from 1:1 is still open)" },
	{ "[\"ab", "doc:1:2: cut short inside \"ab" },
	{ "\"\\u00", "doc:1:1: cut short inside \"\\u00" },
	{ "tru", "doc:1:1: cut short inside tru" },
	{ "-", "doc:1:1: cut short inside -" },
	{ "1.", "doc:1:1: cut short inside 1." },
	/* the wrong thing */
	{ "[1,]", "doc:1:4: a value after ',' expected, found ']'" },
	{ "[,1]", "doc:1:2: a value or ']' expected, found ','" },
	{ "[1,,2]", "doc:1:4: a value after ',' expected, found ','" },
	{ "[1 2]", "doc:1:4: ',' or ']' expected, found '2'" },
	{ "[01]", "doc:1:3: ',' or ']' expected, found '1'" },
	{ "[-]", "doc:1:2: a value or ']' expected, found '-'" },
	{ "[nul]", "doc:1:2: a value or ']' expected, found 'nul'" },
	{ "[\"a\" \"b\"]", "doc:1:6: ',' or ']' expected, found \"b\"" },
	{ "{\"a\":1,}", "doc:1:8: a key in double quotes after ',' expected, found '}'" },
	{ "{\"a\" 1}", "doc:1:6: ':' after the key expected, found '1'" },
	{ "{\"a\"::1}", "doc:1:6: a value expected, found ':'" },
	{ "{\"a\":\n,}", "doc:2:1: a value expected, found ','" },
	{ "{\"a\":1]", "doc:1:7: ',' or '}' expected, found ']'" },
	{ "{a:1}", "doc:1:2: a key in double quotes or '}' expected, found 'a'" },
	{ "{\"a\":1 \"b\":2}", "doc:1:8: ',' or '}' expected, found \"b\"" },
	{ "]", "doc:1:1: a value expected, found ']'" },
	{ "{} x", "doc:1:4: text after the end of the document: x" },
	{ "1 2", "doc:1:3: text after the end of the document: 2" },
	{ "[]\n]", "doc:2:1: text after the end of the document: ]" },
	/* strings */
	{ "[\"a\tb\"]", "doc:1:4: control character \\x09 in a string: write it as an escape" },
	{ "{\"a\nb\":1}", "doc:1:4: control character \\x0a in a string: write it as an escape" },
	{ "[\"a\\qb\"]", "doc:1:5: bad escape in a string: " ESCAPES },
	{ "[\"\\u12g4\"]", "doc:1:7: bad escape in a string: " ESCAPES },
	{ "[\"a\\u0000\"]", "doc:1:2: \\u0000 is not allowed in a string" },
	{ "{\"\\u0000\":1}", "doc:1:2: \\u0000 is not allowed in a string" },
	{ "[\"\\ud800\"]", "doc:1:2: half of a surrogate pair (\\ud800 to \\udfff) in a string" },
	{ "[\"\\ud800\\n\"]", "doc:1:2: half of a surrogate pair (\\ud800 to \\udfff) in a string" },
	{ "[\"\\ud800\\u0041\"]", "doc:1:2: half of a surrogate pair (\\ud800 to \\udfff) in a string" },
	{ "[\"\\ud800\\uffff\"]", "doc:1:2: half of a surrogate pair (\\ud800 to \\udfff) in a string" },
	{ "[\"\\uDC00\"]", "doc:1:2: half of a surrogate pair (\\ud800 to \\udfff) in a string" },
	/* UTF-8: cut, overlong, surrogate, beyond U+10FFFF, lone continuation; outside of strings too */
	{ "[\"\xc3\"]", "doc:1:3: byte \\xc3 is not UTF-8" },
	{ "[\"\xc0\xaf\"]", "doc:1:3: byte \\xc0 is not UTF-8" },
	{ "[\"\xe0\x80\xaf\"]", "doc:1:3: byte \\xe0 is not UTF-8" },
	{ "[\"\xed\xa0\x80\"]", "doc:1:3: byte \\xed is not UTF-8" },
	{ "[\"\xf4\x90\x80\x80\"]", "doc:1:3: byte \\xf4 is not UTF-8" },
	{ "[1234567,\n\x80]", "doc:2:1: byte \\x80 is not UTF-8" },
	{ "[\xc3\xa9]", "doc:1:2: a value or ']' expected, found '\xc3\xa9'" },
	/* numbers */
	{ "9223372036854775808", "doc:1:1: number 9223372036854775808 does not fit" },
	{ "[-9223372036854775809]", "doc:1:2: number -9223372036854775809 does not fit" },
	{ "[1e999]", "doc:1:2: number 1e999 does not fit" },
	/* keys */
	{ "{\"a\":1,\n \"b\":2, \"a\":3}", "doc:2:9: key \"a\" again: it stands at 1:2 already" },
	{ "{\"x\":{\"\\u0061\":1,\"a\":2}}", "doc:1:18: key \"a\" again: it stands at 1:7 already" },
	{ "{\"\":1,\"\":2}", "doc:1:7: key \"\" again: it stands at 1:2 already" },
	{ "{\"\x7f\":1,\"\x7f\":2}", "doc:1:8: key \"\\x7f\" again: it stands at 1:2 already" },
	/* comments, which are off */
	{ "// c\n{}", "doc:1:1: comments are not allowed here" },
	{ "{} /* c */", "doc:1:4: comments are not allowed here" },
};

static const struct {
	const char *text, *message;
} broken_with_comments[] = {
	{ "// only this", "doc:1:13: empty: a JSON document is expected" },
	{ "{} /* open", "doc:1:4: a comment that is not closed by */" },
	{ "{\"a\": /* open", "doc:1:7: a comment that is not closed by */" },
	{ "/* open", "doc:1:1: a comment that is not closed by */" },
	{ "{}/*/", "doc:1:3: a comment that is not closed by */" },
	{ "/ 1", "doc:1:1: '/' begins no comment" },
	{ "// \xff\n{}", "doc:1:4: byte \\xff is not UTF-8" },
	{ "/* {\n */ [1, // two\n,]", "doc:3:1: a value after ',' expected, found ','" },
};

static void test_broken(void **state)
{
	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(broken); i++)
		expect_error(broken[i].text, strlen(broken[i].text), 0, -EINVAL, broken[i].message);
	for (size_t i = 0; i < ARRAY_LEN(broken_with_comments); i++)
		expect_error(broken_with_comments[i].text, strlen(broken_with_comments[i].text), JSON_COMMENTS, -EINVAL,
			     broken_with_comments[i].message);
	expect_error("[\0]", 3, 0, -EINVAL, "doc:1:2: a value or ']' expected, found '\\x00'");
	expect_error("[\"\0\"]", 5, 0, -EINVAL, "doc:1:3: control character \\x00 in a string: write it as an escape");
	expect_error("{\"a\0b\":1}", 9, 0, -EINVAL,
		     "doc:1:4: control character \\x00 in a string: write it as an escape");
}

static void test_error_may_be_null(void **state)
{
	cleanup_arena struct arena a = { 0 };
	const struct json *root;

	(void) state;
	assert_int_equal(json_parse(&a, "doc", "[", 1, 0, &limits, &root, NULL), -EINVAL);
	assert_int_equal(json_parse(&a, "doc", NULL, 0, 0, &limits, &root, NULL), -EINVAL);
}

/* Every way of cutting a document short is an error, and so is every byte set to one that is not UTF-8. */
static void test_cut_and_spoilt(void **state)
{
	static const char whole[] = "{\"a\": [1, -2.5e3, \"x\\u00e9\\n\xc3\xa9\", true, false, null], \"b\": {}}";

	(void) state;
	for (size_t i = 0; i < sizeof(whole) - 1; i++) {
		char copy[sizeof(whole)];
		cleanup_arena struct arena a = { 0 };
		cleanup_error struct error err = { 0 };
		const struct json *root;

		assert_int_equal(parse_bytes(&a, whole, i, JSON_COMMENTS, &root, &err), -EINVAL);
		assert_true(str_starts(error_text(&err), "doc:1:"));
		assert_null(strchr(error_text(&err), '\n'));
		memcpy(copy, whole, sizeof(whole));
		copy[i] = (char) 0xff;
		assert_int_equal(parse_bytes(&a, copy, sizeof(whole) - 1, 0, &root, &err), -EINVAL);
	}
}

static void test_tree(void **state)
{
	cleanup_arena struct arena a = { 0 };
	const struct json *root = parse_ok(&a,
					   "{ \"n\": null, \"t\": true,\n"
					   "\t\"list\" : [ 1 ,-0, 2.5, "
					   "\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"],\n"
					   "  \"empty\":\"\",\"o\":{}, \"f\":false }\n",
					   0);
	const struct json *list = json_get(root, "list"), *v;

	(void) state;
	assert_int_equal(root->type, JSON_OBJECT);
	assert_int_equal(root->len, 6);
	assert_null(root->parent);
	assert_null(root->key);
	assert_int_equal(json_get(root, "n")->type, JSON_NULL);
	assert_true(json_get(root, "t")->boolean);
	assert_int_equal(json_get(root, "f")->type, JSON_BOOL);
	assert_false(json_get(root, "f")->boolean);
	assert_null(json_get(root, "f")->next);
	assert_string_equal(json_get(root, "empty")->string, "");
	assert_int_equal(json_get(root, "empty")->len, 0);
	assert_null(json_get(root, "o")->first);

	assert_int_equal(list->type, JSON_ARRAY);
	assert_int_equal(list->len, 4);
	assert_ptr_equal(list->parent, root);
	assert_string_equal(list->key, "list");
	assert_int_equal(list->key_line, 2);
	assert_int_equal(list->key_column, 2);
	assert_int_equal(list->line, 2);
	assert_int_equal(list->column, 11);
	v = list->first;
	assert_int_equal(v->integer, 1);
	assert_int_equal(v->column, 13);
	assert_null(v->key);
	v = v->next;
	assert_int_equal(v->type, JSON_INT);
	assert_int_equal(v->integer, 0);
	assert_int_equal(v->column, 16);
	v = v->next;
	assert_int_equal(v->type, JSON_REAL);
	assert_true(v->real > 2.4 && v->real < 2.6);
	v = v->next;
	assert_string_equal(v->string, "a\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80");
	assert_int_equal(v->len, strlen(v->string));
	assert_null(v->next);
}

static void test_numbers(void **state)
{
	cleanup_arena struct arena a = { 0 };
	const struct json *big;

	(void) state;
	assert_true(parse_ok(&a, "9223372036854775807", 0)->integer == INT64_MAX);
	assert_true(parse_ok(&a, "-9223372036854775808 ", 0)->integer == INT64_MIN);
	assert_int_equal(parse_ok(&a, "[-17]", 0)->first->integer, -17);
	assert_int_equal(parse_ok(&a, "1E2", 0)->type, JSON_REAL);
	big = parse_ok(&a, "18446744073709551615", JSON_BIG_INTEGERS);
	assert_int_equal(big->type, JSON_REAL);
	assert_true(big->real > 1.8e19 && big->real < 1.9e19);
}

static void test_comments(void **state)
{
	cleanup_arena struct arena a = { 0 };
	const struct json *root = parse_ok(&a,
					   "// one\n/* two\n **/ { // \"a\": 0,\n"
					   "\"a\" /**/ : /* : */ 1 /* , */ }//end",
					   JSON_COMMENTS);

	(void) state;
	assert_int_equal(root->line, 3);
	assert_int_equal(root->column, 6);
	assert_int_equal(root->len, 1);
	assert_int_equal(root->first->integer, 1);
	assert_int_equal(root->first->line, 4);
	assert_int_equal(root->first->column, 20);
}

static void test_limits(void **state)
{
	static const struct json_limits tight = { .max_bytes = 30, .max_values = 4, .max_depth = 2 };
	static const struct {
		const char *text, *message;
	} over[] = {
		{ "[1,2,3,\n4]", "doc:2:1: more than 4 values" },
		{ "[{\"a\":[]}]", "doc:1:7: nested deeper than 2 arrays and objects" },
		{ "[[[", "doc:1:3: nested deeper than 2 arrays and objects" },
		{ "\"0123456789012345678901234567890\"", "doc: 33 bytes, more than the 30 that are allowed" },
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(over); i++) {
		cleanup_arena struct arena a = { 0 };
		cleanup_error struct error err = { 0 };
		const struct json *root;

		assert_int_equal(json_parse(&a, "doc", over[i].text, strlen(over[i].text), 0, &tight, &root, &err),
				 -E2BIG);
		assert_string_equal(error_text(&err), over[i].message);
	}
	{
		cleanup_arena struct arena a = { 0 };
		const struct json *root;

		assert_int_equal(json_parse(&a, "doc", "[[1],[2]]", 9, 0, &tight, &root, NULL), -E2BIG);
		assert_int_equal(json_parse(&a, "doc", "[[],[],2]", 9, 0, &tight, &root, NULL), 0);
	}
}

/* Many members: all found, and the one double among them too. */
static void test_many_keys(void **state)
{
	cleanup_json_writer struct json_writer *w = json_writer_new(false);
	cleanup_arena struct arena a = { 0 };
	cleanup_error struct error err = { 0 };
	cleanup_free char *text = NULL;
	char key[16], *spot;
	const struct json *root;
	size_t len;

	(void) state;
	json_open_object(w, NULL);
	for (int i = 0; i < 20000; i++) {
		snprintf(key, sizeof(key), "k%05d", i * 7919 % 20000);
		json_int(w, key, i);
	}
	json_close(w);
	assert_int_equal(json_writer_take(w, &text, &len), 0);
	root = parse_ok(&a, text, 0);
	assert_int_equal(root->len, 20000);
	assert_int_equal(json_get(root, "k07919")->integer, 1);
	spot = strstr(text, "k19999");
	memcpy(spot, "k00000", 6);
	assert_int_equal(parse_bytes(&a, text, len, 0, &root, &err), -EINVAL);
	snprintf(key, sizeof(key), "doc:1:%zu: ", (size_t) (spot - text));
	assert_true(str_starts(error_text(&err), key));
	assert_true(strstr(error_text(&err), "key \"k00000\" again: it stands at 1:2 already") != NULL);
}

static void test_lookup(void **state)
{
	cleanup_arena struct arena a = { 0 };
	const struct json *root = parse_ok(&a,
					   "{\"a\":{\"b\":{\"c\":7},\"bb\":1},\"rules\":[1,{},{\"match\":[[5]]}],"
					   "\"x.y\":{\"\":{\"n\\u0007\":1}}}",
					   0);
	const struct json *third = json_get(root, "rules")->first->next->next;

	(void) state;
	assert_int_equal(json_find(root, "a.b.c")->integer, 7);
	assert_int_equal(json_find(root, "a.bb")->integer, 1);
	assert_ptr_equal(json_find(root, "rules"), json_get(root, "rules"));
	assert_null(json_find(root, "a.b.d"));
	assert_null(json_find(root, "a.b.c.d"));
	assert_null(json_find(root, "a.x.c"));
	assert_null(json_find(root, "a.b."));
	assert_null(json_find(NULL, "a"));
	assert_null(json_get(NULL, "a"));
	assert_null(json_get(json_get(root, "rules"), "a"));
	assert_null(json_get(root, "ab"));

	assert_string_equal(json_path(&a, root), "the document");
	assert_string_equal(json_path(&a, json_find(root, "a.b.c")), "a.b.c");
	assert_string_equal(json_path(&a, third), "rules[2]");
	assert_string_equal(json_path(&a, json_get(third, "match")->first->first), "rules[2].match[0][0]");
	assert_string_equal(json_path(&a, json_get(root, "x.y")->first->first), "[\"x.y\"][\"\"][\"n\\x07\"]");
	assert_string_equal(json_type_name(JSON_OBJECT), "an object");
	assert_string_equal(json_type_name(JSON_BOOL), "true or false");
}

static void fill(struct json_writer *w)
{
	json_open_object(w, NULL);
	json_string(w, "s", "\"\\/\b\n\x1f\x7f\xc3\xa9");
	json_string(w, "left out", NULL);
	json_open_array(w, "none");
	json_close(w);
	json_open_array(w, "list");
	json_int(w, NULL, INT64_MIN);
	json_real(w, NULL, -0.1);
	json_real(w, NULL, 2e30);
	json_bool(w, NULL, false);
	json_open_object(w, NULL);
	json_close(w);
	json_close(w);
	json_bool(w, "k\"", true);
	json_close(w);
}

static void test_writer(void **state)
{
	static const char *const wanted[] = {
		"{\"s\":\"\\\"\\\\/\\u0008\\u000a\\u001f\x7f\xc3\xa9\",\"none\":[],"
		"\"list\":[-9223372036854775808,-0.1,2e+30,false,{}],\"k\\\"\":true}\n",
		"{\n  \"s\": \"\\\"\\\\/\\u0008\\u000a\\u001f\x7f\xc3\xa9\",\n  \"none\": [],\n"
		"  \"list\": [\n    -9223372036854775808,\n    -0.1,\n    2e+30,\n    false,\n    {}\n  ],\n  \"k\\\"\": true\n}\n",
	};

	(void) state;
	for (int pretty = 0; pretty < 2; pretty++) {
		cleanup_json_writer struct json_writer *w = json_writer_new(pretty);
		cleanup_arena struct arena a = { 0 };
		cleanup_free char *text = NULL;
		char *again = NULL;
		size_t len = 0;

		fill(w);
		assert_int_equal(json_writer_take(w, &text, &len), 0);
		assert_string_equal(text, wanted[pretty]);
		assert_int_equal(len, strlen(text));
		assert_string_equal(json_get(parse_ok(&a, text, 0), "s")->string, "\"\\/\b\n\x1f\x7f\xc3\xa9");
		assert_int_equal(json_writer_take(w, &again, &len), -EINVAL);
		assert_null(again);
	}
}

enum misuse {
	NOTHING,
	UNCLOSED,
	CLOSED_TWICE,
	TWO_ROOTS,
	NO_KEY,
	KEY_IN_ARRAY,
	BAD_UTF8,
	BAD_KEY,
	TOO_DEEP,
	MISUSE_COUNT,
};

static void misuse(struct json_writer *w, enum misuse how)
{
	if (how != NOTHING)
		json_open_object(w, NULL);
	switch (how) {
	case NOTHING:
	case UNCLOSED:
	case MISUSE_COUNT:
		break;
	case CLOSED_TWICE:
		json_close(w);
		json_close(w);
		break;
	case TWO_ROOTS:
		json_close(w);
		json_int(w, NULL, 1);
		break;
	case NO_KEY:
		json_int(w, NULL, 1);
		json_close(w);
		break;
	case KEY_IN_ARRAY:
		json_open_array(w, "a");
		json_int(w, "b", 1);
		json_close(w);
		json_close(w);
		break;
	case BAD_UTF8:
		json_string(w, "a", "x\xff");
		json_close(w);
		break;
	case BAD_KEY:
		json_int(w, "\xed\xa0\x80", 1);
		json_close(w);
		break;
	case TOO_DEEP:
		for (int i = 0; i < 1000; i++)
			json_open_object(w, "a");
		for (int i = 0; i < 1001; i++)
			json_close(w);
		break;
	}
}

static void test_writer_misuse(void **state)
{
	(void) state;
	for (int how = 0; how < MISUSE_COUNT; how++) {
		cleanup_json_writer struct json_writer *w = json_writer_new(how % 2);
		char *text = NULL;
		size_t len = 4711;

		misuse(w, (enum misuse) how);
		assert_int_equal(json_writer_take(w, &text, &len), how == TOO_DEEP ? -E2BIG : -EINVAL);
		assert_null(text);
		assert_int_equal(len, 4711);
	}
	json_writer_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_error_may_be_null),
		cmocka_unit_test(test_cut_and_spoilt),
		cmocka_unit_test(test_tree),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_comments),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_many_keys),
		cmocka_unit_test(test_lookup),
		cmocka_unit_test(test_writer),
		cmocka_unit_test(test_writer_misuse),
	};

	return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
