#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <time.h>

static int no_cookie_get(pid_t tid, uint64_t *ret_cookie)
{
	(void) tid;
	(void) ret_cookie;
	return -EROFS;
}

static int no_cookie_share(pid_t from, pid_t tgid)
{
	(void) from;
	(void) tgid;
	return -EROFS;
}

const struct sys_ops sys_no_ops = {
	.cookie_get = no_cookie_get,
	.cookie_share = no_cookie_share,
};

int sys_open(const char *root, struct sys *ret_sys, struct error *err)
{
	bool real = !root || str_eq(root, "/");
	int fd = open(real ? "/" : root, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return error_set(err, errno, "root directory %s: %s", real ? "/" : root, strerror(errno));
	*ret_sys = (struct sys){
		.root_fd = fd,
		.acting = real,
		.ops = real ? &sys_real_ops : &sys_no_ops,
	};
	return 0;
}

void sys_done(struct sys *s)
{
	closep(&s->root_fd);
	s->root_fd = -1;
}

int64_t sys_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int sys_left_ms(const struct sys *s)
{
	int64_t left;

	if (!s->deadline_ns)
		return -1;
	left = s->deadline_ns - sys_now_ns();
	return left <= 0 ? 0 : (int) ((left + 999999) / 1000000);
}

void sys_fault_point(const struct sys *s, const char *name)
{
#ifdef FAULT_POINTS
	if (s->fault && str_eq(s->fault, name))
		raise(SIGKILL);
#else
	(void) s;
	(void) name;
#endif
}
