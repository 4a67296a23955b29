/* What the tests of the keeper share: a state directory of their own, and what comes of asking for an anchor there. */
#pragma once

#include "tracee.h"

#include <sys/un.h>

#include "ledger.h"

#define GROUP "red"
#define LONG_MS 60000
#define SHORT_MS 300

struct fixture {
	struct sys s;
	struct ledger *l;
	char *dir;
	struct error err;
	struct tracee fake;
};
extern struct sockaddr_un address; /* of the socket in the state directory */

int keeper_setup(void **state);
int keeper_teardown(void **state);
#define with_keeper(test) cmocka_unit_test_setup_teardown(test, keeper_setup, keeper_teardown)

int ensure(struct fixture *f, struct proc_ref *p);
void end_anchor(struct fixture *f);
void expect_no_record(struct fixture *f);
/* The hook starts its own: where the kernel has no cookies it fails at that. */
void expect_own_anchor(struct fixture *f);
void expect_refusal(struct fixture *f, int code, const char *text);
/* Refused when the time is over, and no later for signals that come all the time. */
void expect_late(struct fixture *f, const char *text);
/* cotenant-anchor, beside the running program, where that looks for it. */
char *program(void);
/* A socket in the keeper's place. */
int bound(void);
/* A connection to whoever listens there, or -1. */
int client(int flags);
