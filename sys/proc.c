#include "dir.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/pidfd.h>

void proc_ref_done(struct proc_ref *p)
{
	closep(&p->pidfd);
	p->pidfd = -1;
}

#define NUM_THREADS 20 /* number of the field */

/* proc_pid_stat(5). The name in field 2 may hold spaces and brackets: fields are counted from the last ')'. */
static int parse_stat(const char *text, uint64_t *ret)
{
	const char *at = strrchr(text, ')');
	char *end;
	uint64_t start;
	bool zombie;

	if (!at || at[1] != ' ')
		return -EBADMSG;
	if (at[2] == 'X' || at[2] == 'x')
		return -ESRCH;
	/* A leader that has ended by pthread_exit(3) is a zombie while its other threads run on. */
	zombie = at[2] == 'Z';
	at++; /* the space before field 3 */
	for (int field = 3; field < 22; field++) {
		at = strchr(at + 1, ' ');
		if (!at)
			return -EBADMSG;
		if (zombie && field + 1 == NUM_THREADS && strtoul(at + 1, NULL, 10) <= 1)
			return -ESRCH;
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
	int n;

	do
		n = poll(&p, 1, 0);
	while (n < 0 && errno == EINTR);
	return n > 0;
}

bool proc_ref_ended(const struct proc_ref *p)
{
	return p->pidfd >= 0 && pidfd_ended(p->pidfd);
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
		/* A thread that leads no process: EINVAL, and ENOENT on newer kernels (seen with 6.18). */
		return errno == EINVAL || errno == ENOENT ? -ESRCH : -errno;
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

/* No longer than max_ms, and the deadline. */
static int wait_end(const struct sys *s, int pidfd, int max_ms)
{
	const int64_t until = sys_now_ns() + max_ms * INT64_C(1000000);

	for (;;) {
		struct pollfd p = { .fd = pidfd, .events = POLLIN };
		int64_t left = (until - sys_now_ns() + 999999) / 1000000;
		int ms = sys_left_ms(s), n;

		if (left < ms || ms < 0)
			ms = left > 0 ? (int) left : 0;
		n = poll(&p, 1, ms);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -ETIMEDOUT;
	}
}

int proc_await_end(const struct sys *s, pid_t pid, uint64_t start_time, int max_ms)
{
	cleanup_proc struct proc_ref p = PROC_REF_NONE;
	int r = proc_open(s, pid, &p);

	if (r == -ESRCH || (r == 0 && p.start_time != start_time))
		return 0;
	return r < 0 ? r : p.pidfd < 0 ? -ETIMEDOUT : wait_end(s, p.pidfd, max_ms);
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
	return pidfd_send_signal(p.pidfd, SIGKILL, NULL, 0) < 0 && errno != ESRCH ? -errno : 0;
}
