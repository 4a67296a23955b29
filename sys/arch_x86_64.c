#if defined(__x86_64__)

#include "arch.h"

#include <sys/syscall.h>
#include <sys/user.h>

const struct arch_syscall arch_syscall = { .code = { 0x0f, 0x05 }, .len = 2 };

bool arch_is_native(const struct arch_regs *regs)
{
	return regs->len == sizeof(struct user_regs_struct);
}

static struct user_regs_struct get(const struct arch_regs *regs)
{
	struct user_regs_struct user;

	memcpy(&user, regs->word, sizeof(user));
	return user;
}

unsigned long arch_pc(const struct arch_regs *regs)
{
	return get(regs).rip;
}

void arch_set_call(struct arch_regs *regs, unsigned long pc, long nr, const unsigned long args[6])
{
	struct user_regs_struct user = get(regs);

	user.rip = pc;
	user.rax = (unsigned long) nr;
	/* Not in a system call any more: rax is no result that could ask for a restart (arch/x86/kernel/signal.c). */
	user.orig_rax = (unsigned long) -1;
	user.rdi = args[0];
	user.rsi = args[1];
	user.rdx = args[2];
	user.r10 = args[3];
	user.r8 = args[4];
	user.r9 = args[5];
	memcpy(regs->word, &user, sizeof(user));
}

long arch_result(const struct arch_regs *regs)
{
	return (long) get(regs).rax;
}

long arch_clone3(const struct clone_args *args, int (*fn)(void *arg), void *arg)
{
	long ret = SYS_clone3;

	/* The child comes out with the same registers but the stack pointer; it never returns from here. */
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %[arg], %%rdi\n\t"
			 "call *%[fn]\n\t"
			 "mov %%eax, %%edi\n\t"
			 "mov %[exit], %%eax\n\t"
			 "syscall\n\t"
			 "hlt\n"
			 "1:"
			 : "+a"(ret)
			 : "D"(args), "S"(sizeof(*args)), [fn] "r"(fn), [arg] "r"(arg), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory", "cc");
	return ret;
}

#endif
