/* The names of the policy's enums. One table each: it prints, parses, helps and feeds the schema test. */
#pragma once

#include "policy.h"

struct name_table {
	const char *const *names; /* indexed by the enum's value */
	size_t n;
};

extern const struct name_table isolation_mode_names, isolation_scope_names, on_unsupported_names, exec_cover_names,
	cpu_span_names, cpu_placement_names, cpu_level_names, cpu_smt_names, memory_policy_names, on_error_names,
	memory_tier_names;
extern const struct name_table weights_mode_names; /* those that are written as a word */
extern const struct name_table guard_names;        /* indexed by bit number */

int name_find(const struct name_table *table, const char *name, unsigned *ret_value) must_check; /* -EINVAL */
