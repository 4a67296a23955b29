#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <sys/syscall.h>

/* uapi/linux/mempolicy.h, Linux 5.15 and 6.9: older headers lack them. Enumerators there, so #ifdef cannot tell. */
#define MODE_PREFERRED_MANY 5
#define MODE_WEIGHTED_INTERLEAVE 6

/* Relative to the root. */
#define WEIGHTED_DIR "sys/kernel/mm/mempolicy/weighted_interleave"

/* One bit less than is passed counts. */
#define KERNEL_MAXNODE (MEMPOLICY_NODES + 1)
/* mpol_to_str() formats into 64 bytes in show_numa_map(): a long node list is cut. */
#define KERNEL_TEXT_MAX 63
/* More than ADDRESS and POLICY, so that the kernel formats one line and walks the pages of one mapping. */
#define FIRST_LINE 128

/* As it lies in the process's scratch memory. */
struct area {
	struct mempolicy set, got;
};

/* Names as in mm/mempolicy.c, policy_modes[]; longer ones before those they begin with. */
static const struct {
	int mode;
	const char *name;
} modes[] = {
	{ MODE_WEIGHTED_INTERLEAVE, "weighted interleave" },
	{ MODE_PREFERRED_MANY, "prefer (many)" },
	{ MPOL_PREFERRED, "prefer" },
	{ MPOL_INTERLEAVE, "interleave" },
	{ MPOL_DEFAULT, "default" },
	{ MPOL_LOCAL, "local" },
	{ MPOL_BIND, "bind" },
};

static const char *mode_name(int mode)
{
	for (size_t i = 0; i < ARRAY_LEN(modes); i++)
		if (modes[i].mode == mode)
			return modes[i].name;
	return "unknown";
}

int mempolicy_mode(enum memory_policy policy)
{
	static const int numbers[] = {
		[MEMORY_INHERIT] = MPOL_DEFAULT,       [MEMORY_LOCAL] = MPOL_LOCAL,
		[MEMORY_BIND] = MPOL_BIND,	       [MEMORY_PREFERRED] = MPOL_PREFERRED,
		[MEMORY_INTERLEAVE] = MPOL_INTERLEAVE, [MEMORY_WEIGHTED] = MODE_WEIGHTED_INTERLEAVE,
	};

	return (unsigned) policy < ARRAY_LEN(numbers) ? numbers[policy] : -EINVAL;
}

bool mempolicy_has_weighted(const struct sys *s)
{
	return faccessat(s->root_fd, WEIGHTED_DIR, F_OK, 0) == 0;
}

/* ---- as the kernel shows it ---- */

/* "ADDRESS POLICY[=FLAGS][:NODES] KEY…": the policy's name may hold spaces, flags and nodes do not. */
static char *parse_policy(char *line)
{
	char *policy = strchr(line, ' ');
	size_t len = 0;

	if (!policy)
		return NULL;
	policy++;
	for (size_t i = 0; i < ARRAY_LEN(modes) && !len; i++)
		if (str_starts(policy, modes[i].name))
			len = strlen(modes[i].name);
	return strndup(policy, len + strcspn(policy + len, " \n"));
}

/* The first line alone: the rest would have the kernel walk every page of the process. */
static int read_policy(const struct sys *s, const char *path, char **ret_text)
{
	cleanup_fd int fd = openat(s->root_fd, path + 1, O_RDONLY | O_CLOEXEC);
	char line[FIRST_LINE + 1], *text;
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, line, FIRST_LINE);
	if (n <= 0)
		return n < 0 ? -errno : -ESRCH; /* no memory: the process has ended */
	line[n] = '\0';
	text = parse_policy(line);
	if (!text)
		return strchr(line, ' ') ? -ENOMEM : -EBADMSG;
	*ret_text = text;
	return 0;
}

int mempolicy_observe(const struct sys *s, pid_t pid, char **ret_text)
{
	cleanup_free char *path = NULL;

	if (asprintf(&path, "/proc/%d/numa_maps", pid) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	return read_policy(s, path, ret_text);
}

/*
 * From numa_maps, not get_mempolicy(2): with static nodes that returns what was asked for, while nodes that are absent
 * or outside the cpuset have been dropped from what the kernel uses (mpol_set_nodemask() in mm/mempolicy.c).
 */
static int check_used(struct held *h, pid_t tid, int mode, nodemask nodes, struct error *err)
{
	cleanup_free char *path = NULL, *list = nodemask_format(nodes), *want = NULL, *got = NULL;
	const char *taken;
	int r;

	if (!list || asprintf(&want, "%s%s%s", mode_name(mode), nodes ? "=static:" : "", list) < 0)
		want = NULL;
	if (asprintf(&path, "/proc/%d/task/%d/numa_maps", held_pid(h), tid) < 0)
		path = NULL;
	if (!want || !path)
		return error_no_memory(err);
	r = read_policy(held_sys(h), path, &got);
	if (r < 0)
		return error_set(err, -r, "memory policy of thread %d cannot be read back from %s: %s", tid, path,
				 strerror(-r));
	if (strncmp(got, want, KERNEL_TEXT_MAX) == 0)
		return 0;
	taken = strchr(got, ':');
	if (nodes && taken && strncmp(got, want, (size_t) (taken - got) + 1) == 0)
		return error_set(err, EBADE,
				 "thread %d asked for memory policy %s on nodes %s, but the kernel took nodes %s: the "
				 "others have no memory or are not in the container's cpuset.mems",
				 tid, mode_name(mode), list, taken + 1);
	return error_set(err, EBADE, "thread %d has memory policy \"%s\" after \"%s\" was set", tid, got, want);
}

/* ---- injected calls ---- */

static int get_policy(struct held *h, size_t thread, unsigned long area, struct mempolicy *ret)
{
	const unsigned long mode_at = area + offsetof(struct area, got.mode);
	const unsigned long nodes_at = area + offsetof(struct area, got.nodes);
	const unsigned long args[6] = { mode_at, nodes_at, KERNEL_MAXNODE, 0, 0 };
	long result;
	int r = held_call(h, thread, SYS_get_mempolicy, args, &result);

	if (r == 0 && result < 0)
		r = (int) result;
	return r < 0 ? r : held_read(h, area + offsetof(struct area, got), ret, sizeof(*ret));
}

/* The nodes lie in the area already. */
static int set_policy(struct held *h, size_t thread, int mode, unsigned long nodes, unsigned long maxnode)
{
	const unsigned long args[6] = { (unsigned long) mode, nodes, maxnode };
	long result;
	int r = held_call(h, thread, SYS_set_mempolicy, args, &result);

	return r < 0 ? r : (int) result;
}

static int set_error(pid_t tid, int mode, nodemask nodes, int code, struct error *err)
{
	cleanup_free char *list = nodemask_format(nodes);
	const char *cause = strerror(-code);

	if (code == -EINVAL)
		cause = mode == MODE_WEIGHTED_INTERLEAVE ? "the kernel does not know weighted interleave (Linux 6.9 "
							   "does), or none of the nodes has memory and is in the "
							   "container's cpuset.mems" :
							   "none of the nodes has memory and is in the container's "
							   "cpuset.mems";
	else if (code == -ENOSYS)
		cause = "the kernel is built without NUMA support";
	return error_set(err, -code, "thread %d cannot be given memory policy %s%s%s: %s", tid, mode_name(mode),
			 nodes ? " on nodes " : "", list ? list : "", cause);
}

/*
 * What the kernel made of the nodes is looked up for one thread: all of them are in one cpuset and passed the same. That
 * the others carry the policy they say themselves, since numa_maps has the kernel walk the pages of a mapping each time.
 */
static int read_back(struct held *h, size_t thread, unsigned long area, int mode, nodemask nodes, struct error *err)
{
	struct mempolicy got, want = { .mode = mode | (nodes ? MPOL_F_STATIC_NODES : 0), .nodes = { nodes } };
	const pid_t tid = held_tid(h, thread);
	int r;

	if (thread == 0)
		return check_used(h, tid, mode, nodes, err);
	r = get_policy(h, thread, area, &got);
	if (r < 0)
		return error_set(err, -r, "memory policy of thread %d cannot be read back: %s", tid, strerror(-r));
	if (got.mode != want.mode || memcmp(got.nodes, want.nodes, sizeof(got.nodes)) != 0)
		return error_set(err, EBADE, "thread %d has memory policy \"%s\" (%#x) after \"%s\" (%#x) was set", tid,
				 mode_name(got.mode & ~MPOL_MODE_FLAGS), (unsigned) got.mode, mode_name(mode),
				 (unsigned) want.mode);
	return 0;
}

static int inject_thread(struct held *h, size_t thread, unsigned long area, int mode, nodemask nodes, bool *ret_changed,
			 struct error *err)
{
	int r = nodes ? set_policy(h, thread, mode | MPOL_F_STATIC_NODES, area + offsetof(struct area, set.nodes),
				   KERNEL_MAXNODE) :
			set_policy(h, thread, mode, 0, 0);

	if (r < 0)
		return set_error(held_tid(h, thread), mode, nodes, r, err);
	*ret_changed = true;
	return read_back(h, thread, area, mode, nodes, err);
}

static int inject_all(struct held *h, unsigned long area, int mode, nodemask nodes, size_t *ret_changed,
		      struct error *err)
{
	const struct mempolicy set = { .nodes = { nodes } };
	int r = held_write(h, area + offsetof(struct area, set), &set, sizeof(set));

	if (r < 0)
		return error_set(err, -r, "process %d: call arguments cannot be put into its memory: %s", held_pid(h), strerror(-r));
	for (size_t i = 0; r == 0 && i < held_threads(h); i++) {
		bool changed = false;

		r = inject_thread(h, i, area, mode, nodes, &changed, err);
		*ret_changed += changed;
	}
	return r;
}

/* Of the first `n` threads. */
static int put_back(struct held *h, size_t n, unsigned long area, const struct mempolicy *old, struct error *err)
{
	int first;

	held_undo(h);
	first = held_write(h, area + offsetof(struct area, set), old, sizeof(*old));
	if (first < 0)
		return error_set(err, -first, "the memory policy of process %d could not be put back", held_pid(h));
	for (size_t i = 0; i < n; i++) {
		int r = set_policy(h, i, old->mode, area + offsetof(struct area, set.nodes), KERNEL_MAXNODE);

		if (r < 0 && first == 0)
			first = error_set(err, -r, "memory policy of thread %d could not be put back", held_tid(h, i));
	}
	return first;
}

int mempolicy_inject(struct held *h, enum memory_policy policy, nodemask nodes, struct mempolicy *ret_old,
		     struct error *err)
{
	int mode = mempolicy_mode(policy), r;
	cleanup_error struct error second = { 0 };
	struct mempolicy old;
	unsigned long area;
	size_t changed = 0;

	if (mode < 0 || policy == MEMORY_INHERIT)
		return error_set(err, EINVAL, "memory policy %u is none that could be set", policy);
	if (policy == MEMORY_LOCAL)
		nodes = 0; /* takes neither nodes nor flags */
	else if (!nodes)
		return error_set(err, EINVAL, "memory policy %s names no node", mode_name(mode));
	if (policy == MEMORY_PREFERRED && (nodes & (nodes - 1)))
		mode = MODE_PREFERRED_MANY;
	r = held_scratch(h, sizeof(struct area), &area);
	if (r < 0)
		return error_set(err, -r, "process %d: call arguments cannot be put into its memory: %s", held_pid(h), strerror(-r));
	r = get_policy(h, 0, area, &old);
	if (r < 0)
		return set_error(held_tid(h, 0), mode, nodes, r, err);
	r = inject_all(h, area, mode, nodes, &changed, err);
	if (r == 0)
		*ret_old = old;
	else if (put_back(h, changed, area, &old, &second) < 0)
		error_prefix(err, r, "%s", error_text(&second));
	return r;
}

int mempolicy_restore(struct held *h, const struct mempolicy *old, struct error *err)
{
	unsigned long area;
	int r;

	held_undo(h);
	r = held_scratch(h, sizeof(struct area), &area);
	if (r < 0)
		return error_set(err, -r, "process %d: call arguments cannot be put into its memory: %s", held_pid(h),
				 strerror(-r));
	return put_back(h, held_threads(h), area, old, err);
}
