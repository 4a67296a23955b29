/*
 * The machine, as the programs see it. Every path is resolved below one root directory, every wait ends at one
 * deadline, and nothing is changed unless the root is the real one (or a test put its own ops in).
 */
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include "error.h"
#include "mask.h"
#include "plan.h"

static inline void closep(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}
#define cleanup_fd cleanup_with(closep)
#define TAKE_FD(fd)             \
	({                      \
		int taken_ = (fd); \
		(fd) = -1;      \
		taken_;         \
	})

/* What changes the machine other than by writing files; replaced as a whole by tests. All return negative errnos. */
struct sys_ops {
	/* PR_SCHED_CORE_GET of one thread. */
	int (*cookie_get)(pid_t tid, uint64_t *ret_cookie);
	/* Gives every thread of `tgid` the cookie of `from`, through a child that is thrown away. from 0: cookie 0. */
	int (*cookie_share)(pid_t from, pid_t tgid);
};
extern const struct sys_ops sys_real_ops;
/* Every call fails with -EROFS: what a foreign root gets. */
extern const struct sys_ops sys_no_ops;

struct sys {
	int root_fd;          /* directory that stands for "/" */
	bool acting;          /* may change the machine */
	const struct sys_ops *ops;
	int64_t deadline_ns;  /* CLOCK_MONOTONIC; 0: none */
	const char *fault;    /* name of the point at which to die; only in builds with FAULT_POINTS */
};

/* root NULL or "/": the real one. Fails as open(2) does: -ENOENT, -ENOTDIR, -EACCES, -EMFILE. */
int sys_open(const char *root, struct sys *ret_sys, struct error *err) must_check;
void sys_done(struct sys *s);
#define cleanup_sys cleanup_with(sys_done)
/* malloc'd: /run/cotenant, or $XDG_RUNTIME_DIR/cotenant when not root of the machine. NULL when out of memory. */
char *sys_default_state_dir(void) must_check;
int64_t sys_now_ns(void);
/* A place where tests kill the process (-9), to prove that nothing is lost there. Nothing in a normal build. */
void sys_fault_point(const struct sys *s, const char *name);
/* Milliseconds left, at least 0, for poll(2); -1 when there is no deadline. */
int sys_left_ms(const struct sys *s);

/* ---- files (sys/file.c). Paths are absolute and resolved below the root; text gets a NUL behind it. ---- */

/* -EFBIG above `limit`. Works on /proc and /sys, whose files have no size. */
int file_read(const struct sys *s, const char *path, size_t limit, char **ret_text, size_t *ret_len) must_check;
int file_read_fd(int fd, size_t limit, char **ret_text, size_t *ret_len) must_check;
/* Below a directory that is open; a symbolic link is -ELOOP. */
int file_read_at(int dir_fd, const char *name, size_t limit, char **ret_text, size_t *ret_len) must_check;
int file_readf(const struct sys *s, char **ret_text, const char *fmt, ...) printf_like(3, 4) must_check; /* 1 MiB at most */
/* One write(2) to an existing kernel file. -EROFS when the root is foreign. */
int file_write(const struct sys *s, const char *path, const char *text) must_check;
/* The same below a directory that is open; a symbolic link is -ELOOP. */
int file_write_at(int dir_fd, const char *name, const char *text) must_check;
/* Temp file and rename in the directory fd; mode 0600. */
int file_replace(int dir_fd, const char *name, const char *text, size_t len) must_check;
/*
 * What a user asked for, at a path of his own and not below any root: whole or not at all, with the mode that his umask
 * says. -EEXIST: there is something that is no regular file. err names the path.
 */
int file_save(const char *path, const char *text, size_t len, struct error *err) must_check;

/*
 * The policy and its drop-ins (path "/etc/cotenant/policy.json" → drop-ins "/etc/cotenant/policy.d/NAME.json"), owner
 * and mode checked: a regular file of root (or of the caller, when not root), not writable by group or others, and
 * likewise every directory above it. -ENOENT: there is none. -EPERM: somebody else could change it. -EINVAL, -EISDIR:
 * not a policy. -EFBIG, -E2BIG: a file is too large, or holds too much, or there are too many. Else what open(2) and
 * read(2) say. err names the file in every case.
 */
int policy_load(const struct sys *s, const char *path, struct policy **ret_policy, struct error *err) must_check;

/* ---- processes (sys/proc.c) ---- */

/* A process that cannot be mistaken for a later one of the same number. */
struct proc_ref {
	pid_t pid;
	uint64_t start_time; /* clock ticks since boot */
	int pidfd;           /* -1: not opened */
};
void proc_ref_done(struct proc_ref *p);
#define cleanup_proc cleanup_with(proc_ref_done)
#define PROC_REF_NONE ((struct proc_ref){ .pidfd = -1 })
/* -ESRCH; a zombie counts as gone once its last thread has ended. */
int proc_start_time(const struct sys *s, pid_t pid, uint64_t *ret) must_check;
/* Opens a pidfd and reads the start time, in an order that cannot mix two processes. */
int proc_open(const struct sys *s, pid_t pid, struct proc_ref *ret) must_check;
bool proc_alive(const struct sys *s, pid_t pid, uint64_t start_time);
/* By its pidfd: while this is false, the number was nobody else's. False too for a process that a test made up. */
bool proc_ref_ended(const struct proc_ref *p);
/* Threads of a process, ascending, malloc'd. */
int proc_tids(const struct sys *s, pid_t pid, pid_t **ret_tids, size_t *ret_n) must_check;
/* SIGKILL to exactly that process, and waits until it is gone or the deadline passes. Gone already: 0. */
int proc_kill(const struct sys *s, pid_t pid, uint64_t start_time) must_check;
/* 0 once that process has ended, -ETIMEDOUT after max_ms or at the deadline. */
int proc_await_end(const struct sys *s, pid_t pid, uint64_t start_time, int max_ms) must_check;

/* ---- core scheduling (sys/coresched.c, sys/support.c, sys/anchor.c) ---- */

/* ret_detail (may be NULL): malloc'd name of what makes it known-bad, or NULL. */
enum coresched_support coresched_probe(const struct sys *s, char **ret_detail);
/* Gives the calling process a new cookie of its own. */
int coresched_create(void) must_check;

/* What the keeper (cotenant-anchor --keep) answers to a hook that asks for an anchor. */
#define KEEPER_SOCKET "keeper" /* in the state directory */
struct keeper_answer {
	int32_t result; /* 0 or a negative errno */
	int32_t pid;    /* of the anchor, which now waits for a byte on the same connection; 0: none could be forked */
};

/* A running anchor for the group: the one on record when it lives, else a new one. Takes the group's lock. */
struct ledger;
struct cgroup_layout;
int anchor_ensure(struct sys *s, struct ledger *l, const struct cgroup_layout *layout, const char *group,
		  struct proc_ref *ret_anchor, struct error *err) must_check;
/* Ends the group's anchor and its record. Nothing there: 0. Needs the group's lock. */
int anchor_end(struct sys *s, struct ledger *l, const char *group, struct error *err) must_check;
/* Compares every thread's cookie with the anchor's. ret_tid: the first thread that differs. -EBADE when one does. */
int cookie_verify(const struct sys *s, pid_t pid, pid_t anchor, pid_t *ret_tid) must_check;

/* ---- injection (sys/hold.c stops, sys/inject.c calls; per processor sys/arch_*.c) ---- */

/*
 * A process whose every thread is held by ptrace, so that system calls can be run in it. Threads that appear while it
 * is being stopped are caught (repeated until two passes find none). Closing lets all go on where they were; when the
 * tracer dies, the kernel kills them.
 */
struct held;
int held_open(const struct sys *s, pid_t pid, struct held **ret_held, struct error *err) must_check;
/*
 * -ENOTRECOVERABLE: an injected call did not return in time and a thread goes on with its registers; such a process must
 * not be relied on. Frees h all the same; NULL is fine.
 */
int held_close(struct held *h);
void held_closep(struct held **h);
#define cleanup_held cleanup_with(held_closep)
size_t held_threads(const struct held *h);
pid_t held_tid(const struct held *h, size_t thread);
pid_t held_pid(const struct held *h);
const struct sys *held_sys(const struct held *h);
/* Runs one system call in thread `thread`; *ret is its result as the kernel gave it (negative errno on failure). */
int held_call(struct held *h, size_t thread, long nr, const unsigned long args[6], long *ret) must_check;
/* From here on calls undo what was done: they are made although the deadline has passed, for a quarter of a second. */
void held_undo(struct held *h);
/* Memory for call arguments, mapped into the process until close; a second call may hand out the same again. */
int held_scratch(struct held *h, size_t size, unsigned long *ret_address) must_check;
int held_write(struct held *h, unsigned long address, const void *data, size_t len) must_check;
int held_read(struct held *h, unsigned long address, void *data, size_t len) must_check;

/* ---- memory policy (sys/mempolicy.c) and guard (sys/guard.c, filter from sys/sandbox.c) ---- */

/* As get_mempolicy(2) tells it: the mode with its flags, and with static nodes those that were asked for. */
#define MEMPOLICY_NODES 1024 /* it wants room for as many as the kernel could have (MAX_NUMNODES) */
struct mempolicy {
	int32_t mode;
	unsigned long nodes[MEMPOLICY_NODES / (8 * sizeof(unsigned long))];
};

/* The kernel's number of a policy mode (uapi/linux/mempolicy.h), without flags. */
int mempolicy_mode(enum memory_policy policy);
/*
 * In every held thread, MPOL_F_STATIC_NODES, each read back. *ret_old is the policy that the first one had. On failure
 * all get that again: in a parked init they inherited it.
 */
int mempolicy_inject(struct held *h, enum memory_policy policy, nodemask nodes, struct mempolicy *ret_old,
		     struct error *err) must_check;
/* The old policy again, in every held thread. */
int mempolicy_restore(struct held *h, const struct mempolicy *old, struct error *err) must_check;
/* Whether the kernel knows MPOL_WEIGHTED_INTERLEAVE (its sysfs directory is there: Linux 6.9). */
bool mempolicy_has_weighted(const struct sys *s);
/* The policy of a process as numa_maps shows it for its first mapping, malloc'd, such as "weighted interleave=static:0,2". */
int mempolicy_observe(const struct sys *s, pid_t pid, char **ret_text) must_check;
/* Interleave weights in sysfs. ret_weights[node] = 0 where there is no file. -ENOENT without kernel support,
 * -EBADMSG when a file holds no number up to 255, else what open(2) and read(2) say. */
struct saved_weights;
int weights_read(const struct sys *s, struct saved_weights *ret) must_check;
/* Writes those that differ and reads back. 0 entries are left alone. */
int weights_write(const struct sys *s, const uint8_t weights[NODE_MAX], struct error *err) must_check;
/* Puts saved ones back, the kernel's auto mode included (file "auto", "__auto_type" on some kernels). */
int weights_restore(const struct sys *s, const struct saved_weights *saved, struct error *err) must_check;

/* Installs the filter in all held threads (seccomp(2) with TSYNC). Survives exec, cannot be taken off again. */
int guard_inject(struct held *h, unsigned guard, struct error *err) must_check;

/* ---- sandbox (sys/sandbox.c; its filters are made at build time by sys/filters.c, the only user of libseccomp) ---- */

struct sock_filter;
struct bpf_filter {
	const struct sock_filter *code;
	size_t len; /* instructions */
};
/* guard: enum guard, or-ed. Static; NULL for none, or for what is no guard. */
const struct bpf_filter *sandbox_guard_filter(unsigned guard);
/* Confines the calling process to waiting for a signal. For cotenant-anchor. */
int sandbox_anchor(void) must_check;

/* ---- control groups (sys/cpuset.c; layout discovered by sys/cgroup.c through libcgroup) ---- */

/* Where the cpuset controller and the unified hierarchy are mounted. Part of the cached facts. */
struct cgroup_layout {
	char *cpuset_mount;  /* "/sys/fs/cgroup" (v2) or "/sys/fs/cgroup/cpuset" (v1, hybrid); NULL: no cpuset controller */
	bool cpuset_v2;
	char *unified_mount; /* NULL: none */
};
void cgroup_layout_done(struct cgroup_layout *c);

/* The container's cpuset cgroup, held open so that a path from the container can never lead elsewhere. */
struct cpuset {
	int dir_fd;   /* -1: none */
	bool v2;
	bool writable; /* the caller may write cpuset.cpus (rootless: only where the cgroup was delegated) */
	char *path;   /* below the mount, as /proc/PID/cgroup says */
	char *mount;
};
void cpuset_done(struct cpuset *c);
#define cleanup_cpuset cleanup_with(cpuset_done)
#define CPUSET_NONE ((struct cpuset){ .dir_fd = -1 })
/* From /proc/PID/cgroup. -ENOTSUP: no cpuset controller there (v2: it is switched on in the ancestors if acting). */
int cpuset_open(const struct sys *s, const struct cgroup_layout *layout, pid_t pid, struct cpuset *ret,
		struct error *err) must_check;
/* By path below the mount, for containers whose process is not at hand. */
int cpuset_open_path(const struct sys *s, const struct cgroup_layout *layout, const char *path, struct cpuset *ret,
		     struct error *err) must_check;
/*
 * Configured value (text as in the file, without newline) and what is effective. Any output may be NULL. -ENOENT,
 * -ENODEV: the cgroup is gone. -EBADF: there is no cpuset. -EINVAL: the kernel wrote no list. -ERANGE: it names a CPU or
 * node beyond what masks hold. -EFBIG, -ENOMEM, and what open(2) and read(2) say.
 */
int cpuset_read(const struct cpuset *c, char **ret_cpus, char **ret_mems, struct mask *ret_effective_cpus,
		nodemask *ret_effective_mems) must_check;
/* Writes and reads back. NULL leaves a value alone; "" resets it (v2). -EBADE when the kernel took something else. */
int cpuset_write(const struct sys *s, const struct cpuset *c, const char *cpus, const char *mems,
		 struct error *err) must_check;

/* ---- the machine's facts, cached (sys/facts.c) ---- */

struct facts {
	struct topology *topo;
	struct cgroup_layout cgroup;
};
void facts_done(struct facts *f);
#define cleanup_facts cleanup_with(facts_done)
/*
 * From the cache in state_dir when its key (boot id, online CPUs, nodes with memory) still holds, else by running
 * cotenant-topology, which discovers with hwloc, libnuma and libcgroup and writes the cache. With a foreign root the
 * program is run with --root and nothing is cached.
 */
int facts_load(const struct sys *s, const char *root, const char *state_dir, struct facts *ret_facts,
	       struct error *err) must_check;
/* For whoever may turn out not to need them: loaded by the first facts_get(). */
struct facts_source {
	const char *root, *state_dir;
	struct facts facts; /* topo is NULL until they are loaded */
};
void facts_source_done(struct facts_source *source);
#define cleanup_facts_source cleanup_with(facts_source_done)
/* *ret_facts belongs to the source. Fails as facts_load() does, and the next call tries again. */
int facts_get(const struct sys *s, struct facts_source *source, const struct facts **ret_facts,
	      struct error *err) must_check;
/* The same without a cache: the program is run each time, and nothing is written. */
int facts_look(const struct sys *s, const char *root, struct facts *ret_facts, struct error *err) must_check;
/* The program's side: discovers. Links hwloc, libnuma and libcgroup, so the hook never calls it. */
int facts_discover(const struct sys *s, const char *root, struct facts *ret_facts, struct error *err) must_check;
int facts_format(const struct facts *f, char **ret_text, size_t *ret_len) must_check;
int facts_parse(const char *name, const char *text, size_t len, struct facts *ret_facts, struct error *err) must_check;
/* The key of the machine as it is now, malloc'd. */
int facts_key(const struct sys *s, char **ret_key) must_check;

/* ---- topologies (sys/topology_hwloc.c: the only user of hwloc; sys/topology_file.c) ---- */

enum topology_source {
	TOPOLOGY_LIVE,      /* this machine, cgroup restrictions of the caller ignored */
	TOPOLOGY_XML,       /* arg: text of a file written by lstopo; see topology_from_file() */
	TOPOLOGY_SYNTHETIC, /* arg: description; see topology_from_synthetic() */
	TOPOLOGY_FSROOT,    /* arg: directory with a copy of /sys and /proc */
};
/*
 * As hwloc sees it. Tiers come from hwloc's subtypes and memory attributes, a CPU's node is the nearest one of its
 * local nodes that is in tier dram. -ERANGE: more CPUs or nodes than cotenant's masks hold.
 */
int topology_from_hwloc(enum topology_source source, const char *arg, struct topology **ret_topology,
			struct error *err) must_check;
/*
 * A machine that was written down: a file by lstopo (hwloc's XML), of which err names the place that is wrong, and
 * hwloc's description of one in a line, such as "pack:2 [numa(memory=64GiB)] l3:2 core:4 pu:2". The path is one of the
 * caller's, not below any root. -EINVAL: it is not what it should be; -EPROTONOSUPPORT: from a newer hwloc; -ERANGE:
 * more CPUs or nodes than cotenant's masks hold; -EFBIG, -E2BIG: beyond the limits of such a document; -EISDIR, and
 * what open(2) and read(2) say.
 */
int topology_from_file(const char *path, struct topology **ret_topology, struct error *err) must_check;
int topology_from_synthetic(const char *description, struct topology **ret_topology, struct error *err) must_check;

/* Directory of cotenant's helper programs: beside the running program, else the installed one. malloc'd. */
int helper_path(const char *name, char **ret_path) must_check;
/* Runs a helper with /dev/null as stdin and stdout and a pipe for stderr; killed at the deadline. The helper's last
 * line on stderr becomes err. */
int helper_run(const struct sys *s, const char *const argv[], struct error *err) must_check;
/* The same, with what it writes to stdout: malloc'd, with a NUL behind it. -EFBIG above `limit`. */
int helper_ask(const struct sys *s, const char *const argv[], size_t limit, char **ret_text, size_t *ret_len,
	       struct error *err) must_check;

/* ---- what is true of a container now (sys/observe.c) ---- */

struct observed {
	bool alive;
	size_t threads, tagged; /* threads of its init process, and how many carry the anchor's cookie */
	bool has_cpuset;
	struct mask cpus;       /* effective, of its cgroup */
	nodemask mems;
	char *memory_policy;    /* as numa_maps shows it, NULL: not readable */
	bool guarded;           /* its init runs under a seccomp filter */
};
void observed_done(struct observed *o);
struct entry;
/* Does not fail for what is gone or not readable: the fields say so. */
void sys_observe(const struct sys *s, struct ledger *l, const struct cgroup_layout *layout, const struct entry *e,
		 struct observed *ret);
