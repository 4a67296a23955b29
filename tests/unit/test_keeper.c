/* The hook's side of the keeper, with processes that stand for one, and with the real one. */
#include "tracee.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "ledger.h"

#define GROUP "red"
#define LONG_MS 60000
#define SHORT_MS 300

struct fixture {
	struct sys s;
	struct ledger *l;
	char *dir;
	struct error err;
	struct tracee fake;
};

static struct sockaddr_un address; /* of the socket in the state directory */

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->s = real_sys(LONG_MS);
	f->dir = tree_new();
	assert_int_equal(ledger_open(&f->s, f->dir, &f->l, &f->err), 0);
	address.sun_family = AF_UNIX;
	assert_true((size_t) snprintf(address.sun_path, sizeof(address.sun_path), "%s/" KEEPER_SOCKET, f->dir) <
		    sizeof(address.sun_path));
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	ledger_close(f->l);
	tree_free(f->dir);
	error_done(&f->err);
	sys_done(&f->s);
	free(f);
	return 0;
}

/* ---- what is looked at ---- */

static int ensure(struct fixture *f, struct proc_ref *p)
{
	return anchor_ensure(&f->s, f->l, NULL, GROUP, p, &f->err);
}

static void end(struct fixture *f)
{
	assert_int_equal(ledger_lock_name(f->l, LOCK_GROUP, GROUP, &f->err), 0);
	assert_int_equal(anchor_end(&f->s, f->l, GROUP, &f->err), 0);
	ledger_unlock_name(f->l, LOCK_GROUP, GROUP);
}

static void expect_no_record(struct fixture *f)
{
	struct anchor_ref ref;

	assert_int_equal(ledger_get_anchor(f->l, GROUP, &ref, &f->err), -ENOENT);
}

/* Looked for beside the running program, be it as the keeper or as an anchor of the hook's own. */
static char *program(void)
{
	char self[PATH_MAX] = "";
	char *path = NULL;

	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	assert_true(asprintf(&path, "%s/cotenant-anchor", dirname(self)) > 0);
	if (access(path, X_OK) < 0)
		assert_int_equal(symlink("../../cotenant-anchor", path), 0);
	assert_int_equal(access(path, X_OK), 0); /* make all builds it */
	return path;
}

/* The hook starts its own: where the kernel has no cookies it fails at that. */
static void expect_own_anchor(struct fixture *f)
{
	cleanup_proc struct proc_ref p = PROC_REF_NONE;
	cleanup_free char *path = program();
	uint64_t cookie;
	int why = f->s.ops->cookie_get(0, &cookie), r = ensure(f, &p);

	if (r != why)
		fail_msg("%d: %s", r, error_text(&f->err));
	if (why == 0) {
		end(f);
		assert_int_equal(waitpid(p.pid, NULL, 0), p.pid);
	} else {
		assert_non_null(strstr(error_text(&f->err), "anchor of group red: no cookie could be created"));
	}
	expect_no_record(f);
}

static void expect_refusal(struct fixture *f, int code, const char *text)
{
	struct proc_ref p = PROC_REF_NONE;

	assert_int_equal(ensure(f, &p), code);
	if (!strstr(error_text(&f->err), text))
		fail_msg("says:  %s\nwants: %s", error_text(&f->err), text);
	expect_no_record(f);
}

/* ---- keepers that are none ---- */

static int bound(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	unlink(address.sun_path);
	if (fd < 0 || bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0)
		_exit(99);
	return fd;
}

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

static void on_alarm(int signal)
{
	(void) signal;
}

/* As the hook does it: blocking calls end with EINTR, again and again. */
static void interrupt_often(bool on)
{
	const struct sigaction action = { .sa_handler = on ? on_alarm : SIG_DFL };
	const struct itimerval timer = { .it_value.tv_usec = on ? 10000 : 0, .it_interval.tv_usec = on ? 10000 : 0 };

	if (on)
		assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
	if (!on)
		assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
}

static void expect_late(struct fixture *f, const char *text)
{
	for (int interrupted = 0; interrupted < 2; interrupted++) {
		f->s.deadline_ns = sys_now_ns() + SHORT_MS * INT64_C(1000000);
		interrupt_often(interrupted);
		expect_refusal(f, -ETIMEDOUT, text);
		interrupt_often(false);
	}
}

static void test_hangs(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *text = NULL;

	start_fake(f, hang_body);
	assert_true(asprintf(&text, "process %d) did not answer in time: if it hangs or is stopped", f->fake.pid) > 0);
	expect_late(f, text);
	tracee_end(&f->fake);
}

static int client(int flags)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);

	assert_true(fd >= 0);
	if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
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
		end(&f);
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

/* ---- the real one ---- */

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
		end(f);
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
	keeper = fork();
	if (keeper == 0) {
		execl(path, "cotenant-anchor", "--keep", "--state-dir", f->dir, (char *) NULL);
		_exit(99);
	}
	for (int i = 0; listener_now() != keeper; i++) {
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
		cmocka_unit_test_setup_teardown(test_falls_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_user, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hangs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hangs_with_a_queue, setup, teardown),
		cmocka_unit_test_setup_teardown(test_let_go, setup, teardown),
		cmocka_unit_test_setup_teardown(test_below_crun_run, setup, teardown),
		cmocka_unit_test_setup_teardown(test_real_keeper, setup, teardown),
		cmocka_unit_test_setup_teardown(test_short_of_descriptors, setup, teardown),
		cmocka_unit_test_setup_teardown(test_silent_hook, setup, teardown),
		cmocka_unit_test_setup_teardown(test_listener_has_ended, setup, teardown),
	};

	if (getenv("TEST_STATE_DIR"))
		return runtime_main();
	return cmocka_run_group_tests_name("keeper", tests, NULL, NULL);
}
