/* The hook's side of the keeper (hook/keeper.c), which starts anchors as children of its own. */
#include "keeper.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#define PATIENCE_S 5 /* without a deadline */

static int limit_waits(const struct sys *s, int fd)
{
	int ms = sys_left_ms(s);
	struct timeval patience = { .tv_sec = PATIENCE_S };

	if (ms == 0)
		return -ETIMEDOUT;
	if (ms > 0)
		patience = (struct timeval){ .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0)
		return -errno;
	return 0;
}

/* Through the directory's descriptor: sun_path holds 108 bytes, a state directory's path may be longer. */
static int connect_to(const struct sys *s, int state_dir_fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -errno;
	r = limit_waits(s, fd);
	if (r < 0)
		return r;
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/" KEEPER_SOCKET, state_dir_fd);
	return connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 ? -errno : TAKE_FD(fd);
}

int keeper_spawn(const struct sys *s, int state_dir_fd, const char *title, pid_t *ret_pid, int *ret_go_fd)
{
	cleanup_fd int fd = connect_to(s, state_dir_fd);
	struct keeper_answer answer;
	ssize_t n;

	if (fd < 0)
		return fd == -ECONNREFUSED ? -ENOENT : fd; /* a socket that a keeper left behind */
	if (send(fd, title, strlen(title), MSG_NOSIGNAL) < 0)
		return -errno;
	n = recv(fd, &answer, sizeof(answer), 0);
	if (n < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	if (n != sizeof(answer))
		return -EPROTO;
	if (answer.result < 0)
		return answer.result;
	*ret_pid = answer.pid;
	*ret_go_fd = TAKE_FD(fd);
	return 0;
}
