/*
 * The keys of the policy file. One table drives parsing, defaults, the help text and the test that keeps
 * policy.schema.json in step.
 */
#pragma once

#include "policy_names.h"

enum section {
	SECTION_TOP,
	SECTION_NODE,
	SECTION_TIERS,
	SECTION_MODEL,
	SECTION_CLASS,
	SECTION_ISOLATION,
	SECTION_CPU,
	SECTION_MEMORY,
	SECTION_REBALANCE,
	SECTION_RULE,
	SECTION_MATCH,
	SECTION_UID,
};

enum key_kind {
	KIND_SECTION, /* an object with keys of the section `child` */
	KIND_CLASSES, /* an object of classes by name */
	KIND_RULES,   /* an array of rules */
	KIND_VERSION,
	KIND_STRING, /* any string; not used */
	KIND_BOOL,
	KIND_ENUM,         /* one of `names` */
	KIND_COUNT,        /* whole number, min … max */
	KIND_MILLI,        /* number, kept in thousandths, above min … max */
	KIND_SHARE,        /* number, min … max */
	KIND_FACTOR,       /* the same, kept in thousandths */
	KIND_CPUS,         /* list of CPUs */
	KIND_NODES,        /* list of nodes, at least one */
	KIND_WEIGHTS,      /* object of weights */
	KIND_NODE_WEIGHTS, /* a word of `names`, or an object of weights */
	KIND_TIERS,        /* array of `names` without repetition */
	KIND_GUARD,        /* true, false or array of `names` */
	KIND_PATTERN,      /* adds a condition */
	KIND_ANNOTATIONS,  /* object of patterns by annotation; adds conditions */
	KIND_UID,          /* an object with keys of the section `child`; adds a condition */
	KIND_TEMPLATE,     /* tenant template */
	KIND_CLASS_NAME,   /* the name of a class of any file */
	KIND_COUNT_OF_KINDS,
};

struct policy_key {
	enum section section, child;
	enum key_kind kind;
	bool required;
	bool once;     /* may be set by one file only */
	unsigned fact; /* KIND_PATTERN: enum fact of the condition */
	unsigned min, max;
	size_t offset; /* in struct policy (top, node), policy_class, policy_rule or policy_condition (uid) */
	const struct name_table *names;
	const char *name, *def; /* def: as it would stand in the file; NULL: none */
	const char *help;
};

extern const struct policy_key policy_keys[];
extern const size_t n_policy_keys;

/* "classes.NAME.cpu." and so on: what stands before a key of the section. */
const char *section_prefix(enum section section);
const struct policy_key *policy_key_find(enum section section, const char *name);
/* Puts the defaults of a range of sections into the struct that they fill. */
void policy_key_defaults(enum section first, enum section last, void *base);
/* "one of: a, b" and the like, for messages and help; in the arena. */
const char *policy_key_expects(struct arena *a, const struct policy_key *key) must_check;
const char *names_list(struct arena *a, const struct name_table *names) must_check;

/* The candidate nearest to a misspelt word. Start with { .word = … }. */
struct nearest {
	const char *word, *best; /* best NULL: nothing is near enough */
	unsigned distance;
};
void nearest_try(struct nearest *n, const char *candidate);
