/* What differs between processors: registers at a system call, and starting a child with clone3(2). */
#pragma once

#include <linux/sched.h>

#include "base.h"

#define ARCH_SYSCALL_MAX 4

/* The general registers of a stopped thread as NT_PRSTATUS has them. */
struct arch_regs {
	unsigned long word[64];
	size_t len; /* bytes that the kernel filled in: shorter for a 32-bit thread */
};

/* The instruction that enters the kernel. */
struct arch_syscall {
	unsigned char code[ARCH_SYSCALL_MAX];
	size_t len; /* 0: cotenant cannot inject on this processor */
};
extern const struct arch_syscall arch_syscall;

/* Whether the thread runs code of the processor's full width, so that the native system calls apply. */
bool arch_is_native(const struct arch_regs *regs);
/* Where the thread goes on: behind the instruction when it sits in a system call. */
unsigned long arch_pc(const struct arch_regs *regs);
/* As if the thread were about to run the instruction at `pc` with these arguments. */
void arch_set_call(struct arch_regs *regs, unsigned long pc, long nr, const unsigned long args[6]);
long arch_result(const struct arch_regs *regs);

/*
 * clone3(2) whose child runs fn(arg) on the stack named in *args and exits with its result. libc has no such wrapper,
 * and with CLONE_VM one cannot be written in C: the child would return on the parent's stack. Pid or negative errno.
 */
long arch_clone3(const struct clone_args *args, int (*fn)(void *arg), void *arg) must_check;
