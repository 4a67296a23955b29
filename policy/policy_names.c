#include "policy_names.h"

#include <errno.h>

#define NAMES(what, ...)                                      \
	static const char *const what##_list[] = __VA_ARGS__; \
	const struct name_table what##_names = { what##_list, ARRAY_LEN(what##_list) }

NAMES(isolation_mode, { [ISOLATION_COOKIE] = "cookie",
			[ISOLATION_CORES] = "cores",
			[ISOLATION_AUTO] = "auto",
			[ISOLATION_NONE] = "none" });
NAMES(isolation_scope, { [SCOPE_TENANT] = "tenant", [SCOPE_POD] = "pod", [SCOPE_CONTAINER] = "container" });
NAMES(on_unsupported,
      { [UNSUPPORTED_REFUSE] = "refuse", [UNSUPPORTED_CORES] = "cores", [UNSUPPORTED_DEGRADE] = "degrade" });
NAMES(exec_cover, { [EXEC_GATE] = "gate", [EXEC_WATCH] = "watch", [EXEC_POLL] = "poll" });
NAMES(cpu_span, { [SPAN_NODE] = "node",
		  [SPAN_MACHINE] = "machine",
		  [SPAN_PACKAGE] = "package",
		  [SPAN_LLC] = "llc",
		  [SPAN_CORES] = "cores" });
NAMES(cpu_placement, { [PLACEMENT_AUTO] = "auto", [PLACEMENT_PACK] = "pack", [PLACEMENT_SPREAD] = "spread" });
NAMES(cpu_level,
      { [LEVEL_LLC] = "llc", [LEVEL_PACKAGE] = "package", [LEVEL_NODE] = "node", [LEVEL_CORE] = "core" });
NAMES(cpu_smt, { [SMT_USE] = "use", [SMT_LEAVE_IDLE] = "leave-idle" });
NAMES(memory_policy, { [MEMORY_INHERIT] = "inherit",
		       [MEMORY_LOCAL] = "local",
		       [MEMORY_BIND] = "bind",
		       [MEMORY_PREFERRED] = "preferred",
		       [MEMORY_INTERLEAVE] = "interleave",
		       [MEMORY_WEIGHTED] = "weighted-interleave" });
NAMES(on_error, { [ON_ERROR_REFUSE] = "refuse", [ON_ERROR_ADMIT] = "admit" });
NAMES(memory_tier, { [TIER_DRAM] = "dram", [TIER_HBM] = "hbm", [TIER_CXL] = "cxl", [TIER_PMEM] = "pmem" });
NAMES(weights_mode, { [WEIGHTS_KEEP] = "keep", [WEIGHTS_AUTO] = "auto" });
NAMES(guard, { [__builtin_ctz(GUARD_COOKIE)] = "cookie",
	       [__builtin_ctz(GUARD_MEMORY)] = "memory",
	       [__builtin_ctz(GUARD_AFFINITY)] = "affinity" });

_Static_assert(ARRAY_LEN(memory_tier_list) == TIER_COUNT, "every memory tier has a name");

static const char *name_of(const struct name_table *table, unsigned value)
{
	return value < table->n ? table->names[value] : NULL;
}

int name_find(const struct name_table *table, const char *name, unsigned *ret_value)
{
	for (unsigned i = 0; i < table->n; i++)
		if (str_eq(table->names[i], name)) {
			*ret_value = i;
			return 0;
		}
	return -EINVAL;
}

#define NAME_OF(what)                             \
	const char *what##_name(enum what v)      \
	{                                         \
		return name_of(&what##_names, v); \
	}

NAME_OF(exec_cover)
NAME_OF(cpu_span)
NAME_OF(cpu_placement)
NAME_OF(memory_policy)
NAME_OF(memory_tier)

#define FROM_NAME(what)                                              \
	int what##_from_name(const char *name, enum what *ret)       \
	{                                                            \
		unsigned value;                                      \
		int r = name_find(&what##_names, name, &value);      \
                                                                     \
		if (r < 0)                                           \
			return r;                                    \
		*ret = (enum what) value;                            \
		return 0;                                            \
	}

FROM_NAME(memory_policy)
FROM_NAME(memory_tier)
FROM_NAME(exec_cover)
