/* Between the files that read a policy. Every function returns 0 or a negative errno with err set. */
#pragma once

#include "condition.h"
#include "policy_keys.h"

struct policy_document {
	const char *file;
	const struct json *root;
};

/* "FILE:LINE:COLUMN: PATH: text" for a value of any of the policy's documents; -EINVAL. */
int policy_reject(const struct policy *p, const struct json *at, struct error *err, const char *fmt, ...)
	printf_like(4, 5);
/* The same with the place of the value's key. */
int policy_reject_key(const struct policy *p, const struct json *at, struct error *err, const char *fmt, ...)
	printf_like(4, 5);
/* "found X, expected Y" */
int policy_unexpected(struct policy *p, const struct json *found, const char *expected, struct error *err);
/* The same for a word that stands for none of the names; says which is near. */
int policy_unknown_name(struct policy *p, const struct json *found, const struct name_table *names,
			const char *expected, struct error *err);
/* A key that is none of those that are known here; says which is near. */
int policy_unknown_key(struct policy *p, const struct json *member, const char *const *names, size_t n,
		       struct error *err);
int policy_warn(struct policy *p, const struct json *at, struct error *err, const char *fmt, ...) printf_like(4, 5);
/* The file that a value stands in. */
const char *policy_file_of(const struct policy *p, const struct json *at);

int policy_no_memory(struct error *err);

/* policy_parse.c: an object with keys of one section. */
int policy_read_section(struct policy *p, enum section section, const struct json *object, void *base,
			struct error *err) must_check;
/* policy_value.c: the value of one key. */
int policy_read_value(struct policy *p, const struct policy_key *key, const struct json *value, void *base,
		      struct error *err) must_check;
/* policy_check.c: what only the whole node object, class or rule tells. */
int policy_check_node(const struct policy *p, struct error *err) must_check;
int policy_check_class(struct policy *p, struct policy_class *class, struct error *err) must_check;
int policy_check_rule(struct policy *p, struct policy_rule *rule, struct error *err) must_check;
