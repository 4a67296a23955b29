/*
 * probe: says what the kernel answers, for guest scripts. Static, so that it
 * also runs inside a busybox container.
 *
 *   probe core-get [PID]        cookie of a thread (self)
 *   probe cookies PID...        "PID TID COOKIE" of every thread
 *   probe core-create [COMMAND [ARG]...]
 *                                  new cookie for itself; print it, or run COMMAND with it
 *   probe without-seccomp COMMAND [ARG]...
 *                                  run COMMAND, where it and its children are refused seccomp(2)
 *
 * Prints the cookie in hex, or the name of the error (exit status 1).
 */
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

static int cookies(const char *pid)
{
	char *path = NULL;
	DIR *dir;

	if (asprintf(&path, "/proc/%s/task", pid) < 0)
		return fail();
	dir = opendir(path);
	free(path);
	if (!dir)
		return fail();
	for (struct dirent *d; (d = readdir(dir));) {
		if (d->d_name[0] == '.')
			continue;
		printf("%s %s ", pid, d->d_name);
		core_get(atoi(d->d_name)); /* the error stands in the line */
	}
	closedir(dir);
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

static int without_seccomp(char **command)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { .len = sizeof(code) / sizeof(*code), .filter = code };

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		return fail();
	execvp(*command, command);
	return fail();
}

int main(int argc, char **argv)
{
	if (argc >= 2 && !strcmp(argv[1], "core-get"))
		return core_get(argc > 2 ? atoi(argv[2]) : 0);
	if (argc >= 3 && !strcmp(argv[1], "cookies")) {
		int failed = 0;

		for (int i = 2; i < argc; i++)
			failed |= cookies(argv[i]);
		return failed;
	}
	if (argc >= 2 && !strcmp(argv[1], "core-create"))
		return core_create(argv + 2);
	if (argc >= 3 && !strcmp(argv[1], "without-seccomp"))
		return without_seccomp(argv + 2);
	fputs("usage: probe core-get [PID] | cookies PID... | core-create [COMMAND [ARG]...] | without-seccomp COMMAND [ARG]...\n",
	      stderr);
	return 2;
}
