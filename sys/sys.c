#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#define UID_MAP_MAX (16u << 10) /* the kernel takes 340 lines */

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

/* In a user namespace of its own (rootless podman) root is nobody's root outside: /run is not for it. */
static bool is_real_root(void)
{
	cleanup_fd int fd = geteuid() == 0 ? open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC) : -1;
	cleanup_free char *map = NULL;
	char *outside, *end;

	if (fd < 0 || file_read_fd(fd, UID_MAP_MAX, &map, NULL) < 0)
		return false;
	strtoul(map, &outside, 10); /* the first line: inside, outside, count */
	return strtoul(outside, &end, 10) == 0 && end > outside;
}

char *sys_default_state_dir(void)
{
	const char *runtime_dir = getenv("XDG_RUNTIME_DIR");
	char *dir = NULL;

	if (!runtime_dir || runtime_dir[0] != '/' || is_real_root())
		return strdup("/run/cotenant");
	return asprintf(&dir, "%s/cotenant", runtime_dir) < 0 ? NULL : dir;
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
