/*
 * entry: the first program of a container in guest tests. Says from inside what it was given and what it can still
 * change, then waits for its end. Static: it is all that such a container holds beside busybox.
 *
 *   entry [threads=N] [touch=MIB] [try] [steal=PID]
 *
 * Writes /tmp/report, which appears there only when it is complete; one fact a line, first word what it is of:
 *
 *   first COOKIE             of the main thread, before anything else was done
 *   thread TID COOKIE        of every thread
 *   allowed-cpus LIST        from /proc/self/status, as are the next three
 *   allowed-mems LIST
 *   seccomp N
 *   nnp N
 *   policy TEXT              of the touched memory, from numa_maps
 *   pages NODE COUNT         where it lies
 *   try WHAT RESULT          "ok" or the name of the error
 *   steal RESULT             of taking the cookie of PID
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define REPORT "/tmp/report"

/* Values of linux/prctl.h (5.14), for older headers. */
#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#define PR_SCHED_CORE_GET 0
#define PR_SCHED_CORE_CREATE 1
#define PR_SCHED_CORE_SHARE_TO 2
#define PR_SCHED_CORE_SHARE_FROM 3
#endif
enum { SCOPE_THREAD = 0, SCOPE_THREAD_GROUP = 1 };

#define HIGH_BITS (UINT64_C(0xabcd) << 32) /* of a 64-bit register, where the kernel looks at 32 */
#define X32_BIT 0x40000000
#define PRCTL_I386 172
#define SET_MEMPOLICY_I386 276
#define PAGE 4096u

static FILE *report;

static void die(const char *what)
{
	fprintf(stderr, "entry: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t cookie_of(pid_t tid)
{
	unsigned long long cookie = 0;

	return prctl(PR_SCHED_CORE, PR_SCHED_CORE_GET, tid, SCOPE_THREAD, &cookie) < 0 ? UINT64_MAX : cookie;
}

static void report_cookie(const char *what, pid_t tid)
{
	uint64_t cookie = cookie_of(tid);

	fputs(what, report);
	if (tid)
		fprintf(report, " %d", tid);
	if (cookie == UINT64_MAX)
		fprintf(report, " %s\n", strerrorname_np(errno));
	else
		fprintf(report, " 0x%llx\n", (unsigned long long) cookie);
}

/* ---- threads ---- */

struct crowd {
	pthread_barrier_t all_there;
	pid_t *tids;
	int n;
};

struct member {
	struct crowd *crowd;
	int number;
};

static void *live(void *arg)
{
	struct member *m = arg;

	m->crowd->tids[m->number] = (pid_t) syscall(SYS_gettid);
	pthread_barrier_wait(&m->crowd->all_there);
	while (pause() < 0)
		;
	return NULL;
}

static void report_threads(int n)
{
	static struct crowd crowd; /* outlives main's frame: the threads stay */
	struct member *members = calloc((size_t) n + 1, sizeof(*members));
	pthread_t thread;

	crowd.tids = calloc((size_t) n + 1, sizeof(*crowd.tids));
	if (!members || !crowd.tids || pthread_barrier_init(&crowd.all_there, NULL, (unsigned) n) != 0)
		die("threads");
	crowd.tids[0] = getpid();
	for (int i = 1; i < n; i++) {
		members[i] = (struct member){ .crowd = &crowd, .number = i };
		if (pthread_create(&thread, NULL, live, &members[i]) != 0)
			die("pthread_create");
	}
	pthread_barrier_wait(&crowd.all_there);
	for (int i = 0; i < n; i++)
		report_cookie("thread", crowd.tids[i]);
}

/* ---- memory ---- */

static void report_pages(const char *rest)
{
	const char *policy_end = strstr(rest, " anon=");
	int node, used;
	unsigned long count;

	fprintf(report, "policy %.*s\n", policy_end ? (int) (policy_end - rest) : (int) strcspn(rest, "\n"), rest);
	for (const char *at = strstr(rest, " N"); at; at = strstr(at + 1, " N"))
		if (sscanf(at, " N%d=%lu%n", &node, &count, &used) == 2)
			fprintf(report, "pages %d %lu\n", node, count);
}

static void report_memory(size_t mib)
{
	size_t size = mib << 20;
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *line = NULL;
	size_t room = 0;
	FILE *maps;

	/* Single pages: a ratio of 32 huge ones says little. It also keeps the mapping from being merged with others. */
	if (memory == MAP_FAILED || madvise(memory, size, MADV_NOHUGEPAGE) < 0)
		die("memory");
	for (size_t at = 0; at < size; at += PAGE)
		memory[at] = 1;
	maps = fopen("/proc/self/numa_maps", "re");
	if (!maps)
		die("numa_maps");
	while (getline(&line, &room, maps) > 0) {
		char *rest;

		if (strtoull(line, &rest, 16) == (uintptr_t) memory && *rest == ' ')
			report_pages(rest + 1);
	}
	free(line);
	fclose(maps);
}

static void report_status(void)
{
	static const struct {
		const char *line, *name;
	} wanted[] = {
		{ "Cpus_allowed_list:\t", "allowed-cpus" },
		{ "Mems_allowed_list:\t", "allowed-mems" },
		{ "Seccomp:\t", "seccomp" },
		{ "NoNewPrivs:\t", "nnp" },
	};
	FILE *status = fopen("/proc/self/status", "re");
	char *line = NULL;
	size_t room = 0;

	while (status && getline(&line, &room, status) > 0)
		for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
			if (strncmp(line, wanted[i].line, strlen(wanted[i].line)) == 0)
				fprintf(report, "%s %s", wanted[i].name, line + strlen(wanted[i].line));
	free(line);
	if (status)
		fclose(status);
}

/* ---- what it can change ---- */

/* As a 32-bit program calls. Pointers must lie below 4 GiB. Result as the kernel gave it. */
static long call_i386(long nr, long a, long b, long c, long d, long e)
{
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(nr), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
			 : "memory", "r8", "r9", "r10", "r11");
	return result;
}

static int from_kernel(long result)
{
	return result < 0 && result >= -4095 ? (int) -result : 0;
}

static int from_libc(long result)
{
	return result < 0 ? errno : 0;
}

static int try_get(void)
{
	unsigned long long cookie;

	return from_libc(prctl(PR_SCHED_CORE, PR_SCHED_CORE_GET, 0, SCOPE_THREAD, &cookie));
}

static int try_create(void)
{
	return from_libc(prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0, SCOPE_THREAD_GROUP, 0));
}

static int try_create_high_option(void)
{
	return from_libc(syscall(SYS_prctl, PR_SCHED_CORE | HIGH_BITS, PR_SCHED_CORE_CREATE, 0, SCOPE_THREAD_GROUP, 0));
}

static int try_create_high_command(void)
{
	return from_libc(syscall(SYS_prctl, PR_SCHED_CORE, PR_SCHED_CORE_CREATE | HIGH_BITS, 0, SCOPE_THREAD_GROUP, 0));
}

static int try_create_i386(void)
{
	return from_kernel(call_i386(PRCTL_I386, PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0, SCOPE_THREAD_GROUP, 0));
}

static int try_create_x32(void)
{
	return from_libc(syscall(SYS_prctl | X32_BIT, PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0, SCOPE_THREAD_GROUP, 0));
}

static int try_get_i386(void)
{
	void *low = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);

	return low == MAP_FAILED ? errno :
				   from_kernel(call_i386(PRCTL_I386, PR_SCHED_CORE, PR_SCHED_CORE_GET, 0, SCOPE_THREAD,
							 (long) low));
}

static int try_share_from(void)
{
	return from_libc(prctl(PR_SCHED_CORE, PR_SCHED_CORE_SHARE_FROM, getppid(), SCOPE_THREAD, 0));
}

static int try_share_to(void)
{
	return from_libc(prctl(PR_SCHED_CORE, PR_SCHED_CORE_SHARE_TO, getppid(), SCOPE_THREAD, 0));
}

static int try_set_mempolicy(void)
{
	return from_libc(syscall(SYS_set_mempolicy, 0, NULL, 0));
}

static int try_set_mempolicy_i386(void)
{
	return from_kernel(call_i386(SET_MEMPOLICY_I386, 0, 0, 0, 0, 0));
}

static int try_mbind(void)
{
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return page == MAP_FAILED ? errno : from_libc(syscall(SYS_mbind, page, PAGE, 0, NULL, 0, 0));
}

static int try_move_pages(void)
{
	return from_libc(syscall(SYS_move_pages, 0, 0UL, NULL, NULL, NULL, 0));
}

static int try_get_mempolicy(void)
{
	int mode;

	return from_libc(syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0));
}

static int try_setaffinity(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return errno;
	return from_libc(sched_setaffinity(0, sizeof(set), &set));
}

static const struct {
	const char *name;
	int (*call)(void);
} tries[] = {
	{ "get", try_get },
	{ "get-i386", try_get_i386 },
	{ "create", try_create },
	{ "create-high-option", try_create_high_option },
	{ "create-high-command", try_create_high_command },
	{ "create-i386", try_create_i386 },
	{ "create-x32", try_create_x32 },
	{ "share-from", try_share_from },
	{ "share-to", try_share_to },
	{ "set_mempolicy", try_set_mempolicy },
	{ "set_mempolicy-i386", try_set_mempolicy_i386 },
	{ "mbind", try_mbind },
	{ "move_pages", try_move_pages },
	{ "get_mempolicy", try_get_mempolicy },
	{ "sched_setaffinity", try_setaffinity },
};

/* Each in a child, which what succeeds ends with, and which a call that the kernel lacks may kill. */
static void report_tries(void)
{
	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		int status;
		pid_t pid;

		fflush(report); /* or the child's copy would be written too */
		pid = fork();
		if (pid == 0)
			_exit(tries[i].call());
		if (pid < 0 || waitpid(pid, &status, 0) < 0)
			die("fork");
		if (WIFSIGNALED(status))
			fprintf(report, "try %s signal-%d\n", tries[i].name, WTERMSIG(status));
		else
			fprintf(report, "try %s %s\n", tries[i].name,
				WEXITSTATUS(status) ? strerrorname_np(WEXITSTATUS(status)) : "ok");
	}
}

static void report_theft(pid_t victim)
{
	int stolen = prctl(PR_SCHED_CORE, PR_SCHED_CORE_SHARE_FROM, victim, SCOPE_THREAD, 0);

	fprintf(report, "steal %s\n", stolen < 0 ? strerrorname_np(errno) : "ok");
}

int main(int argc, char **argv)
{
	int threads = 1, try = 0;
	pid_t victim = 0;
	size_t touch = 1;

	report = fopen(REPORT ".new", "we");
	if (!report)
		die(REPORT ".new");
	report_cookie("first", 0);
	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "threads=", 8) == 0)
			threads = atoi(argv[i] + 8);
		else if (strncmp(argv[i], "touch=", 6) == 0)
			touch = (size_t) atoi(argv[i] + 6);
		else if (strncmp(argv[i], "steal=", 6) == 0)
			victim = atoi(argv[i] + 6);
		else if (strcmp(argv[i], "try") == 0)
			try = 1;
		else
			die("unknown argument");
	}
	report_status();
	report_memory(touch);
	if (try)
		report_tries();
	report_threads(threads);
	if (victim)
		report_theft(victim);
	if (fclose(report) != 0 || rename(REPORT ".new", REPORT) < 0)
		die(REPORT);
	for (;;)
		pause();
}
