/*
 * vm-probe: says what the kernel answers, for guest scripts. Static, so that it
 * also runs inside a busybox container.
 *
 *   vm-probe core-get [PID]        cookie of a thread (self)
 *   vm-probe core-create [COMMAND [ARG]...]
 *                                  new cookie for itself; print it, or run COMMAND with it
 *
 * Prints the cookie in hex, or the name of the error (exit status 1).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Values of linux/prctl.h (5.14), for older headers. */
#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#define PR_SCHED_CORE_GET 0
#define PR_SCHED_CORE_CREATE 1
#endif
enum { SCOPE_THREAD = 0, SCOPE_THREAD_GROUP = 1 };

static int fail(void)
{
	puts(strerrorname_np(errno));
	return 1;
}

static int core_get(pid_t pid)
{
	unsigned long long cookie = 0;

	if (prctl(PR_SCHED_CORE, PR_SCHED_CORE_GET, pid, SCOPE_THREAD, &cookie) < 0)
		return fail();
	printf("0x%llx\n", cookie);
	return 0;
}

static int core_create(char **command)
{
	if (prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0, SCOPE_THREAD_GROUP, 0) < 0)
		return fail();
	if (!*command)
		return core_get(0);
	execvp(*command, command);
	return fail();
}

int main(int argc, char **argv)
{
	if (argc >= 2 && !strcmp(argv[1], "core-get"))
		return core_get(argc > 2 ? atoi(argv[2]) : 0);
	if (argc >= 2 && !strcmp(argv[1], "core-create"))
		return core_create(argv + 2);
	fputs("usage: vm-probe core-get [PID] | core-create [COMMAND [ARG]...]\n", stderr);
	return 2;
}
