#include "arch.h"
#include "keeper.h"
#include "ledger_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PROGRAM "cotenant-anchor"
/*
 * A cgroup of its own below the root of the unified hierarchy. In the hook's, which may be the runtime's or the pod's,
 * the anchor would keep it from being removed and would be killed with it.
 */
#define CGROUP "cotenant-anchors"
#define TITLE_MAX 64 /* characters of the group's name, for ps(1) */
#define CHILD_STACK (32u << 10)
#define CMDLINE_MAX (1u << 20)

struct spawn {
	const char *path;
	char *const *argv;
	int go_fd;          /* becomes the anchor's standard input */
	bool tagged;        /* written by the child: how far it came */
	int result;         /* written by the child: negative errno, 0 once the program runs */
};

/*
 * Runs in the child, on the parent's memory while the parent is suspended: system calls only. The cookie is created
 * here, before the program: exec keeps it, so the anchor has it when the parent goes on.
 */
static int spawn_child(void *arg)
{
	static char *const no_environment[] = { NULL };
	struct spawn *a = arg;

	a->result = coresched_create();
	if (a->result < 0)
		return 1;
	a->tagged = true;
	setsid();
	/* The runtime reads the hook's output up to its end, so none of its descriptors may stay open in the anchor. */
	if (dup2(a->go_fd, 0) < 0 || close_range(1, ~0u, 0) < 0 || open("/dev/null", O_RDWR) != 1 || dup(1) != 2) {
		a->result = -errno;
		return 1;
	}
	execve(a->path, a->argv, no_environment);
	a->result = -errno;
	return 1;
}

static int open_cgroup(const struct cgroup_layout *layout)
{
	cleanup_free char *path = NULL;
	int fd;

	if (!layout || !layout->unified_mount || asprintf(&path, "%s/" CGROUP, layout->unified_mount) < 0) {
		path = NULL;
		return -1;
	}
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT && (mkdir(path, 0755) == 0 || errno == EEXIST))
		fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd;
}

/*
 * Born into its cgroup where that can be had: to move a process there later waits for an RCU grace period with every
 * fork on the machine held up (cgroup_threadgroup_rwsem). Without clone3(2), or without the right, it stays where the
 * hook is.
 */
static pid_t clone_child(struct spawn *a, int cgroup_fd)
{
	_Alignas(16) char stack[CHILD_STACK];
	const struct clone_args args = {
		.flags = CLONE_VM | CLONE_VFORK | CLONE_INTO_CGROUP,
		.exit_signal = SIGCHLD,
		.stack = (uintptr_t) stack,
		.stack_size = sizeof(stack),
		.cgroup = (uint64_t) cgroup_fd,
	};
	long pid = cgroup_fd < 0 ? -EBADF : arch_clone3(&args, spawn_child, a);

	if (pid < 0) {
		pid = clone(spawn_child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, a);
		if (pid < 0)
			pid = -errno;
	}
	return (pid_t) pid;
}

static int spawn_error(const struct spawn *a, const char *title, int code, struct error *err)
{
	if (a->tagged)
		return error_set(err, -code, "anchor of group %s: %s cannot be run: %s", title, a->path, strerror(-code));
	return error_set(err, -code, "anchor of group %s: no cookie could be created (prctl PR_SCHED_CORE): %s", title,
			 strerror(-code));
}

/* Leaves the writing end of a pipe in *ret_go_fd: the anchor ends unless a byte arrives there. */
static int spawn_child_anchor(const struct cgroup_layout *layout, const char *title, pid_t *ret_pid, int *ret_go_fd,
			      struct error *err)
{
	cleanup_free char *path = NULL, *shown = strdup(title);
	char program[] = PROGRAM, hold[] = "--hold";
	char *argv[] = { program, hold, shown, NULL };
	struct spawn a = { .argv = argv };
	cleanup_fd int cgroup_fd = -1, read_fd = -1, write_fd = -1;
	int go[2], r = shown ? helper_path(PROGRAM, &path) : -ENOMEM;
	pid_t pid;

	if (r < 0)
		return error_set(err, -r, "anchor: program %s: %s", PROGRAM, strerror(-r));
	if (pipe2(go, O_CLOEXEC) < 0)
		return error_set(err, errno, "anchor of group %s: pipe: %s", title, strerror(errno));
	read_fd = go[0];
	write_fd = go[1];
	cgroup_fd = open_cgroup(layout);
	a.path = path;
	a.go_fd = read_fd;
	pid = clone_child(&a, cgroup_fd);
	if (pid < 0)
		return error_set(err, -pid, "anchor of group %s: clone: %s", title, strerror(-pid));
	if (a.result < 0) {
		while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
			;
		return spawn_error(&a, title, a.result, err);
	}
	*ret_pid = pid;
	*ret_go_fd = TAKE_FD(write_fd);
	return 0;
}

/* -d is the only short option of `crun run` without a value, so others follow it; long ones may be cut short. */
static bool is_detach(const char *arg)
{
	return str_starts(arg, "-d") || (str_starts(arg, "--d") && str_starts("--detach", arg));
}

/*
 * `crun run` in the foreground is a subreaper that returns only when its last child is gone (reap_subprocesses() in
 * src/libcrun/container.c), and an anchor of the hook's own making would become its child.
 */
static bool runtime_waits_for_children(const struct sys *s)
{
	cleanup_free char *line = NULL;
	const char *name, *end;
	bool run = false;
	size_t len;
	cleanup_free char *path = NULL;

	if (asprintf(&path, "/proc/%d/cmdline", getppid()) < 0) {
		path = NULL;
		return false;
	}
	if (file_read(s, path, CMDLINE_MAX, &line, &len) < 0)
		return false;
	name = strrchr(line, '/');
	if (!str_eq(name ? name + 1 : line, "crun"))
		return false;
	end = line + len;
	for (const char *arg = line + strlen(line) + 1; arg < end; arg += strlen(arg) + 1) {
		if (!run && str_eq(arg, "create"))
			return false;
		if (run && is_detach(arg))
			return false;
		run = run || str_eq(arg, "run");
	}
	return run;
}

/* From the keeper when there is one, else a child of this process, which the runtime's nearest subreaper inherits. */
static int spawn_anchor(const struct sys *s, const struct ledger *l, const struct cgroup_layout *layout,
			const char *group, pid_t *ret_pid, int *ret_go_fd, struct error *err)
{
	cleanup_free char *title = printable(group, strlen(group), TITLE_MAX);
	cleanup_error struct error why = { 0 };
	int r;

	if (!title)
		return error_no_memory(err);
	r = keeper_spawn(s, l->dir_fd, l->path, title, ret_pid, ret_go_fd, &why);
	if (r == 0)
		return 0;
	if (r != -ENOENT && r != -ECHILD)
		return error_set(err, -r, "anchor of group %s: %s", title, error_text(&why));
	if (runtime_waits_for_children(s))
		return error_set(err, EDEADLK,
				 "anchor of group %s: %s, and \"crun run\" in the foreground would wait for an anchor of "
				 "the hook's for ever: %s the keeper (cotenant-anchor --keep --state-dir %s), or use \"crun run "
				 "--detach\"",
				 title, error_text(&why), r == -ENOENT ? "start" : "restart", l->path);
	return spawn_child_anchor(layout, title, ret_pid, ret_go_fd, err);
}

/* poll(2) that does not wait: whether none of `events`, no error and no end is there. Not asked about fd -1. */
static bool is_quiet(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };
	int n;

	do
		n = poll(&p, 1, 0);
	while (n < 0 && errno == EINTR);
	return n == 0;
}

static bool tell_to_stay(int go_fd)
{
	ssize_t n;

	do
		n = write(go_fd, "", 1); /* SIGPIPE is the programs' to ignore */
	while (n < 0 && errno == EINTR);
	return n == 1;
}

/*
 * First the record, then the byte: a hook that is killed in between leaves no anchor that nobody knows of, since the
 * pipe closes with it. A record of an anchor that ended is not left either: by its number another might be killed.
 */
static int record_anchor(struct sys *s, struct ledger *l, const char *group, pid_t pid, int go_fd,
			 struct proc_ref *ret_anchor, struct error *err)
{
	cleanup_proc struct proc_ref p = PROC_REF_NONE;
	struct anchor_ref ref = { .pid = pid };
	int r = proc_open(s, pid, &p);

	/* An anchor that has its end still, now that its process is held, had that number all the time. */
	if (r == -ESRCH || (r == 0 && !is_quiet(go_fd, 0)))
		return error_set(err, EIO, "anchor %d ended at once", pid);
	if (r < 0)
		return error_set(err, -r, "anchor %d cannot be looked at: %s", pid, strerror(-r));
	sys_fault_point(s, "anchor spawned");
	ref.start_time = p.start_time;
	r = ledger_put_anchor(l, group, &ref, err);
	if (r < 0)
		return r;
	sys_fault_point(s, "anchor recorded");
	if (!tell_to_stay(go_fd)) {
		r = ledger_drop_anchor(l, group, err);
		return r < 0 ? r : error_set(err, EIO, "anchor %d ended at once", pid);
	}
	*ret_anchor = p;
	p = PROC_REF_NONE;
	return 0;
}

/* The anchor on record, when it is still that process and holds a cookie. -ESRCH when not. */
static int reuse_anchor(struct sys *s, const struct anchor_ref *ref, struct proc_ref *ret_anchor)
{
	cleanup_proc struct proc_ref p = PROC_REF_NONE;
	uint64_t cookie;
	int r = proc_open(s, ref->pid, &p);

	if (r < 0)
		return r;
	if (p.start_time != ref->start_time)
		return -ESRCH;
	r = s->ops->cookie_get(p.pid, &cookie);
	if (r < 0)
		return r;
	/* When it ended just now, the cookie may be that of who has its number by then. */
	if (cookie == 0 || !is_quiet(p.pidfd, POLLIN))
		return -ESRCH;
	*ret_anchor = p;
	p = PROC_REF_NONE;
	return 0;
}

static int ensure_locked(struct sys *s, struct ledger *l, const struct cgroup_layout *layout, const char *group,
			 struct proc_ref *ret_anchor, struct error *err)
{
	struct anchor_ref ref;
	cleanup_fd int go_fd = -1;
	pid_t pid = 0;
	int r = ledger_get_anchor(l, group, &ref, err);

	if (r == 0) {
		r = reuse_anchor(s, &ref, ret_anchor);
		if (r == 0)
			return 0;
		if (r != -ESRCH)
			return error_set(err, -r, "anchor %d cannot be looked at: %s", ref.pid, strerror(-r));
	} else if (r != -ENOENT) {
		return r;
	}
	r = spawn_anchor(s, l, layout, group, &pid, &go_fd, err);
	return r < 0 ? r : record_anchor(s, l, group, pid, go_fd, ret_anchor, err);
}

int anchor_ensure(struct sys *s, struct ledger *l, const struct cgroup_layout *layout, const char *group,
		  struct proc_ref *ret_anchor, struct error *err)
{
	int r;

	if (!s->acting)
		return error_set(err, EROFS, "the root directory is not this machine's: nothing is changed");
	r = ledger_lock_name(l, LOCK_GROUP, group, err);
	if (r < 0)
		return r;
	r = ensure_locked(s, l, layout, group, ret_anchor, err);
	ledger_unlock_name(l, LOCK_GROUP, group);
	return r;
}

int anchor_end(struct sys *s, struct ledger *l, const char *group, struct error *err)
{
	struct anchor_ref ref;
	int r = ledger_get_anchor(l, group, &ref, err);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = proc_kill(s, ref.pid, ref.start_time);
	if (r < 0)
		return error_set(err, -r, "anchor %d did not end: %s", ref.pid, strerror(-r));
	return ledger_drop_anchor(l, group, err);
}
