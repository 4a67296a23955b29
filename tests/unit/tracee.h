/* Child processes to be held by the tests: they say in shared memory what happened to them. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sys.h"

#define TRACEE_SLOTS 8
#define TRACEE_SLEEP_MS 900
/* Far longer than anything takes even in an emulated guest on a busy machine: a test fails after so many pauses. */
#define TRACEE_PATIENCE 60000

struct slot {
	_Atomic int tid; /* 0 until the thread is about to park */
	_Atomic int done;
	long result;
	int error;
	int64_t took_ns;
};

struct tracee {
	pid_t pid;
	int to_child; /* writing end of a pipe on which the child may block */
	int from_parent;
	struct shared {
		struct slot slot[TRACEE_SLOTS];
		_Atomic int go, count;
		long value;
	} *shared;
};

/* Forks a child that runs body(t) and then exits. */
void tracee_start(struct tracee *t, void (*body)(struct tracee *t));
/* Kills it if need be, and reaps it. */
void tracee_end(struct tracee *t);
/* Starts a thread of the child in slot i. The body parks, and calls slot_done(). */
void tracee_thread(struct tracee *t, int i, void *(*body)(void *tracee_and_slot));
struct tracee_arg {
	struct tracee *t;
	struct slot *slot;
};
void slot_parking(struct slot *s);
void slot_done(struct slot *s, long result, int error, int64_t began_ns);

/* Until the slots' threads sleep in the kernel. */
void tracee_wait_parked(const struct tracee *t, int slots);
/* Until *flag is at least `value`; fails the test after TRACEE_PATIENCE pauses. */
void wait_for(_Atomic int *flag, int value);
/* Third field of /proc/PID/task/TID/stat. */
char thread_state(pid_t pid, pid_t tid);
void short_pause(void);

/* Whether the kernel runs 32-bit code (CONFIG_IA32_EMULATION); where not, `int $0x80` is a fault. */
bool has_int80(void);

/* The real machine. `ms` is the deadline. */
struct sys real_sys(int ms);
