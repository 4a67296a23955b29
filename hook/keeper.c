/*
 * The keeper: starts anchors on behalf of hooks, so that they are nobody's left-over children.
 *
 * An anchor outlives the hook that starts it and is then adopted by the nearest subreaper, which is the runtime or its
 * monitor. Most of those only reap what they are given. `crun run` in the foreground waits until every child is gone,
 * and would never return. A process that is no descendant of the runtime must be the parent, and that is all this is.
 *
 * The protocol, on a SOCK_SEQPACKET connection: the hook sends the name to show in ps(1); the anchor, forked for this
 * connection, answers with struct keeper_answer, and from then on treats the connection as an anchor's standard input.
 */
#include "anchor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define BACKLOG 64
#define TITLE_MAX 256
#define HOOK_TIMEOUT_S 60 /* a hook that connects and says nothing */

static int listen_at(const char *dir)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/" KEEPER_SOCKET, dir);

	if (n < 0 || (size_t) n >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) == 0)
		return -EADDRINUSE; /* one is there already */
	if ((mkdir(dir, 0700) < 0 && errno != EEXIST) || (unlink(address.sun_path) < 0 && errno != ENOENT))
		return -errno;
	if (bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 ||
	    chmod(address.sun_path, 0600) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return TAKE_FD(fd);
}

/* In the child of one connection. */
static int serve(int fd)
{
	const struct timeval patience = { .tv_sec = HOOK_TIMEOUT_S };
	struct ucred peer = { .uid = (uid_t) -1 };
	socklen_t len = sizeof(peer);
	char title[TITLE_MAX + 1] = "";
	struct keeper_answer answer = { .pid = getpid() };

	/* The socket is the owner's alone; who passed it on to another must not have cookies made all the same. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != geteuid() ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
	    recv(fd, title, TITLE_MAX, 0) <= 0)
		return 1;
	prctl(PR_SET_NAME, title, 0, 0, 0);
	setsid();
	answer.result = coresched_create();
	if (send(fd, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer) || answer.result < 0)
		return 1;
	if (dup2(fd, STDIN_FILENO) < 0 || close_range(3, ~0u, 0) < 0)
		return 1;
	return anchor_main();
}

static int keep(int listener)
{
	for (;;) {
		cleanup_fd int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		pid_t pid;

		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0)
			return -errno;
		pid = fork();
		if (pid == 0)
			_exit(serve(fd));
		if (pid < 0) { /* the hook finds its connection closed, and starts the anchor itself */
			fprintf(stderr, "cotenant-anchor: fork: %s\n", strerror(errno));
		}
	}
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
	cleanup_fd int listener = -1;

	if (!dir)
		return 1;
	listener = listen_at(dir);
	if (listener < 0) {
		fprintf(stderr, "cotenant-anchor: %s/" KEEPER_SOCKET ": %s\n", dir, strerror(-listener));
		return 1;
	}
	if (sigaction(SIGCHLD, &no_zombies, NULL) < 0 || chdir("/") < 0 || forget_output() < 0)
		return 1;
	return keep(listener) < 0;
}
