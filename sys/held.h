/* A process held by ptrace: what stopping it (sys/hold.c) and running calls in it (sys/inject.c) share. */
#pragma once

#include "arch.h"
#include "sys.h"

#include <signal.h>

struct held_thread {
	pid_t tid;
	struct arch_regs regs;
	uint64_t signal_mask;
	bool away; /* it was sent into a call of ours and has not got its registers back */
};

struct held {
	const struct sys *s;
	pid_t pid;
	struct held_thread *threads;
	size_t n, room;
	struct sigaction old_action; /* of SIGCHLD, in cotenant itself */
	sigset_t old_mask;
	int mem_fd;
	unsigned long syscall_pc; /* where the process has a system call instruction; its threads share their memory */
	unsigned long scratch;
	size_t scratch_size;
	int64_t grace_ns; /* beyond the deadline */
};

/* SIGCHLD is blocked and watched from the one to the other. */
int watch_stops(struct held *h) must_check;
void unwatch_stops(const struct held *h);
/* Stops every thread; those that were stopped are in h->threads, whatever comes back. */
int hold_all(struct held *h, struct error *err) must_check;
bool out_of_time(const struct held *h);
bool has_ended(const struct held *h, pid_t tid);
/* The thread's next stop, whatever it is; the next that our interrupt makes. -ESRCH: it ended. -ETIMEDOUT. */
int wait_stop(const struct held *h, pid_t tid, int *ret_status) must_check;
int wait_held(const struct held *h, pid_t tid) must_check;
