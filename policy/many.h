/*
 * A set of containers that is being placed: who is where now, and what it would cost for one to be elsewhere.
 *
 * plan_place() draws up a board for each decision. Here the board of all is kept and changed as containers come and go,
 * so that the cost of one among n others takes the number of CPUs, and not n as well.
 */
#pragma once

#include "place.h"

#define NOBODY SIZE_MAX

struct member {
	const struct container *container; /* NULL: an occupant, of which no more is known */
	size_t input;                      /* its place in the input */
	struct occupant view;              /* cpus and wish point into this */
	struct mask cpus, wish;
	uint64_t resident[NODE_MAX];
	bool runs, here;
	unsigned group; /* number; 0 is nobody's */
};

struct many {
	const struct many_facts *facts;
	struct member *members;
	size_t n, n_containers;
	struct policy_class bare; /* of occupants */
	struct place_facts now;   /* of the container that is being looked at */
	struct plan probe;        /* its demand, for the board */
	struct board *board;
	unsigned kin_of;          /* whose kin the board has: a group of cookies, or 0 for all that have none */
	struct occupant *present; /* scratch */
};

/* Nobody is there yet but the occupants. -EINVAL: two of one id. */
int many_new(const struct many_facts *facts, struct many **ret_many) must_check;
void many_freep(struct many **m);
#define cleanup_many cleanup_with(many_freep)

/* Containers are numbered by id, from 0; occupants that are none of them follow. */
const struct container *many_container(const struct many *m, size_t i);
size_t many_place_in_input(const struct many *m, size_t i);
/* Where it is; its cpus and wish are those of the set. Undefined when it is not there. */
const struct occupant *many_view(const struct many *m, size_t i);
bool many_is_here(const struct many *m, size_t i);
unsigned many_demand(const struct container *c); /* 1/1000 CPU */
uint64_t many_bytes_to_move(struct many *m, size_t i, const struct mask *cpus);

/* Of the members from `from` up to `to`; NOBODY when there is none of this id. */
size_t many_find(const struct many *m, size_t from, size_t to, const char *id);
/* As plan_place() is told of it, but for who else is there. */
void many_facts_of(const struct many *m, size_t i, struct place_facts *ret);

/* It is there as `o` says. */
void many_put(struct many *m, size_t i, const struct occupant *o);
void many_take(struct many *m, size_t i);
/* Puts all that run where they are. -ENOMEM. */
int many_put_running(struct many *m) must_check;

/* plan_place() beside all that are there, but for itself and `without` (may be NOBODY). */
int many_place(struct many *m, size_t i, size_t without, struct plan **ret_plan, struct error *err) must_check;
/* The same for one that is there, on the nodes on which it is. */
int many_place_near(struct many *m, size_t i, struct plan **ret_plan) must_check;

/* What it loses where it is, and the others by it. */
void many_cost(struct many *m, size_t i, struct cost *ret);
/* By number; of those that are not there 0. */
int many_costs(struct many *m, int64_t *ret_sums) must_check;
/* Of all together: as though one had come after the other. Depends on who is where, and on nothing else. */
int many_total(struct many *m, struct cost *ret) must_check;

/* A plan carried out in the set, with its adjusts, and what is needed to take that back. */
struct change {
	struct was *was;
	size_t n;
	int64_t gain;             /* of all together: costs before less costs after */
	struct cost before, after; /* of the container */
	bool short_of_memory;     /* before or after, of any of those that change */
};
int many_apply(struct many *m, size_t i, const struct plan *p, struct change *ret) must_check;
void many_undo(struct many *m, struct change *c); /* the last one first */
void change_done(struct change *c);
#define cleanup_change cleanup_with(change_done)

/* Who of the occupants has to move aside, seen from where they were at first. */
int many_adjusts(struct many *m, struct plan_adjust **ret, size_t *ret_n) must_check;
/* All that are there. Valid until the next call that takes the set. */
const struct occupant *many_present(struct many *m, size_t *ret_n);

/* explain_many.c: "web-3 moves from node 0 to node 1: gains …". `with`: the other one of a swap; NULL. malloc'd. */
char *move_sentence(const struct topology *t, const struct container *c, const struct move *m, const struct mask *from,
		    const struct plan *to, const char *with) must_check;
