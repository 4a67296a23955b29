#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const struct sys forever = { .root_fd = -1 };

static int run(const struct sys *s, const char *script, struct error *err)
{
	return helper_run(s, (const char *const[]){ "/bin/sh", "-c", script, NULL }, err);
}

static void expect_ok(const char *script)
{
	cleanup_error struct error err = { 0 };

	if (run(&forever, script, &err) < 0)
		fail_msg("%s: %s", script, error_text(&err));
}

static void expect_error(const char *script, const char *text)
{
	cleanup_error struct error err = { 0 };

	assert_int_equal(run(&forever, script, &err), -EIO);
	assert_string_equal(error_text(&err), text);
}

static void test_results(void **state)
{
	(void) state;
	expect_ok("echo not shown >&2; exit 0");
	expect_error("echo first >&2; printf 'last \\033[31m\\n\\n' >&2; exit 3", "last \\x1b[31m");
	expect_error("printf 'no newline' >&2; exit 3", "no newline");
	expect_error("exit 3", "sh failed with status 3 and said nothing");
	expect_error("kill -9 $$", "sh was killed by signal 9 (Killed)");
}

/* More than the pipe and the buffer hold, and a line longer than what is shown. */
static void test_much_output(void **state)
{
	cleanup_error struct error err = { 0 };

	(void) state;
	expect_error("i=0; while [ $i -lt 20000 ]; do echo some line $i; i=$((i+1)); done >&2; exit 1",
		     "some line 19999");
	assert_int_equal(run(&forever, "printf '%0300d\\n%0300dEND\\n' 0 0 >&2; exit 1", &err), -EIO);
	assert_int_equal(strlen(error_text(&err)), 303);
	assert_int_equal(run(&forever, "printf '%5000s' x >&2; exit 1", &err), -EIO);
	assert_true(strlen(error_text(&err)) <= 403);
}

static void test_nothing_is_inherited(void **state)
{
	int fd = open("/dev/null", O_RDONLY); /* as a runtime would leave it: not close-on-exec */
	cleanup_free char *script = NULL;
	sigset_t blocked, before;

	(void) state;
	assert_true(fd > 2);
	assert_true(asprintf(&script, "test ! -e /proc/self/fd/%d", fd) > 0);
	expect_ok(script);
	close(fd);
	assert_int_equal(setenv("COTENANT_TEST", "1", 1), 0);
	expect_ok("test -z \"$COTENANT_TEST\"");
	expect_ok("test \"$(readlink /proc/self/fd/0)\" = /dev/null");
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGTERM);
	assert_int_equal(sigprocmask(SIG_BLOCK, &blocked, &before), 0);
	expect_error("kill -TERM $$; exit 0", "sh was killed by signal 15 (Terminated)");
	assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
}

static void test_answer(void **state)
{
	static const struct {
		const char *script;
		size_t limit;
		int result;
		size_t len;
		const char *text;
	} answers[] = {
		{ "echo one; echo not shown >&2; echo two", 100, 0, 8, "one\ntwo\n" },
		{ "printf '%200000d' 0", 1u << 20, 0, 200000, NULL },
		{ "true", 100, 0, 0, "" },
		{ "echo one; echo why >&2; exit 1", 100, -EIO, 0, "why" },
		{ "printf '%101d' 0", 100, -EFBIG, 0, "sh: its answer cannot be kept: File too large" },
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
		const char *argv[] = { "/bin/sh", "-c", answers[i].script, NULL };
		cleanup_error struct error err = { 0 };
		cleanup_free char *text = NULL;
		size_t len = 0;
		int r = helper_ask(&forever, argv, answers[i].limit, &text, &len, &err);

		assert_int_equal(r, answers[i].result);
		assert_int_equal(len, answers[i].len);
		if (answers[i].text)
			assert_non_null(strstr(r < 0 ? error_text(&err) : text, answers[i].text));
		if (r == 0)
			assert_int_equal(strlen(text), len);
	}
}

static void test_deadline(void **state)
{
	struct sys s = { .root_fd = -1, .deadline_ns = sys_now_ns() + 50 * 1000000 };
	cleanup_error struct error err = { 0 };

	(void) state;
	/* Closing stderr must not make us wait without a deadline. */
	assert_int_equal(run(&s, "exec 2>&-; exec tail -f /dev/null", &err), -ETIMEDOUT);
	assert_non_null(strstr(error_text(&err), "sh did not finish in time"));
}

/* A grandchild holds the pipe open: the helper's end is what counts. The FIFO ends the grandchild. */
static void test_grandchild(void **state)
{
	struct sys s = { .root_fd = -1, .deadline_ns = sys_now_ns() + INT64_C(60) * 1000000000 };
	char dir[] = "/tmp/cotenant-test-XXXXXX";
	cleanup_free char *script = NULL, *fifo = NULL;
	cleanup_error struct error err = { 0 };
	int fd;

	(void) state;
	assert_non_null(mkdtemp(dir));
	assert_true(asprintf(&fifo, "%s/fifo", dir) > 0);
	assert_true(asprintf(&script, "mkfifo %s; cat <%s & echo done >&2; exit 4", fifo, fifo) > 0);
	assert_int_equal(run(&s, script, &err), -EIO);
	assert_string_equal(error_text(&err), "done");
	fd = open(fifo, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	close(fd);
	unlink(fifo);
	rmdir(dir);
}

static void test_no_program(void **state)
{
	cleanup_error struct error err = { 0 };

	(void) state;
	assert_int_equal(helper_run(&forever, (const char *const[]){ "/nonexistent/helper", NULL }, &err), -ENOENT);
	assert_non_null(strstr(error_text(&err), "/nonexistent/helper"));
}

static void test_path(void **state)
{
	cleanup_free char *path = NULL, *self = calloc(1, 4096);

	(void) state;
	assert_true(self && readlink("/proc/self/exe", self, 4095) > 0);
	assert_int_equal(helper_path(strrchr(self, '/') + 1, &path), 0);
	assert_string_equal(path, self);
	free(TAKE_PTR(path));
	assert_int_equal(helper_path("no-such-helper", &path), 0);
	assert_string_equal(path, LIBEXECDIR "/no-such-helper");
}

/* As a parent may leave it: with SIGCHLD ignored the kernel reaps children by itself, and there is nothing to wait for. */
static void test_inherited_sigchld(void **state)
{
	static const struct sigaction inherited[] = {
		{ .sa_handler = SIG_IGN },
		{ .sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT },
	};
	sigset_t child, before;

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(inherited); i++) {
		struct sigaction after, standard;

		assert_int_equal(sigaction(SIGCHLD, &inherited[i], &standard), 0);
		test_results(NULL);
		test_deadline(NULL);
		test_no_program(NULL);
		assert_int_equal(sigaction(SIGCHLD, &standard, &after), 0);
		assert_ptr_equal(after.sa_handler, inherited[i].sa_handler);
		assert_int_equal(after.sa_flags & SA_NOCLDWAIT, inherited[i].sa_flags);
	}
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	assert_int_equal(sigprocmask(SIG_BLOCK, &child, &before), 0);
	test_results(NULL);
	test_deadline(NULL);
	assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_results),    cmocka_unit_test(test_much_output),
		cmocka_unit_test(test_nothing_is_inherited), cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_grandchild), cmocka_unit_test(test_no_program),
		cmocka_unit_test(test_path),       cmocka_unit_test(test_answer),
		cmocka_unit_test(test_inherited_sigchld),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
