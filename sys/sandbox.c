/* The seccomp filters, made by sys/filters.c when cotenant is built. */
#include "sys.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "filters.h"

const struct bpf_filter *sandbox_guard_filter(unsigned guard)
{
	return guard && guard < ARRAY_LEN(guards) ? &guards[guard] : NULL;
}

int sandbox_anchor(void)
{
	const struct sock_fprog program = { .len = ARRAY_LEN(anchor), .filter = (struct sock_filter *) anchor };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
		return -errno;
	return 0;
}
