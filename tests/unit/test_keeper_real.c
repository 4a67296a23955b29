/* The keeper itself, asked by the hook's side of it. */
#include "keeper_fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static pid_t start_keeper(struct fixture *f)
{
	cleanup_free char *path = program();
	pid_t pid = fork();
	int fd;

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(path, "cotenant-anchor", "--keep", "--state-dir", f->dir, (char *) NULL);
		_exit(99);
	}
	for (int i = 0; (fd = client(0)) < 0; i++) {
		assert_true(i < TRACEE_PATIENCE);
		short_pause();
	}
	close(fd);
	return pid;
}

static void end_keeper(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* With its anchor, or with the word that there is no cookie to be had. */
static void expect_keepers_anchor(struct fixture *f)
{
	cleanup_proc struct proc_ref p = PROC_REF_NONE;
	uint64_t cookie = 0;
	int why = f->s.ops->cookie_get(0, &cookie), r = ensure(f, &p);

	if (r != why)
		fail_msg("%d: %s", r, error_text(&f->err));
	if (why == 0) {
		assert_int_equal(waitpid(p.pid, NULL, WNOHANG), -1); /* no child of ours */
		assert_int_equal(f->s.ops->cookie_get(p.pid, &cookie), 0);
		assert_true(cookie != 0);
		end_anchor(f);
	} else {
		assert_non_null(strstr(error_text(&f->err), "the keeper (process "));
	}
	expect_no_record(f);
}

static void test_real_keeper(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *text = NULL;
	pid_t keeper = start_keeper(f);
	int fd;

	expect_keepers_anchor(f);
	expect_keepers_anchor(f);
	assert_int_equal(kill(keeper, SIGSTOP), 0);
	fd = client(0); /* takes the child that is ready */
	assert_true(fd >= 0);
	assert_true(asprintf(&text, "the keeper (process %d) did not answer in time", keeper) > 0);
	expect_late(f, text);
	f->s.deadline_ns = sys_now_ns() + LONG_MS * INT64_C(1000000);
	assert_int_equal(kill(keeper, SIGCONT), 0);
	close(fd);
	expect_keepers_anchor(f);
	end_keeper(keeper);
	expect_own_anchor(f);
}

/* No descriptor for a connection: it is taken when there is one again. */
static void test_short_of_descriptors(void **state)
{
	struct fixture *f = *state;
	pid_t keeper = start_keeper(f);
	struct rlimit few, before;
	int fd;

	expect_keepers_anchor(f); /* it has all that it opens for itself */
	assert_int_equal(prlimit(keeper, RLIMIT_NOFILE, NULL, &before), 0);
	few = before;
	few.rlim_cur = 3; /* the standard ones: none is free below that */
	assert_int_equal(prlimit(keeper, RLIMIT_NOFILE, &few, NULL), 0);
	fd = client(0);
	assert_true(fd >= 0);
	f->s.deadline_ns = sys_now_ns() + SHORT_MS * INT64_C(1000000);
	expect_refusal(f, -ETIMEDOUT, "did not answer in time");
	assert_int_equal(waitpid(keeper, NULL, WNOHANG), 0);
	assert_int_equal(prlimit(keeper, RLIMIT_NOFILE, &before, NULL), 0);
	f->s.deadline_ns = sys_now_ns() + LONG_MS * INT64_C(1000000);
	expect_keepers_anchor(f);
	close(fd);
	end_keeper(keeper);
}

/* A hook that connects and says nothing is waited for by a child of the keeper's, which must not be taken for it. */
static void test_silent_hook(void **state)
{
	struct fixture *f = *state;
	pid_t keeper = start_keeper(f);
	int fd = client(0);

	assert_true(fd >= 0);
	expect_keepers_anchor(f); /* connections are taken in turn: the silent one has its child by now */
	end_keeper(keeper);
	expect_own_anchor(f);
	close(fd);
}

static ino_t socket_now(void)
{
	struct stat st;

	return stat(address.sun_path, &st) < 0 ? 0 : st.st_ino;
}

static pid_t listener_now(void)
{
	cleanup_fd int fd = client(0);
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);

	return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 ? peer.pid : 0;
}

/* A keeper that is killed just after it forked leaves a child that has its socket open for a moment more. */
static void test_listener_has_ended(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *path = program();
	int held[2];
	pid_t dead, keeper;
	ino_t old;

	assert_int_equal(pipe(held), 0);
	dead = fork();
	if (dead == 0) {
		char byte;
		int fd = bound();

		if (listen(fd, 8) < 0)
			_exit(99);
		if (fork() > 0)
			_exit(0);
		close(held[1]);
		_exit(read(held[0], &byte, 1) == 0 ? 0 : 99);
	}
	close(held[0]);
	assert_int_equal(waitpid(dead, NULL, 0), dead);
	assert_int_equal(listener_now(), dead);
	old = socket_now();
	keeper = fork();
	if (keeper == 0) {
		execl(path, "cotenant-anchor", "--keep", "--state-dir", f->dir, (char *) NULL);
		_exit(99);
	}
	/* No connections to the dead one meanwhile: they would stay in its queue. */
	for (int i = 0; socket_now() == old || listener_now() != keeper; i++) {
		assert_true(i < TRACEE_PATIENCE);
		assert_int_equal(waitpid(keeper, NULL, WNOHANG), 0);
		short_pause();
	}
	expect_keepers_anchor(f);
	close(held[1]);
	end_keeper(keeper);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_keeper(test_real_keeper),
		with_keeper(test_short_of_descriptors),
		with_keeper(test_silent_hook),
		with_keeper(test_listener_has_ended),
	};

	return cmocka_run_group_tests_name("keeper itself", tests, NULL, NULL);
}
