/* Conditions of a rule and tenant templates: made by the parser, used by the matcher. */
#pragma once

#include <regex.h>

#include "policy.h"

#define REGEX_MAX 1024         /* bytes of a regular expression */
#define REGEX_DEPTH_MAX 8      /* parentheses in parentheses */
#define REGEX_SIZE_MAX 128     /* characters of one with its repeats written out */
#define REGEX_ANCHORS_MAX 8    /* ^ and $ of one */
#define REGEX_SIZES_MAX 2048   /* the same of all that a policy holds */
#define REGEX_SUBJECT_MAX 512  /* bytes of a value that one is tried on: matching takes memory by its length */
#define TEMPLATE_MAX 4096      /* bytes of a tenant template */

enum fact { FACT_ANNOTATION, FACT_ID, FACT_CGROUP, FACT_IMAGE, FACT_STAGE, FACT_UID };
enum pattern_kind { PATTERN_EXACT, PATTERN_GLOB, PATTERN_REGEX };

struct policy_condition {
	enum fact fact;
	const char *annotation; /* FACT_ANNOTATION: its name */
	enum pattern_kind kind;
	const char *text;  /* exact: without escapes; glob, regex: as in the file */
	regex_t *regex;    /* compiled, to be freed by condition_done() */
	size_t size;       /* of a regular expression: see regex_check() */
	uint32_t min, max; /* FACT_UID */
};

/* ret_why: what is wrong with it, in the arena. */
int pattern_from_text(struct arena *a, const char *text, struct policy_condition *c, const char **ret_why) must_check;
int pattern_from_regex(struct arena *a, const char *text, struct policy_condition *c, const char **ret_why) must_check;
/*
 * Within the limits above: its size with its repeats written out, and whether it begins with an ^ that holds for all of
 * it. -EINVAL: it is not, and *ret_why, in the arena, says where and what to do; NULL there: -ENOMEM.
 */
int regex_check(struct arena *a, const char *text, size_t *ret_size, bool *ret_anchored,
		const char **ret_why) must_check;
void condition_done(struct policy_condition *c);
/* 1: matches, 0: does not; -ENOMEM, -E2BIG when a regular expression cannot be tried. `value` may be NULL: 0. */
int pattern_match(const struct policy_condition *c, const char *value) must_check;

enum variable { VARIABLE_LITERAL, VARIABLE_ID, VARIABLE_CGROUP, VARIABLE_IMAGE, VARIABLE_UID, VARIABLE_ANNOTATION };
struct template_piece {
	enum variable variable;
	const char *text; /* the literal, or an annotation's name; not NUL-terminated */
	size_t len;
};

/*
 * The next piece of a template. 1: there is one; 0: end; -EINVAL: *ret_why says what is wrong and the piece is the
 * text that it is wrong with.
 */
int template_next(const char **at, struct template_piece *ret_piece, const char **ret_why) must_check;

/* Whether a name holds spaces that one does not see: at an end, or two in a row. */
bool name_hides_space(const char *name);

/* Who decides what an annotation says. */
enum annotation_source {
	SOURCE_ANYONE, /* whoever starts the container may write it */
	SOURCE_NAME, /* written by the runtime, but a name that somebody chose: unique inside of a namespace at most */
	SOURCE_RUNTIME, /* written by the runtime and not to be chosen */
};
enum annotation_source annotation_source(const char *key, size_t len);

/*
 * What the annotation says of the container of that id. NULL: it has none, or one of CRI-O's names that CRI-O did not
 * write, in a rule without trust.
 */
const char *annotation_believed(const struct oci_annotations *a, const char *id, const char *key, bool trust);
/* The pod's id as the runtime wrote it, or NULL. */
const char *annotation_pod_id(const struct oci_annotations *a, const char *id, bool trust);

/*
 * A container has one runtime. When it carries annotations that only containerd writes and others that only CRI-O
 * writes, one set is forged: -EINVAL, with one of each. Sets neither on success.
 */
int annotation_conflict(const struct oci_annotations *a, const char **ret_one, const char **ret_other) must_check;
