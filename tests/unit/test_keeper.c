/* The hook's side of the keeper, with processes that stand for one. */
#include "keeper_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ---- keepers that are none ---- */

static int listening(struct tracee *t, int backlog)
{
	int fd = bound();

	if (listen(fd, backlog) < 0)
		_exit(99);
	t->shared->slot[0].tid = t->pid;
	return fd;
}

static void start_fake(struct fixture *f, void (*body)(struct tracee *))
{
	tracee_start(&f->fake, body);
	wait_for(&f->fake.shared->slot[0].tid, 1);
}

static void hang_body(struct tracee *t)
{
	listening(t, 8);
	for (;;)
		pause();
}

static void hang_up_body(struct tracee *t)
{
	for (int fd = listening(t, 8);;)
		close(accept(fd, NULL, NULL));
}

static void hear_and_hang_up_body(struct tracee *t)
{
	char title[16];

	for (int fd = listening(t, 8);;) {
		int hook = accept(fd, NULL, NULL);

		if (recv(hook, title, sizeof(title), 0) != sizeof(GROUP) - 1)
			_exit(99);
		close(hook);
	}
}

static void answer_all(struct tracee *t, const void *answer, size_t len)
{
	for (int fd = listening(t, 8);;) {
		int hook = accept(fd, NULL, NULL);

		send(hook, answer, len, MSG_NOSIGNAL);
		close(hook); /* the name was not read: the hook finds its connection reset */
	}
}

static void say_no_body(struct tracee *t)
{
	const struct keeper_answer answer = { .result = -EAGAIN };

	answer_all(t, &answer, sizeof(answer));
}

static void say_other_body(struct tracee *t)
{
	const struct keeper_answer answer = { .pid = 1 };

	answer_all(t, &answer, sizeof(answer));
}

static void say_little_body(struct tracee *t)
{
	answer_all(t, "x", 1);
}

static void other_user_body(struct tracee *t)
{
	int fd = bound();

	if (setresuid(65534, 65534, 65534) < 0 || listen(fd, 8) < 0)
		_exit(99);
	t->shared->slot[0].tid = t->pid;
	for (;;)
		pause();
}

/* Answers for itself, and lets go before the hook has seen that. */
static void let_go_body(struct tracee *t)
{
	const struct keeper_answer answer = { .pid = t->pid };
	int hook = accept(listening(t, 8), NULL, NULL);
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);
	char title[16];

	if (getsockopt(hook, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || recv(hook, title, sizeof(title), 0) < 0)
		_exit(99);
	kill(peer.pid, SIGSTOP);
	while (thread_state(peer.pid, peer.pid) != 'T')
		short_pause();
	send(hook, &answer, sizeof(answer), MSG_NOSIGNAL);
	close(hook);
	kill(peer.pid, SIGCONT);
	for (;;)
		pause();
}

/* ---- nobody, or nobody who helps ---- */

static void test_falls_back(void **state)
{
	static void (*const bodies[])(struct tracee *) = { hang_up_body, hear_and_hang_up_body, say_no_body };
	struct fixture *f = *state;

	expect_own_anchor(f);
	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		start_fake(f, bodies[i]);
		expect_own_anchor(f);
		tracee_end(&f->fake);
		assert_int_equal(access(address.sun_path, F_OK), 0);
		expect_own_anchor(f); /* a socket that is left */
	}
}

static void test_wrong_answers(void **state)
{
	struct fixture *f = *state;

	start_fake(f, say_other_body);
	expect_refusal(f, -EPROTO, "answers for process 1");
	tracee_end(&f->fake);
	start_fake(f, say_little_body);
	expect_refusal(f, -EPROTO, "of another version");
	tracee_end(&f->fake);
}

static void test_other_user(void **state)
{
	struct fixture *f = *state;

	if (geteuid() != 0)
		skip();
	start_fake(f, other_user_body);
	expect_refusal(f, -EPERM, "keeper: belongs to a process of user 65534");
	tracee_end(&f->fake);
}

/* ---- the deadline ---- */

static void test_hangs(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *text = NULL;

	start_fake(f, hang_body);
	assert_true(asprintf(&text, "process %d) did not answer in time: if it hangs or is stopped", f->fake.pid) > 0);
	expect_late(f, text);
	tracee_end(&f->fake);
}

static void test_hangs_with_a_queue(void **state)
{
	struct fixture *f = *state;
	int fds[16], n = 0;

	start_fake(f, hang_body);
	while ((fds[n] = client(SOCK_NONBLOCK)) >= 0)
		assert_true(++n < 16);
	assert_int_equal(errno, EAGAIN);
	expect_late(f, "takes no connections: if it hangs or is stopped");
	while (n > 0)
		close(fds[--n]);
	tracee_end(&f->fake);
}

/* ---- an anchor that is gone before it is on record ---- */

struct outcome {
	_Atomic int done;
	int result;
	char text[512];
};

static void test_let_go(void **state)
{
	struct fixture *f = *state;
	struct outcome *o = mmap(NULL, sizeof(*o), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t hook;

	assert_ptr_not_equal(o, MAP_FAILED);
	start_fake(f, let_go_body);
	hook = fork();
	if (hook == 0) {
		struct proc_ref p = PROC_REF_NONE;

		o->result = ensure(f, &p);
		snprintf(o->text, sizeof(o->text), "%s", error_text(&f->err));
		o->done = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(hook, NULL, 0), hook);
	assert_int_equal(o->done, 1);
	expect_no_record(f);
	assert_int_equal(o->result, -EIO);
	assert_non_null(strstr(o->text, "ended at once"));
	assert_int_equal(waitpid(f->fake.pid, NULL, WNOHANG), 0); /* and whoever has its number lives */
	tracee_end(&f->fake);
	munmap(o, sizeof(*o));
}

/* ---- below a runtime that waits for its children: this program, under another name ---- */

static int hook_main(const char *dir)
{
	struct fixture f = { .s = real_sys(LONG_MS) };
	cleanup_proc struct proc_ref p = PROC_REF_NONE;

	if (ledger_open(&f.s, dir, &f.l, &f.err) < 0)
		return 99;
	if (ensure(&f, &p) == 0) {
		printf("own anchor");
		end_anchor(&f);
	} else if (strstr(error_text(&f.err), "no cookie could be created")) {
		printf("own anchor");
	} else {
		printf("%s", error_text(&f.err));
	}
	ledger_close(f.l);
	sys_done(&f.s);
	error_done(&f.err);
	return fflush(stdout);
}

static int runtime_main(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(hook_main(getenv("TEST_STATE_DIR")));
	return waitpid(pid, NULL, 0) == pid ? 0 : 1;
}

static void expect_below(struct fixture *f, const char *const argv[], const char *text)
{
	char said[1024] = "";
	size_t len = 0;
	int ends[2];
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		dup2(ends[1], 1);
		setenv("TEST_STATE_DIR", f->dir, 1);
		execv("/proc/self/exe", (char *const *) (uintptr_t) argv);
		_exit(99);
	}
	close(ends[1]);
	while ((n = read(ends[0], said + len, sizeof(said) - 1 - len)) > 0)
		len += (size_t) n;
	close(ends[0]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	if (!strstr(said, text))
		fail_msg("%s %s …\nsays:  %s\nwants: %s", argv[1], argv[2], said, text);
}

static void test_below_crun_run(void **state)
{
	static const char *const waits[][5] = {
		{ "crun", "run", "x" },
		{ "/usr/bin/crun", "--debug", "run", "x" },
		{ "crun", "run", "--no-pivot", "x" },
	};
	static const char *const returns[][6] = {
		{ "crun", "run", "-d", "x" },
		{ "crun", "run", "--detach", "x" },
		{ "crun", "run", "--det", "x" },
		{ "crun", "run", "-db", "/tmp", "x" },
		{ "crun", "create", "run" },
		{ "crun", "create", "-b", "run", "x" },
		{ "runc", "run", "x" },
	};
	struct fixture *f = *state;
	cleanup_free char *closed = NULL, *no = NULL;

	for (size_t i = 0; i < ARRAY_LEN(returns); i++)
		expect_below(f, returns[i], "own anchor");
	for (size_t i = 0; i < ARRAY_LEN(waits); i++)
		expect_below(f, waits[i],
			     "anchor of group red: no keeper listens, and \"crun run\" in the foreground would wait for an anchor "
			     "of the hook's for ever: start the keeper");
	start_fake(f, hang_up_body);
	assert_true(asprintf(&closed, "the keeper (process %d) closed the connection, and \"crun run\"", f->fake.pid) > 0);
	expect_below(f, waits[0], closed);
	tracee_end(&f->fake);
	start_fake(f, say_no_body);
	assert_true(asprintf(&no, "the keeper (process %d) could start none: Resource temporarily unavailable, and",
			     f->fake.pid) > 0);
	expect_below(f, waits[0], no);
	tracee_end(&f->fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_keeper(test_falls_back),
		with_keeper(test_wrong_answers),
		with_keeper(test_other_user),
		with_keeper(test_hangs),
		with_keeper(test_hangs_with_a_queue),
		with_keeper(test_let_go),
		with_keeper(test_below_crun_run),
	};

	if (getenv("TEST_STATE_DIR"))
		return runtime_main();
	return cmocka_run_group_tests_name("keeper", tests, NULL, NULL);
}
