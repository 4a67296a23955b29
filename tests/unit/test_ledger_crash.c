/* The ledger under stress: processes killed at every system call, many writers at once, locks. */
#include "ledger_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000000)

/* ---- killed at every system call ---- */

static void op_put_new(struct ledger *l)
{
	put(l, "new", "g", "7");
}

static void op_put_known(struct ledger *l)
{
	put(l, "known", "g2", "4-6");
}

static void op_drop(struct ledger *l)
{
	assert_int_equal(ledger_drop(l, "known", NULL), 0);
}

static void op_rebuild(struct ledger *l)
{
	look(l, false);
}

/* Runs op in a child and kills it at its `at`th stop. False: it ended before that. */
static bool kill_at(struct fixture *f, void (*op)(struct ledger *l), unsigned at)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		cleanup_ledger struct ledger *l = NULL;

		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(77);
		l = open_locked(f);
		raise(SIGSTOP);
		op(l);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	for (unsigned i = 0; WIFSTOPPED(status); i++) {
		if (i == at)
			kill(pid, SIGKILL);
		else
			ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("ptrace(PTRACE_TRACEME) is not permitted here\n");
		skip();
	}
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
	return WIFSIGNALED(status);
}

static void test_killed_anywhere(void **state)
{
	static const struct {
		void (*op)(struct ledger *l);
		size_t before, after;
		bool spoil;
	} cases[] = {
	    {op_put_new, 2, 3, false}, {op_put_known, 2, 2, false}, {op_drop, 2, 1, false}, {op_rebuild, 2, 2, true}};
	struct fixture *f = *state;
	cleanup_free char *index = path_in(f, "index");

	for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
		bool killed = true;
		unsigned at = 0;

		for (; killed; at++) {
			cleanup_ledger struct ledger *l = open_locked(f);
			size_t n;

			assert_int_equal(ledger_drop(l, "new", NULL), 0);
			put(l, "known", "g", "0-3");
			put(l, "other", "g", "1");
			if (cases[c].spoil)
				assert_int_equal(unlink(index), 0);
			ledger_unlock(l);
			killed = kill_at(f, cases[c].op, at);
			assert_int_equal(ledger_lock(l, NULL), 0);
			n = check_consistent(l);
			assert_true(n == cases[c].before || n == cases[c].after);
			if (!killed)
				assert_int_equal(n, cases[c].after);
			assert_int_equal(count_files(f, "containers", ".bad"), 0);
		}
		assert_true(at > 10);
	}
}

/* ---- many at once ---- */

static void wait_all(const pid_t *pids, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int status = 0;

		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
}

static void churn(struct fixture *f, unsigned process)
{
	cleanup_ledger struct ledger *l = open_ledger(f);
	char id[32];

	for (unsigned i = 0; i < 50; i++) {
		snprintf(id, sizeof(id), "p%u-%u", process, i);
		if (ledger_lock(l, NULL) < 0)
			_exit(1);
		put(l, id, "g", "0-3");
		ledger_unlock(l);
		if (i % 10 == 0)
			continue; /* five of fifty stay */
		if (ledger_lock(l, NULL) < 0 || ledger_drop(l, id, NULL) < 0)
			_exit(1);
		ledger_unlock(l);
	}
}

static void test_many_writers(void **state)
{
	struct fixture *f = *state;
	cleanup_ledger struct ledger *l = open_ledger(f);
	pid_t pids[8];

	f->sys.deadline_ns = sys_now_ns() + 120 * SECOND;
	for (unsigned i = 0; i < ARRAY_LEN(pids); i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			churn(f, i);
			_exit(0);
		}
	}
	wait_all(pids, ARRAY_LEN(pids));
	assert_int_equal(ledger_lock(l, NULL), 0);
	assert_int_equal(check_consistent(l), 5 * ARRAY_LEN(pids));
}

/* ---- locks ---- */

static void test_lock_excludes(void **state)
{
	struct fixture *f = *state;
	volatile unsigned *count =
	    mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[50];

	assert_ptr_not_equal(count, MAP_FAILED);
	f->sys.deadline_ns = sys_now_ns() + 120 * SECOND;
	for (unsigned i = 0; i < ARRAY_LEN(pids); i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			struct ledger *l = open_ledger(f);

			for (unsigned k = 0; k < 20; k++) {
				unsigned seen;

				if (ledger_lock(l, NULL) < 0)
					_exit(1);
				seen = *count;
				sched_yield();
				*count = seen + 1;
				ledger_unlock(l);
			}
			_exit(0);
		}
	}
	wait_all(pids, ARRAY_LEN(pids));
	assert_int_equal(*count, 20 * ARRAY_LEN(pids));
	munmap((void *) count, sizeof(*count));
}

/* A child that takes the locks, says so, and holds them until it is killed. */
static pid_t hold_locks(struct fixture *f, const char *group)
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		struct ledger *l = open_locked(f);

		if (ledger_lock_name(l, LOCK_GROUP, group, NULL) < 0 || write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void test_lock_deadline(void **state)
{
	struct fixture *f = *state;
	cleanup_ledger struct ledger *l = open_ledger(f);
	cleanup_error struct error err = {0};
	pid_t holder = hold_locks(f, "bank\x1b[2J");
	cleanup_free char *process = NULL;

	assert_true(asprintf(&process, "process %d (", holder) > 0);
	f->sys.deadline_ns = sys_now_ns() + SECOND / 20;
	assert_int_equal(ledger_lock(l, &err), -ETIMEDOUT);
	assert_non_null(strstr(error_text(&err), process));
	assert_int_equal(ledger_lock_name(l, LOCK_GROUP, "bank\x1b[2J", &err), -ETIMEDOUT);
	assert_non_null(strstr(error_text(&err), process));
	assert_non_null(strstr(error_text(&err), "bank\\x1b[2J"));
	assert_int_equal(ledger_lock_name(l, LOCK_GROUP, "shop", NULL), 0);
	ledger_unlock_name(l, LOCK_GROUP, "shop");
	kill(holder, SIGKILL);
	assert_int_equal(waitpid(holder, NULL, 0), holder);
	assert_int_equal(ledger_lock(l, NULL), 0);
	assert_int_equal(ledger_lock(l, NULL), -EDEADLK);
	assert_int_equal(ledger_lock_name(l, LOCK_GROUP, "bank\x1b[2J", NULL), 0);
}

/* ---- what is half done ---- */

/* The linker puts this in its place. */
char *__real_mask_format(const struct mask *m);
char *__wrap_mask_format(const struct mask *m);
static bool no_memory_for_masks;

char *__wrap_mask_format(const struct mask *m)
{
	return no_memory_for_masks ? NULL : __real_mask_format(m);
}

/* What cannot be written whole must not take the place of what was. */
static void test_put_without_memory(void **state)
{
	cleanup_ledger struct ledger *l = open_locked(*state);
	cleanup_entry struct entry *e = new_entry("c1", "bank", "0-3"), *got = NULL;

	assert_int_equal(ledger_put(l, e, NULL), 0);
	mask_set(&e->plan->cpus, 8);
	no_memory_for_masks = true;
	assert_int_equal(ledger_put(l, e, NULL), -ENOMEM);
	no_memory_for_masks = false;
	assert_int_equal(ledger_get(l, "c1", &got, NULL), 0);
	assert_false(mask_test(&got->plan->cpus, 8));
	free(TAKE_PTR(e->cgroup));
	assert_int_equal(ledger_put(l, e, NULL), -EINVAL);
}

/* A writer that lives, whose rename is still to come, keeps its file. */
static void test_left_behind(void **state)
{
	static const char *const dirs[] = { "", "groups/", "containers/" };
	struct fixture *f = *state;
	cleanup_ledger struct ledger *l = open_locked(f);
	cleanup_free char *index = path_in(f, "index"), *dead = NULL, *alive = NULL;
	pid_t gone = dead_pid();

	put(l, "c1", "g", "0");
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		freep(&dead);
		freep(&alive);
		assert_true(asprintf(&dead, "%s.%d.tmp", dirs[i], gone) > 0);
		assert_true(asprintf(&alive, "%s.%d.tmp", dirs[i], getppid()) > 0);
		write_file(f, dead, "left behind", 0);
		write_file(f, alive, "being written", 0);
	}
	write_file(f, ".tmp", "not ours", 0);
	assert_int_equal(unlink(index), 0);
	assert_int_equal(check_consistent(l), 1);
	assert_int_equal(count_files(f, "containers", ".tmp"), 0);
	assert_int_equal(count_files(f, "groups", ".tmp"), 1);
	assert_int_equal(count_files(f, ".", ".tmp"), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    with_ledger(test_killed_anywhere),
	    with_ledger(test_many_writers),
	    with_ledger(test_lock_excludes),
	    with_ledger(test_lock_deadline),
	    with_ledger(test_put_without_memory),
	    with_ledger(test_left_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
