#include "tracee.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

void short_pause(void)
{
	const struct timespec ms = { .tv_nsec = 1000000 };

	nanosleep(&ms, NULL);
}

void wait_for(_Atomic int *flag, int value)
{
	for (int i = 0; *flag < value; i++) {
		assert_true(i < TRACEE_PATIENCE);
		short_pause();
	}
}

/* cmocka's handlers would have a child that faults go on with the parent's tests. */
static void leave_cmocka(void)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS };

	for (size_t i = 0; i < ARRAY_LEN(faults); i++)
		signal(faults[i], SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void tracee_start(struct tracee *t, void (*body)(struct tracee *t))
{
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	t->from_parent = fds[0];
	t->to_child = fds[1];
	t->shared = mmap(NULL, sizeof(*t->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(t->shared, MAP_FAILED);
	fflush(NULL);
	t->pid = fork();
	assert_true(t->pid >= 0);
	if (t->pid == 0) {
		t->pid = getpid();
		leave_cmocka();
		body(t);
		_exit(0);
	}
}

void tracee_end(struct tracee *t)
{
	kill(t->pid, SIGKILL);
	/* A test that holds it is both tracer and parent, and may have reaped it. */
	if (waitpid(t->pid, NULL, 0) != t->pid)
		assert_int_equal(errno, ECHILD);
	close(t->to_child);
	close(t->from_parent);
	munmap(t->shared, sizeof(*t->shared));
}

void tracee_thread(struct tracee *t, int i, void *(*body)(void *))
{
	struct tracee_arg *arg = malloc(sizeof(*arg));
	pthread_t thread;

	*arg = (struct tracee_arg){ .t = t, .slot = &t->shared->slot[i] };
	if (pthread_create(&thread, NULL, body, arg))
		_exit(99);
}

void slot_parking(struct slot *s)
{
	s->tid = (int) syscall(SYS_gettid);
}

void slot_done(struct slot *s, long result, int error, int64_t began_ns)
{
	s->result = result;
	s->error = error;
	s->took_ns = sys_now_ns() - began_ns;
	s->done = 1;
}

char thread_state(pid_t pid, pid_t tid)
{
	char path[64], text[512] = "", *end;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
	f = fopen(path, "re");
	if (!f)
		return '-';
	end = fgets(text, sizeof(text), f) ? strrchr(text, ')') : NULL;
	fclose(f);
	return end ? end[2] : '-';
}

void tracee_wait_parked(const struct tracee *t, int slots)
{
	for (int i = 0; i < slots; i++) {
		struct slot *s = &t->shared->slot[i];

		wait_for(&s->tid, 1);
		for (int k = 0; thread_state(t->pid, s->tid) != 'S'; k++) {
			assert_true(k < TRACEE_PATIENCE);
			short_pause();
		}
	}
}

bool has_int80(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		long r = 20; /* getpid */

		leave_cmocka();
		__asm__ volatile("int $0x80" : "+a"(r) : : "memory", "r8", "r9", "r10", "r11");
		_exit(r == getpid() ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct sys real_sys(int ms)
{
	struct sys s;

	assert_int_equal(sys_open(NULL, &s, NULL), 0);
	s.deadline_ns = sys_now_ns() + ms * INT64_C(1000000);
	return s;
}
