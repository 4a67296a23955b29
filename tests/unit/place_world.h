/* What tests of plan_place() start from: a machine, a class, a container, and neighbours to be added. */
#pragma once

#include "machine.h"
#include "plan.h"

#define GIB (UINT64_C(1) << 30)

struct world {
	struct topology *topo;
	struct policy policy;
	struct policy_class class;
	struct occupant occupants[8];
	struct mask sets[8];
	struct place_facts facts;
	struct plan *plan;
	struct error err;
};

int world_setup(void **state);
int world_teardown(void **state);
#define WORLD_TEST(fn) cmocka_unit_test_setup_teardown(fn, world_setup, world_teardown)

/* A neighbour, of a group of its own. */
void add(struct world *w, const char *id, enum mechanism mechanism, const char *cpus, unsigned mcpu);
void add_group(struct world *w, const char *id, const char *group, enum mechanism mechanism, const char *cpus,
	       unsigned mcpu);
/* Places facts.id into w->plan; it must succeed, or fail with that errno and those words. */
void placed(struct world *w);
void refused(struct world *w, int code, const char *words);
void has_cpus(const struct mask *m, const char *list);
void has_reason(const struct world *w, const char *words);
