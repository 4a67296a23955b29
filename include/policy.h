/*
 * The operator's policy: which containers belong to which tenant, and what each class of container gets.
 * File format: cotenant-policy(5). Parsing and matching are pure; reading files is sys/policy_file.c.
 */
#pragma once

#include "json.h"
#include "mask.h"
#include "model.h"
#include "oci.h"

#define POLICY_MAX (1u << 20) /* bytes of one policy file */
#define TENANT_MAX 255        /* bytes of a tenant name after its template is filled in */

enum isolation_mode { ISOLATION_COOKIE, ISOLATION_CORES, ISOLATION_AUTO, ISOLATION_NONE };
enum isolation_scope { SCOPE_TENANT, SCOPE_POD, SCOPE_CONTAINER };
enum on_unsupported { UNSUPPORTED_REFUSE, UNSUPPORTED_CORES, UNSUPPORTED_DEGRADE };
enum exec_cover { EXEC_GATE, EXEC_WATCH, EXEC_POLL };
enum cpu_span { SPAN_NODE, SPAN_MACHINE, SPAN_PACKAGE, SPAN_LLC, SPAN_CORES };
enum cpu_placement { PLACEMENT_AUTO, PLACEMENT_PACK, PLACEMENT_SPREAD };
enum cpu_level { LEVEL_LLC, LEVEL_PACKAGE, LEVEL_NODE, LEVEL_CORE };
enum cpu_smt { SMT_USE, SMT_LEAVE_IDLE };
enum memory_policy { MEMORY_INHERIT, MEMORY_LOCAL, MEMORY_BIND, MEMORY_PREFERRED, MEMORY_INTERLEAVE, MEMORY_WEIGHTED };
enum on_error { ON_ERROR_REFUSE, ON_ERROR_ADMIT };
/* Memory tiers by name; a node is put into one by sys/tiers.c or by node.tiers in the policy. */
enum memory_tier { TIER_DRAM, TIER_HBM, TIER_CXL, TIER_PMEM };
#define TIER_COUNT 4

/* What the seccomp guard forbids inside the container. */
enum guard {
	GUARD_COOKIE = 1 << 0,   /* prctl(PR_SCHED_CORE) other than GET */
	GUARD_MEMORY = 1 << 1,   /* set_mempolicy, mbind, set_mempolicy_home_node, migrate_pages, move_pages */
	GUARD_AFFINITY = 1 << 2, /* sched_setaffinity */
};
#define GUARD_ALL (GUARD_COOKIE | GUARD_MEMORY | GUARD_AFFINITY)

/* Names as they stand in the policy file, in the ledger and in tables; NULL for a value out of range. */
const char *exec_cover_name(enum exec_cover v);
const char *cpu_span_name(enum cpu_span v);
const char *cpu_placement_name(enum cpu_placement v);
const char *memory_policy_name(enum memory_policy v);
const char *memory_tier_name(enum memory_tier v);
int memory_policy_from_name(const char *name, enum memory_policy *ret) must_check; /* -EINVAL */
int memory_tier_from_name(const char *name, enum memory_tier *ret) must_check;
int exec_cover_from_name(const char *name, enum exec_cover *ret) must_check;

/* A set of interleave weights, 1–255, by tier or by node. 0 = not named. */
struct weights {
	bool by_node;
	uint8_t tier[TIER_COUNT];
	uint8_t node[NODE_MAX];
};

/* When a running container may be moved; enforced by the reconciler, carried by the plan. */
struct rebalance {
	bool enabled;
	unsigned min_dwell_s, max_moves_per_minute;
	double min_gain; /* share, 0.05 = 5 % */
};

enum weights_mode { WEIGHTS_KEEP, WEIGHTS_AUTO, WEIGHTS_FIXED };

struct policy_class {
	const char *name;
	struct {
		enum isolation_mode mode;
		enum isolation_scope scope;
		enum on_unsupported on_unsupported;
		unsigned guard; /* enum guard, or-ed */
		enum exec_cover exec;
	} isolation;
	struct {
		enum cpu_span span;
		enum cpu_placement placement;
		enum cpu_level level;
		bool exclusive;
		enum cpu_smt smt;
		unsigned count_mcpu; /* demand when the OCI limits say none, in 1/1000 CPU; 0: not given */
	} cpu;
	struct {
		enum memory_policy policy;
		enum memory_tier tiers[TIER_COUNT]; /* in order of preference */
		size_t n_tiers;
		nodemask nodes; /* explicit list; 0: none */
		bool has_weights;
		struct weights weights; /* ratio of this class's own */
		bool migrate;
	} memory;
	struct rebalance rebalance;
	enum on_error on_error;
	const struct json *where; /* for messages */
};

struct policy_condition; /* one line of a match; private to policy/match.c and policy/policy_parse.c */

struct policy_rule {
	struct policy_condition *conditions;
	size_t n_conditions;
	const char *tenant; /* template */
	const struct policy_class *class;
	bool trust;
	const struct json *where;
	const char *file;
};

struct policy_document; /* one file's tree, for messages; private to policy/ */

struct policy {
	struct arena arena; /* owns everything below */
	const struct policy_document *documents;
	size_t n_documents;
	struct {
		struct mask reserved;
		enum weights_mode weights_mode;
		struct weights weights;
		bool confine_unmanaged;
		nodemask tiers[TIER_COUNT]; /* override: nodes that the operator puts into a tier */
		struct model model;
	} node;
	struct policy_class **classes;
	size_t n_classes;
	struct policy_rule *rules;
	size_t n_rules;
	size_t regex_size; /* of all regular expressions, their repeats written out */
	enum on_error on_error;
	char **warnings; /* what `cotenant check` says beside errors */
	size_t n_warnings;
	char digest[17]; /* of the bytes of all files, hex: tells whether a placement was made under this policy */
};

struct policy_source {
	const char *name; /* file name, for messages */
	const char *text;
	size_t len;
};

/*
 * Parses and merges sources[0] (the main file) and the drop-ins after it, in the order given. On error err names
 * file:line:column, the path in the document, what was found and what is allowed. The policy must be freed.
 */
int policy_parse(const struct policy_source *sources, size_t n, struct policy **ret_policy, struct error *err) must_check;
void policy_free(struct policy *p);
void policy_freep(struct policy **p);
#define cleanup_policy cleanup_with(policy_freep)

/*
 * What a policy asks of a given machine: nodes that do not exist, reserved CPUs that leave nothing, tiers without a
 * node. `online` and `nodes` are the machine's. Errors as in policy_parse.
 */
struct topology;
int policy_check_machine(const struct policy *p, const struct topology *topo, struct error *err) must_check;

/* Every key with its type, default and meaning, one per line, from the table that parses. malloc'd. */
char *policy_help(void) must_check;

/* What a rule can look at. */
struct match_facts {
	const char *id, *stage, *cgroup_path, *image; /* NULL: unknown, matches nothing but an absent condition */
	const struct oci_annotations *annotations;    /* may be NULL */
	bool has_host_uid;
	uint32_t host_uid; /* host id of the container's uid 0 */
};

struct policy_match {
	const struct policy_rule *rule;
	size_t rule_index; /* as numbered over all files, from 0 */
	const struct policy_class *class;
	const char *tenant; /* template filled in, in the arena */
	const char *group;  /* isolation group: the tenant, tenant/pod or tenant/container by the class's scope */
};

/*
 * First rule whose every condition holds. -ENOENT when none does (err says so and names the container). -EINVAL when
 * the tenant template cannot be filled in (missing annotation, empty or over-long result, control characters).
 */
int policy_match(const struct policy *p, const struct match_facts *facts, struct arena *a,
		 struct policy_match *ret_match, struct error *err) must_check;
