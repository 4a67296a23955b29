/* What the tests of the ledger share: a state directory of their own, and ways to fill it and to look into it. */
#pragma once

#include "ledger.h"

struct fixture {
	struct sys sys;
	char *dir, *state; /* state: the state directory, not yet made, below dir */
};

int ledger_setup(void **state);
int ledger_teardown(void **state);
#define with_ledger(test) cmocka_unit_test_setup_teardown(test, ledger_setup, ledger_teardown)

struct ledger *open_ledger(struct fixture *f);
struct ledger *open_locked(struct fixture *f);
/* A container of this process. */
struct entry *new_entry(const char *id, const char *group, const char *cpus);
void put(struct ledger *l, const char *id, const char *group, const char *cpus);

struct view {
	const struct occupant *items;
	size_t n;
	const char *const *stale;
	size_t n_stale;
};
struct view look(struct ledger *l, bool all);
/* The test fails when it is not there. */
const struct occupant *find(const struct view *v, const char *id);
/* The index says exactly what the files in containers/ say. Returns how many entries there are. */
size_t check_consistent(struct ledger *l);

/* In the state directory; malloc'd. */
char *path_in(const struct fixture *f, const char *name);
/* Files in a directory of it whose names hold `with`. */
size_t count_files(const struct fixture *f, const char *sub, const char *with);
/* Into the state directory; flags of open(2) beside O_CREAT. */
void write_file(const struct fixture *f, const char *name, const char *text, int flags);
/* A pid that was somebody's and is nobody's. */
pid_t dead_pid(void);
