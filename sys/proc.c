#include "dir.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/pidfd.h>

void proc_ref_done(struct proc_ref *p)
{
	closep(&p->pidfd);
	p->pidfd = -1;
}

/* proc_pid_stat(5). The name in field 2 may hold spaces and brackets: fields are counted from the last ')'. */
static int parse_stat(const char *text, uint64_t *ret)
{
	const char *at = strrchr(text, ')');
	char *end;
	uint64_t start;

	if (!at || at[1] != ' ')
		return -EBADMSG;
	if (at[2] == 'Z' || at[2] == 'X' || at[2] == 'x')
		return -ESRCH;
	at++; /* the space before field 3 */
	for (int field = 3; field < 22; field++) {
		at = strchr(at + 1, ' ');
		if (!at)
			return -EBADMSG;
	}
	start = strtoull(at + 1, &end, 10);
	if (end == at + 1 || *end != ' ')
		return -EBADMSG;
	*ret = start;
	return 0;
}

int proc_start_time(const struct sys *s, pid_t pid, uint64_t *ret)
{
	cleanup_free char *text = NULL;
	int r = pid > 0 ? file_readf(s, &text, "/proc/%d/stat", pid) : -ESRCH;

	if (r == -ENOENT)
		return -ESRCH;
	return r < 0 ? r : parse_stat(text, ret);
}

/* A pidfd becomes readable when its process has ended, be it reaped or not. */
static bool pidfd_ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

int proc_open(const struct sys *s, pid_t pid, struct proc_ref *ret)
{
	struct proc_ref ref = { .pid = pid, .pidfd = -1 };
	cleanup_fd int fd = -1;
	int r;

	/* Processes of a foreign root, and those that a test makes up, have no pidfd. */
	if (s->ops != &sys_real_ops) {
		r = proc_start_time(s, pid, &ref.start_time);
		if (r == 0)
			*ret = ref;
		return r;
	}
	fd = pid > 0 ? pidfd_open(pid, 0) : (errno = ESRCH, -1);
	if (fd < 0)
		return errno == EINVAL ? -ESRCH : -errno; /* EINVAL: a thread that leads no process */
	r = proc_start_time(s, pid, &ref.start_time);
	if (r < 0)
		return r;
	/* While the process behind the pidfd is there, its number was nobody else's. */
	if (pidfd_ended(fd))
		return -ESRCH;
	ref.pidfd = TAKE_FD(fd);
	*ret = ref;
	return 0;
}

bool proc_alive(const struct sys *s, pid_t pid, uint64_t start_time)
{
	uint64_t now;

	return proc_start_time(s, pid, &now) == 0 && now == start_time;
}

int proc_tids(const struct sys *s, pid_t pid, pid_t **ret_tids, size_t *ret_n)
{
	cleanup_free char *path = NULL;
	cleanup_free pid_t *tids = NULL;
	size_t n;
	int r;

	if (asprintf(&path, "/proc/%d/task", pid) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	r = dir_ids(s, path, "", &tids, &n);
	/* A process that ends while it is listed leaves an empty directory. */
	if (r == -ENOENT || (r == 0 && n == 0))
		return -ESRCH;
	if (r < 0)
		return r;
	*ret_tids = TAKE_PTR(tids);
	*ret_n = n;
	return 0;
}

static int wait_end(const struct sys *s, int pidfd)
{
	for (;;) {
		struct pollfd p = { .fd = pidfd, .events = POLLIN };
		int n = poll(&p, 1, sys_left_ms(s));

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (sys_left_ms(s) == 0)
			return pidfd_ended(pidfd) ? 0 : -ETIMEDOUT;
	}
}

int proc_kill(const struct sys *s, pid_t pid, uint64_t start_time)
{
	cleanup_proc struct proc_ref p = PROC_REF_NONE;
	int r;

	if (!s->acting)
		return -EROFS;
	r = proc_open(s, pid, &p);
	if (r == -ESRCH || (r == 0 && p.start_time != start_time))
		return 0;
	if (r < 0)
		return r;
	/* Without a pidfd the process is one that a test made up. */
	if (p.pidfd < 0)
		return -EROFS;
	if (pidfd_send_signal(p.pidfd, SIGKILL, NULL, 0) < 0)
		return errno == ESRCH ? 0 : -errno;
	return wait_end(s, p.pidfd);
}
