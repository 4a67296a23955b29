#if !defined(__x86_64__)

/*
 * Cookies, cpusets and anchors need nothing from here and work on every processor; only injection does not.
 * On arm64 the kernel moves the program counter of an interrupted call back before the tracer sees it, and keeps the
 * call's number apart from the registers (arch/arm64/kernel/signal.c): that wants its own code and its own tests.
 */
#include "arch.h"

#include <errno.h>

const struct arch_syscall arch_syscall = { .len = 0 };

bool arch_is_native(const struct arch_regs *regs)
{
	(void) regs;
	return false;
}

unsigned long arch_pc(const struct arch_regs *regs)
{
	(void) regs;
	return 0;
}

void arch_set_call(struct arch_regs *regs, unsigned long pc, long nr, const unsigned long args[6])
{
	(void) regs;
	(void) pc;
	(void) nr;
	(void) args;
}

long arch_result(const struct arch_regs *regs)
{
	(void) regs;
	return -ENOSYS;
}

long arch_clone3(const struct clone_args *args, int (*fn)(void *arg), void *arg)
{
	(void) args;
	(void) fn;
	(void) arg;
	return -ENOSYS;
}

#endif
