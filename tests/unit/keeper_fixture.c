#include "keeper_fixture.h"

#include "tree.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

struct sockaddr_un address;

int keeper_setup(void **state)
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

int keeper_teardown(void **state)
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

int ensure(struct fixture *f, struct proc_ref *p)
{
	return anchor_ensure(&f->s, f->l, NULL, GROUP, p, &f->err);
}

void end_anchor(struct fixture *f)
{
	assert_int_equal(ledger_lock_name(f->l, LOCK_GROUP, GROUP, &f->err), 0);
	assert_int_equal(anchor_end(&f->s, f->l, GROUP, &f->err), 0);
	ledger_unlock_name(f->l, LOCK_GROUP, GROUP);
}

void expect_no_record(struct fixture *f)
{
	struct anchor_ref ref;

	assert_int_equal(ledger_get_anchor(f->l, GROUP, &ref, &f->err), -ENOENT);
}

/* Looked for beside the running program, be it as the keeper or as an anchor of the hook's own. */
char *program(void)
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
void expect_own_anchor(struct fixture *f)
{
	cleanup_proc struct proc_ref p = PROC_REF_NONE;
	cleanup_free char *path = program();
	uint64_t cookie;
	int why = f->s.ops->cookie_get(0, &cookie), r = ensure(f, &p);

	if (r != why)
		fail_msg("%d: %s", r, error_text(&f->err));
	if (why == 0) {
		end_anchor(f);
		assert_int_equal(waitpid(p.pid, NULL, 0), p.pid);
	} else {
		assert_non_null(strstr(error_text(&f->err), "anchor of group red: no cookie could be created"));
	}
	expect_no_record(f);
}

void expect_refusal(struct fixture *f, int code, const char *text)
{
	struct proc_ref p = PROC_REF_NONE;

	assert_int_equal(ensure(f, &p), code);
	if (!strstr(error_text(&f->err), text))
		fail_msg("says:  %s\nwants: %s", error_text(&f->err), text);
	expect_no_record(f);
}

int bound(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	unlink(address.sun_path);
	if (fd < 0 || bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0)
		_exit(99);
	return fd;
}

int client(int flags)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);

	assert_true(fd >= 0);
	if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

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

void expect_late(struct fixture *f, const char *text)
{
	for (int interrupted = 0; interrupted < 2; interrupted++) {
		f->s.deadline_ns = sys_now_ns() + SHORT_MS * INT64_C(1000000);
		interrupt_often(interrupted);
		expect_refusal(f, -ETIMEDOUT, text);
		interrupt_often(false);
	}
}
