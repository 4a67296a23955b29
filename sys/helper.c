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

/* Nothing of ours but stderr's pipe reaches the helper: not the runtime's descriptors, environment or signal mask. */
static int spawn(const char *const argv[], int stderr_fd, pid_t *ret_pid)
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
	    (r = posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0)) == 0 &&
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

/* Until the helper is gone or time is up (-ETIMEDOUT). A child of the helper may keep the pipe open: not waited for. */
static int wait_gone(const struct sys *s, int pidfd, int pipe_fd, struct tail *tail)
{
	bool ended = false;

	for (;;) {
		struct pollfd fds[] = { { .fd = pidfd, .events = POLLIN },
					{ .fd = ended ? -1 : pipe_fd, .events = POLLIN } };
		int n = poll(fds, ARRAY_LEN(fds), sys_left_ms(s));

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -ETIMEDOUT;
		if (n > 0 && fds[1].revents)
			ended = tail_read(tail, pipe_fd);
		if (n > 0 && fds[0].revents) {
			while (!tail_read(tail, pipe_fd))
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

int helper_run(const struct sys *s, const char *const argv[], struct error *err)
{
	const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
	cleanup_fd int read_end = -1, write_end = -1, pidfd = -1;
	struct tail tail = { .len = 0 };
	int ends[2], r, status;
	pid_t pid = -1;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return error_set(err, errno, "%s: no pipe: %s", name, strerror(errno));
	read_end = ends[0];
	write_end = ends[1];
	if (fcntl(read_end, F_SETFL, O_NONBLOCK) < 0)
		return error_set(err, errno, "%s: no pipe: %s", name, strerror(errno));
	r = spawn(argv, write_end, &pid);
	if (r < 0)
		return error_set(err, -r, "%s cannot be run: %s", argv[0], strerror(-r));
	closep(&write_end);
	write_end = -1;
	pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
	r = pidfd < 0 ? -errno : wait_gone(s, pidfd, read_end, &tail);
	if (r < 0)
		kill(pid, SIGKILL); /* not reaped yet, so the number is still its own */
	status = reap(pid);
	if (r == -ETIMEDOUT)
		return error_set(err, ETIMEDOUT, "%s did not finish in time and was killed", name);
	if (r < 0 || status < 0)
		return error_set(err, r < 0 ? -r : -status, "%s cannot be waited for: %s", name,
				 strerror(r < 0 ? -r : -status));
	return verdict(name, status, &tail, err);
}
