/*
 * The keeper: starts anchors on behalf of hooks, so that they are nobody's left-over children.
 *
 * An anchor outlives the hook that starts it and is then adopted by the nearest subreaper, which is the runtime or its
 * monitor. Most of those only reap what they are given. `crun run` in the foreground waits until every child is gone,
 * and would never return. A process that is no descendant of the runtime must be the parent, and that is all this is.
 *
 * One child is always ready: it has a cookie, waits for a connection, and becomes the anchor that this asks for. To fork
 * it and to take its privileges away is no container's time.
 *
 * The protocol, on a SOCK_SEQPACKET connection: the hook sends the name to show in ps(1); the child answers with struct
 * keeper_answer, and from then on treats the connection as an anchor's standard input. When there can be no child, the
 * keeper answers in its place, with pid 0, and the hook starts the anchor itself.
 */
#include "anchor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "ledger.h"

#define BACKLOG 64
#define TITLE_MAX 256
#define HOOK_TIMEOUT_S 60 /* a hook that connects and says nothing */
#define RETRY_MS 100      /* when there is no descriptor or memory for a child or a connection */
#define SPARE "cotenant-spare" /* the child's name while it is nobody's anchor */

/* ---- the socket ---- */

/* Through the directory's descriptor: sun_path holds 108 bytes, a state directory's path may be longer. */
static struct sockaddr_un socket_address(int dir_fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/" KEEPER_SOCKET, dir_fd);
	return address;
}

/* -EADDRINUSE when somebody listens; *ret_pid is who, or 0 when the queue is full. A socket without a listener: 0. */
static int look_for_listener(int dir_fd, pid_t *ret_pid)
{
	const struct sockaddr_un address = socket_address(dir_fd);
	/* Not to wait behind others for a keeper that is stopped. */
	cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0) {
		if (errno == ENOENT || errno == ECONNREFUSED)
			return 0;
		if (errno != EAGAIN)
			return -errno;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
		*ret_pid = peer.pid;
	return -EADDRINUSE;
}

/* The child of a keeper that was killed has the socket open until it is killed too. */
static bool listener_has_ended(const struct sys *s, pid_t pid)
{
	cleanup_proc struct proc_ref p = PROC_REF_NONE;

	return pid > 0 && proc_open(s, pid, &p) == -ESRCH;
}

/* Where a keeper that died left its socket. */
static int clear_place(const struct sys *s, int dir_fd, const char *dir, struct error *err)
{
	struct stat st;
	pid_t pid = 0;
	int r;

	if (fstatat(dir_fd, KEEPER_SOCKET, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : error_set(err, errno, "%s/" KEEPER_SOCKET ": %s", dir, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return error_set(err, ENOTSOCK, "%s/" KEEPER_SOCKET ": is no socket: remove it", dir);
	r = look_for_listener(dir_fd, &pid);
	if (r == -EADDRINUSE && listener_has_ended(s, pid))
		r = 0;
	if (r == -EADDRINUSE && pid > 0)
		return error_set(err, -r, "%s/" KEEPER_SOCKET ": a keeper listens there already: process %d", dir, pid);
	if (r == -EADDRINUSE)
		return error_set(err, -r,
				 "%s/" KEEPER_SOCKET ": a keeper listens there already, and does not answer: if it hangs or "
				 "is stopped, kill it",
				 dir);
	if (r == 0 && unlinkat(dir_fd, KEEPER_SOCKET, 0) < 0 && errno != ENOENT)
		r = -errno;
	return r < 0 ? error_set(err, -r, "%s/" KEEPER_SOCKET ": %s", dir, strerror(-r)) : 0;
}

static int listen_in(const struct sys *s, int dir_fd, const char *dir, int *ret_fd, struct error *err)
{
	const struct sockaddr_un address = socket_address(dir_fd);
	cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int r;

	/* Of two that find a dead one's socket, the second would take away the first one's. Closing the descriptor unlocks. */
	if (flock(dir_fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? error_set(err, errno, "%s: another keeper is starting", dir) :
					      error_set(err, errno, "%s: %s", dir, strerror(errno));
	r = clear_place(s, dir_fd, dir, err);
	if (r < 0)
		return r;
	umask(0177);
	if (fd < 0 || bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 || listen(fd, BACKLOG) < 0)
		return error_set(err, errno, "%s/" KEEPER_SOCKET ": %s", dir, strerror(errno));
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int listen_at(const char *dir, int *ret_fd, struct error *err)
{
	cleanup_sys struct sys s = { .root_fd = -1 };
	cleanup_ledger struct ledger *l = NULL;
	cleanup_fd int dir_fd = -1;
	int r = sys_open(NULL, &s, err);

	/* The hooks' rules: made where it is missing, refused where others could plant something. */
	if (r == 0)
		r = ledger_open(&s, dir, &l, err);
	if (r < 0)
		return r;
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir_fd < 0)
		return error_set(err, errno, "state directory %s: %s", dir, strerror(errno));
	return listen_in(&s, dir_fd, dir, ret_fd, err);
}

/* ---- connections ---- */

static int next_connection(int listener)
{
	int fd;

	do
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
	return fd;
}

/* As the anchor that the connection asks for. */
static int serve(int fd, struct keeper_answer answer)
{
	const struct timeval patience = { .tv_sec = HOOK_TIMEOUT_S };
	struct ucred peer = { .uid = (uid_t) -1 };
	socklen_t len = sizeof(peer);
	char title[TITLE_MAX + 1] = "";

	/* The socket is the owner's alone; who passed it on to another must not have cookies made all the same. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != geteuid() ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
	    recv(fd, title, TITLE_MAX, 0) <= 0)
		return 1;
	prctl(PR_SET_NAME, title, 0, 0, 0);
	if (answer.result < 0) /* memory may have been short */
		answer.result = coresched_create();
	if (send(fd, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer) || answer.result < 0)
		return 1;
	if (dup2(fd, STDIN_FILENO) < 0 || close_range(3, ~0u, 0) < 0)
		return 1;
	return anchor_hold();
}

/* In the child. Until it has a connection it goes with the keeper: hooks must find nobody where nobody follows. */
static int wait_ready(int listener, int taken_fd, pid_t keeper)
{
	struct keeper_answer answer = { .pid = getpid(), .result = coresched_create() };
	int fd;

	setsid();
	if (anchor_prepare() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != keeper)
		return 1;
	prctl(PR_SET_NAME, SPARE, 0, 0, 0);
	fd = next_connection(listener);
	if (fd < 0 || prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0) < 0 || write(taken_fd, "", 1) != 1)
		return 1;
	close(taken_fd);
	close(listener);
	return serve(fd, answer);
}

/* *ret_fd tells what becomes of the child: a byte when it has a connection, the end when it died before. */
static int fork_child(int listener, int *ret_fd)
{
	const pid_t self = getpid();
	int ends[2], r = 0;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		_exit(wait_ready(listener, ends[1], self));
	}
	if (pid < 0)
		r = -errno;
	close(ends[1]);
	if (r < 0)
		close(ends[0]);
	else
		*ret_fd = ends[0];
	return r;
}

static bool was_taken(int fd)
{
	char byte;
	ssize_t n;

	do
		n = read(fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	return n == 1;
}

/* To one hook, if one comes in time: it need not wait for a child that there may never be. */
static void say_no(int listener, int code)
{
	const struct keeper_answer answer = { .result = -code };
	struct pollfd in = { .fd = listener, .events = POLLIN };
	cleanup_fd int fd = -1;

	if (poll(&in, 1, RETRY_MS) <= 0)
		return;
	fd = next_connection(listener);
	if (fd < 0)
		poll(NULL, 0, RETRY_MS);
	else if (send(fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return; /* the hook finds its connection closed */
}

static _Noreturn void keep(int listener)
{
	for (;;) {
		cleanup_fd int fd = -1;
		int r = fork_child(listener, &fd);

		if (r < 0)
			say_no(listener, -r);
		else if (!was_taken(fd))
			poll(NULL, 0, RETRY_MS);
	}
}

/* ---- start ---- */

/* Nothing of the starter's stays open here, and no file of ours gets a standard descriptor's number. */
static int settle_fds(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) /* the lowest free number */
			return -errno;
	return close_range(STDERR_FILENO + 1, ~0u, 0) < 0 ? -errno : 0;
}

/* Output goes nowhere once it listens, so that who waits for the end of it can go on. */
static int forget_output(void)
{
	cleanup_fd int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int i = 0; i < 3; i++)
		if (fd < 0 || dup2(fd, i) < 0)
			return -errno;
	return 0;
}

int keeper_main(const char *state_dir)
{
	const struct sigaction no_zombies = { .sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT };
	cleanup_free char *standard = state_dir ? NULL : sys_default_state_dir();
	const char *dir = state_dir ? state_dir : standard;
	cleanup_error struct error err = { 0 };
	cleanup_fd int listener = -1;

	if (!dir || settle_fds() < 0)
		return 1;
	if (listen_at(dir, &listener, &err) < 0) {
		fprintf(stderr, "cotenant-anchor: %s\n", error_text(&err));
		return 1;
	}
	if (sigaction(SIGCHLD, &no_zombies, NULL) < 0 || chdir("/") < 0 || forget_output() < 0)
		return 1;
	keep(listener);
}
