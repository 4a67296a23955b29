/* Running machines for tests of decisions about many containers at once. */
#pragma once

#include "machine.h"
#include "plan.h"

#define GIB (UINT64_C(1) << 30)
#define CREW_MAX 64

struct crew {
	uint64_t random;
	struct topology *topo;
	struct policy policy;
	struct policy_class classes[CREW_MAX];
	struct container containers[CREW_MAX];
	struct occupant now[CREW_MAX];
	struct mask cpus[CREW_MAX], wish[CREW_MAX], allowed[CREW_MAX];
	uint64_t resident[CREW_MAX][NODE_MAX];
	char ids[CREW_MAX][16];
	size_t n;
	struct many_facts facts;
};

struct crew *crew_new(const struct machine *m) must_check;
void crew_freep(struct crew **c);
#define cleanup_crew cleanup_with(crew_freep)

/* A container of a cookie and a group of its own, of a class that may be moved, with its memory. Not placed yet. */
struct container *crew_add(struct crew *c, const char *id, unsigned mcpu);
/* It runs there, as a container with a cookie, or as the owner of these cores. */
void crew_runs(struct crew *c, const char *id, const char *cpus);
void crew_owns(struct crew *c, const char *id, const char *cpus);
/* Its memory is on that node, so many GiB. */
void crew_memory(struct crew *c, const char *id, unsigned node, unsigned gib);
size_t crew_find(const struct crew *c, const char *id);

/* Does what a plan says: CPUs, neighbours, and memory that migrates. */
void crew_apply(struct crew *c, const char *id, const struct plan *p);
/* No owner shares a core with anybody it must not. */
void crew_check(const struct crew *c);

/* Random machines: containers of random classes, placed one after another, some of which end. */
uint64_t crew_draw(struct crew *c, uint64_t below);
struct crew *crew_random(uint64_t seed, size_t most) must_check;
/* What plan_place() says of one beside the others that have a place; NULL when there is none. */
struct plan *crew_place(const struct crew *c, size_t i) must_check;
/* Places those that have no place, in their order; those that find none go. */
void crew_settle(struct crew *c);
void crew_remove(struct crew *c, size_t i);
/* Another order of the same containers, and back. */
void crew_shuffle(struct crew *c);
void crew_unshuffle(struct crew *c);
