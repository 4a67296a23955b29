#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define TAIL 1024     /* of the helper's stderr: enough to hold its last line */
#define SHOWN_MAX 400 /* characters of that line */

int helper_path(const char *name, char **ret_path)
{
	cleanup_free char *self = calloc(1, PATH_MAX), *path = NULL;
	char *slash;

	if (!self)
		return -ENOMEM;
	if (readlink("/proc/self/exe", self, PATH_MAX - 1) < 0)
		return -errno;
	slash = strrchr(self, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	if (asprintf(&path, "%s/%s", self, name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	if (access(path, X_OK) < 0) {
		free(path);
		if (asprintf(&path, "%s/%s", LIBEXECDIR, name) < 0) {
			path = NULL;
			return -ENOMEM;
		}
	}
	*ret_path = TAKE_PTR(path);
	return 0;
}

/* Nothing of ours but the pipes reaches the helper: not the runtime's descriptors, environment or signal mask. */
static int spawn(const char *const argv[], int stdout_fd, int stderr_fd, pid_t *ret_pid)
{
	static char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin", locale[] = "LC_ALL=C";
	char *const environment[] = { path, locale, NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	int r;

	sigemptyset(&none);
	sigfillset(&all);
	r = posix_spawnattr_init(&attributes);
	if (r)
		return -r;
	r = posix_spawn_file_actions_init(&actions);
	if (r) {
		posix_spawnattr_destroy(&attributes);
		return -r;
	}
	/* stderr first: when we were started without descriptors 0 and 1, the pipe may be one of them. */
	if ((r = posix_spawn_file_actions_adddup2(&actions, stderr_fd, 2)) == 0 &&
	    (r = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)) == 0 &&
	    (r = stdout_fd < 0 ? posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0) :
				 posix_spawn_file_actions_adddup2(&actions, stdout_fd, 1)) == 0 &&
	    (r = posix_spawn_file_actions_addclosefrom_np(&actions, 3)) == 0 &&
	    (r = posix_spawnattr_setsigmask(&attributes, &none)) == 0 &&
	    (r = posix_spawnattr_setsigdefault(&attributes, &all)) == 0 &&
	    (r = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF)) == 0)
		r = posix_spawn(ret_pid, argv[0], &actions, &attributes, (char *const *) (uintptr_t) argv, environment);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return -r;
}

struct tail {
	char text[TAIL];
	size_t len;
};

/* Keeps the end of what is read. True at the end of the pipe, or when nothing is left for now. */
static bool tail_read(struct tail *t, int fd)
{
	ssize_t n;

	if (t->len > TAIL / 2) {
		memmove(t->text, t->text + t->len - TAIL / 2, TAIL / 2);
		t->len = TAIL / 2;
	}
	n = read(fd, t->text + t->len, TAIL - t->len);
	if (n > 0)
		t->len += (size_t) n;
	return n == 0 || (n < 0 && errno != EINTR);
}

/* The last line that is not empty, fit to be shown. NULL: there is none. */
static char *last_line(const struct tail *t)
{
	size_t end = t->len, start;

	while (end && strchr("\r\n\t ", t->text[end - 1]))
		end--;
	for (start = end; start && t->text[start - 1] != '\n'; start--)
		;
	return end > start ? printable(t->text + start, end - start, SHOWN_MAX) : NULL;
}

/* What the helper says on stdout, when somebody wants it. */
struct answer {
	int fd; /* -1: nobody does */
	char *text;
	size_t len, room, limit;
	int failed; /* negative errno: not all of it was taken */
};

static void answer_done(struct answer *a)
{
	closep(&a->fd);
	free(a->text);
}

static int answer_grow(struct answer *a)
{
	size_t room = a->room ? a->room * 2 : 64u << 10;
	char *text;

	text = realloc(a->text, room);
	if (!text)
		return -ENOMEM;
	a->text = text;
	a->room = room;
	return 0;
}

/* True at the end of the pipe, or when nothing is left for now. What cannot be kept is read all the same. */
static bool answer_read(struct answer *a)
{
	char rest[4096];
	ssize_t n;

	if (!a->failed && a->room - a->len < 2)
		a->failed = answer_grow(a);
	if (a->failed)
		n = read(a->fd, rest, sizeof(rest));
	else
		n = read(a->fd, a->text + a->len, a->room - a->len - 1);
	if (n > 0 && !a->failed)
		a->len += (size_t) n;
	if (a->len > a->limit)
		a->failed = -EFBIG;
	return n == 0 || (n < 0 && errno != EINTR);
}

/* Until the helper is gone or time is up (-ETIMEDOUT). Not for a child of the helper that keeps the pipes open. */
static int wait_gone(const struct sys *s, int pidfd, int pipe_fd, struct tail *tail, struct answer *answer)
{
	bool said = false, answered = answer->fd < 0;

	for (;;) {
		struct pollfd fds[] = { { .fd = pidfd, .events = POLLIN },
					{ .fd = said ? -1 : pipe_fd, .events = POLLIN },
					{ .fd = answered ? -1 : answer->fd, .events = POLLIN } };
		int n = poll(fds, ARRAY_LEN(fds), sys_left_ms(s));

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -ETIMEDOUT;
		if (n > 0 && fds[1].revents)
			said = tail_read(tail, pipe_fd);
		if (n > 0 && fds[2].revents)
			answered = answer_read(answer);
		if (n > 0 && fds[0].revents) {
			while (!tail_read(tail, pipe_fd))
				;
			while (answer->fd >= 0 && !answer_read(answer))
				;
			return 0;
		}
	}
}

static int reap(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status;
}

static int verdict(const char *name, int status, const struct tail *tail, struct error *err)
{
	cleanup_free char *line = last_line(tail);

	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFSIGNALED(status))
		return error_set(err, EIO, "%s was killed by signal %d (%s)", name, WTERMSIG(status),
				 strsignal(WTERMSIG(status)));
	if (line)
		return error_set(err, EIO, "%s", line);
	return error_set(err, EIO, "%s failed with status %d and said nothing", name, WEXITSTATUS(status));
}

/* Neither end below 3: the numbers of the helper's own are given out anew in it, one by one. */
static int open_pipe(int *ret_read, int *ret_write)
{
	int ends[2], r = 0;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		int high = fcntl(ends[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

		r = high < 0 ? -errno : r;
		close(ends[i]);
		ends[i] = high;
	}
	if (r == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0)
		r = -errno;
	if (r < 0) {
		closep(&ends[0]);
		closep(&ends[1]);
		return r;
	}
	*ret_read = ends[0];
	*ret_write = ends[1];
	return 0;
}

static int run_child(const struct sys *s, const char *name, const char *const argv[], bool want_answer,
		     struct answer *answer, struct error *err)
{
	cleanup_fd int read_end = -1, write_end = -1, answer_end = -1, pidfd = -1;
	struct tail tail = { .len = 0 };
	int r = open_pipe(&read_end, &write_end), status;
	pid_t pid = -1;

	if (r == 0 && want_answer)
		r = open_pipe(&answer->fd, &answer_end);
	if (r < 0)
		return error_set(err, -r, "%s: no pipe: %s", name, strerror(-r));
	r = spawn(argv, answer_end, write_end, &pid);
	if (r < 0)
		return error_set(err, -r, "%s cannot be run: %s", argv[0], strerror(-r));
	closep(&write_end);
	write_end = -1;
	closep(&answer_end);
	answer_end = -1;
	pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
	r = pidfd < 0 ? -errno : wait_gone(s, pidfd, read_end, &tail, answer);
	if (r < 0)
		kill(pid, SIGKILL); /* not reaped yet, so the number is still its own */
	status = reap(pid);
	if (r == -ETIMEDOUT)
		return error_set(err, ETIMEDOUT, "%s did not finish in time and was killed", name);
	if (r < 0 || status < 0)
		return error_set(err, r < 0 ? -r : -status, "%s cannot be waited for: %s", name,
				 strerror(r < 0 ? -r : -status));
	r = verdict(name, status, &tail, err);
	if (r == 0 && answer->failed)
		r = error_set(err, -answer->failed, "%s: its answer cannot be kept: %s", name,
			      strerror(-answer->failed));
	return r;
}

static int run(const struct sys *s, const char *const argv[], bool want_answer, struct answer *answer,
	       struct error *err)
{
	const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
	const struct sigaction standard = { .sa_handler = SIG_DFL };
	struct sigaction inherited;
	int r;

	/* Who ignores SIGCHLD, be it for its parent's sake, has its children reaped by the kernel (waitpid(2)). */
	if (sigaction(SIGCHLD, &standard, &inherited) < 0)
		return error_set(err, errno, "%s: SIGCHLD: %s", name, strerror(errno));
	r = run_child(s, name, argv, want_answer, answer, err);
	sigaction(SIGCHLD, &inherited, NULL);
	return r;
}

int helper_run(const struct sys *s, const char *const argv[], struct error *err)
{
	struct answer nobody = { .fd = -1 };

	return run(s, argv, false, &nobody, err);
}

int helper_ask(const struct sys *s, const char *const argv[], size_t limit, char **ret_text, size_t *ret_len,
	       struct error *err)
{
	cleanup_with(answer_done) struct answer answer = { .fd = -1, .limit = limit };
	int r = run(s, argv, true, &answer, err);

	if (r < 0)
		return r;
	answer.text[answer.len] = '\0'; /* there is room: also to find nothing there, room was made */
	*ret_len = answer.len;
	*ret_text = TAKE_PTR(answer.text);
	return 0;
}
