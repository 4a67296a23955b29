/* The hook's side of the keeper (hook/keeper.c), which starts anchors as children of its own. */
#include "keeper.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#define PATIENCE_NS INT64_C(5000000000) /* without a deadline */
#define RESTART "if it hangs or is stopped, kill it and start it again (cotenant-anchor --keep --state-dir %s)"

static int limit_waits(const struct sys *s, int fd)
{
	const int ms = sys_left_ms(s);
	const struct timeval left = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

	if (ms == 0)
		return -ETIMEDOUT; /* 0 would mean for ever */
	return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &left, sizeof(left)) < 0 ? -errno : 0;
}

/* Through the directory's descriptor: sun_path holds 108 bytes, a state directory's path may be longer. */
static int connect_to(const struct sys *s, int fd, int state_dir_fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const int on = 1;
	int r;

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/" KEEPER_SOCKET, state_dir_fd);
	if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
		return -errno;
	do {
		r = limit_waits(s, fd);
		if (r < 0)
			return r;
		r = connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 ? -errno : 0;
	} while (r == -EINTR);
	return r == -EAGAIN ? -ETIMEDOUT : r; /* the queue was full all the time */
}

static int open_connection(const struct sys *s, int state_dir_fd, const char *state_dir, struct ucred *ret_keeper,
			   int *ret_fd, struct error *err)
{
	cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct ucred keeper = { .uid = (uid_t) -1 };
	socklen_t len = sizeof(keeper);
	int r = fd < 0 ? -errno : connect_to(s, fd, state_dir_fd);

	if (r == -ENOENT || r == -ECONNREFUSED) /* refused by a socket that a keeper left behind */
		return error_set(err, ENOENT, "no keeper listens");
	if (r == -ETIMEDOUT)
		return error_set(err, ETIMEDOUT, "the keeper takes no connections: " RESTART, state_dir);
	if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &keeper, &len) < 0)
		r = -errno;
	if (r < 0)
		return error_set(err, -r, "%s/" KEEPER_SOCKET ": %s", state_dir, strerror(-r));
	if (keeper.uid != geteuid())
		return error_set(err, EPERM,
				 "%s/" KEEPER_SOCKET ": belongs to a process of user %u (%d), who could plant anchors: "
				 "remove it, after a look at what else is there",
				 state_dir, keeper.uid, keeper.pid);
	*ret_keeper = keeper;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int send_title(const struct sys *s, int fd, const char *title)
{
	for (;;) {
		int r = limit_waits(s, fd);

		if (r < 0)
			return r;
		if (send(fd, title, strlen(title), MSG_NOSIGNAL) >= 0)
			return 0;
		if (errno == EPIPE || errno == ECONNRESET)
			return 0; /* hung up already; there may be an answer all the same */
		if (errno != EINTR)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
	}
}

/* One message and the process that sent it, as the kernel says. Its length; 0 when the other side hung up. */
static ssize_t receive(const struct sys *s, int fd, void *data, size_t size, pid_t *ret_sender)
{
	union {
		char space[CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} control;
	struct iovec part = { .iov_base = data, .iov_len = size };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	struct pollfd in = { .fd = fd, .events = POLLIN };
	const struct cmsghdr *c;
	struct ucred sender = { 0 };
	ssize_t n;

	do {
		int ready = poll(&in, 1, sys_left_ms(s));

		if (ready == 0)
			return -ETIMEDOUT;
		if (ready < 0 && errno != EINTR)
			return -errno;
		message.msg_control = control.space;
		message.msg_controllen = sizeof(control.space);
		n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		/* A reset is told once, before what was sent: the other side closed without having read all. */
	} while (n < 0 && (errno == EINTR || errno == EAGAIN || errno == ECONNRESET));
	if (n < 0)
		return -errno;
	c = CMSG_FIRSTHDR(&message);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
		memcpy(&sender, CMSG_DATA(c), sizeof(sender));
	*ret_sender = sender.pid;
	return n;
}

static int ask(const struct sys *s, int fd, pid_t keeper, const char *state_dir, const char *title, pid_t *ret_pid,
	       struct error *err)
{
	struct keeper_answer answer;
	pid_t sender = 0;
	ssize_t n = send_title(s, fd, title);

	if (n == 0)
		n = receive(s, fd, &answer, sizeof(answer), &sender);
	if (n == -ETIMEDOUT)
		return error_set(err, ETIMEDOUT, "the keeper (process %d) did not answer in time: " RESTART, keeper,
				 state_dir);
	if (n < 0)
		return error_set(err, (int) -n, "the keeper (process %d): %s", keeper, strerror((int) -n));
	if (n == 0)
		return error_set(err, ECHILD, "the keeper (process %d) closed the connection", keeper);
	if (n != sizeof(answer))
		return error_set(err, EPROTO, "the keeper (process %d) is of another version: start it again", keeper);
	if (answer.result < 0 && answer.pid == 0)
		return error_set(err, ECHILD, "the keeper (process %d) could start none: %s", keeper,
				 strerror(-answer.result));
	if (answer.result < 0)
		return error_set(err, -answer.result,
				 "the keeper (process %d): no cookie could be created (prctl PR_SCHED_CORE): %s", keeper,
				 strerror(-answer.result));
	/* Its number here, not what it is called in a PID namespace of its own: by that another one would be killed. */
	if (answer.pid != sender)
		return error_set(err, EPROTO,
				 "the keeper (process %d): process %d answers for process %d: it must run in the hook's PID "
				 "namespace",
				 keeper, sender, answer.pid);
	*ret_pid = sender;
	return 0;
}

int keeper_spawn(const struct sys *s, int state_dir_fd, const char *state_dir, const char *title, pid_t *ret_pid,
		 int *ret_go_fd, struct error *err)
{
	struct sys patient = *s;
	struct ucred keeper = { 0 };
	cleanup_fd int fd = -1;
	int r;

	if (!patient.deadline_ns)
		patient.deadline_ns = sys_now_ns() + PATIENCE_NS;
	r = open_connection(&patient, state_dir_fd, state_dir, &keeper, &fd, err);
	if (r == 0)
		r = ask(&patient, fd, keeper.pid, state_dir, title, ret_pid, err);
	if (r == 0)
		*ret_go_fd = TAKE_FD(fd);
	return r;
}
