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

/* get_mempolicy(2) wants room for as many nodes as the kernel could have (MAX_NUMNODES), one bit less than is passed. */
#define KERNEL_NODES 1024
#define KERNEL_MAXNODE (KERNEL_NODES + 1)
/* mpol_to_str() formats into 64 bytes in show_numa_map(): a long node list is cut. */
#define KERNEL_TEXT_MAX 63
/* More than ADDRESS and POLICY, so that the kernel formats one line and walks the pages of one mapping. */
#define FIRST_LINE 128

struct old_policy {
	int32_t mode;
	unsigned long nodes[KERNEL_NODES / (8 * sizeof(unsigned long))];
};

/* As it lies in the process's scratch memory. */
struct area {
	uint64_t nodes;
	struct old_policy old;
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
static int read_back(struct held *h, pid_t tid, int mode, nodemask nodes, struct error *err)
{
	cleanup_free char *path = NULL, *list = nodemask_format(nodes), *want = NULL, *got = NULL;
	const char *taken;
	int r;

	if (!list || asprintf(&want, "%s%s%s", mode_name(mode), nodes ? "=static:" : "", list) < 0)
		want = NULL;
	if (asprintf(&path, "/proc/%d/task/%d/numa_maps", held_pid(h), tid) < 0)
		path = NULL;
	if (!want || !path)
		return error_set(err, ENOMEM, "no memory");
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

static int get_old(struct held *h, size_t thread, unsigned long area, struct old_policy *ret)
{
	const unsigned long mode_at = area + offsetof(struct area, old.mode);
	const unsigned long nodes_at = area + offsetof(struct area, old.nodes);
	const unsigned long args[6] = { mode_at, nodes_at, KERNEL_MAXNODE, 0, 0 };
	long result;
	int r = held_call(h, thread, SYS_get_mempolicy, args, &result);

	if (r == 0 && result < 0)
		r = (int) result;
	return r < 0 ? r : held_read(h, area + offsetof(struct area, old), ret, sizeof(*ret));
}

static int set_policy(struct held *h, size_t thread, int mode, unsigned long nodes, unsigned long maxnode)
{
	const unsigned long args[6] = { (unsigned long) mode, nodes, maxnode };
	long result;
	int r = held_call(h, thread, SYS_set_mempolicy, args, &result);

	return r < 0 ? r : (int) result;
}

static int put_old(struct held *h, size_t thread, unsigned long area, const struct old_policy *old)
{
	int r = held_write(h, area + offsetof(struct area, old), old, sizeof(*old));

	return r < 0 ? r : set_policy(h, thread, old->mode, area + offsetof(struct area, old.nodes), KERNEL_MAXNODE);
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

static int inject_thread(struct held *h, size_t thread, unsigned long area, int mode, nodemask nodes,
			 struct old_policy *ret_old, bool *ret_changed, struct error *err)
{
	const pid_t tid = held_tid(h, thread);
	int r = get_old(h, thread, area, ret_old);

	if (r < 0)
		return set_error(tid, mode, nodes, r, err);
	r = nodes ? set_policy(h, thread, mode | MPOL_F_STATIC_NODES, area + offsetof(struct area, nodes), NODE_MAX + 1) :
		    set_policy(h, thread, mode, 0, 0);
	if (r < 0)
		return set_error(tid, mode, nodes, r, err);
	*ret_changed = true;
	return read_back(h, tid, mode, nodes, err);
}

int mempolicy_inject(struct held *h, enum memory_policy policy, nodemask nodes, struct error *err)
{
	const size_t n = held_threads(h);
	cleanup_free struct old_policy *old = calloc(n, sizeof(*old));
	int mode = mempolicy_mode(policy), r;
	unsigned long area;
	bool changed = false;
	size_t i = 0;

	if (!old)
		return error_set(err, ENOMEM, "no memory");
	if (mode < 0 || policy == MEMORY_INHERIT)
		return mode < 0 ? mode : 0;
	if (policy == MEMORY_LOCAL)
		nodes = 0; /* takes neither nodes nor flags */
	else if (!nodes)
		return error_set(err, EINVAL, "memory policy %s names no node", mode_name(mode));
	if (policy == MEMORY_PREFERRED && (nodes & (nodes - 1)))
		mode = MODE_PREFERRED_MANY;
	r = held_scratch(h, sizeof(struct area), &area);
	if (r == 0)
		r = held_write(h, area + offsetof(struct area, nodes), &nodes, sizeof(nodes));
	if (r < 0)
		return error_set(err, -r, "process %d: no memory for call arguments: %s", held_pid(h), strerror(-r));
	for (; i < n; i++) {
		changed = false;
		r = inject_thread(h, i, area, mode, nodes, &old[i], &changed, err);
		if (r < 0)
			break;
	}
	if (r == 0)
		return 0;
	for (size_t k = 0; k < i + changed; k++)
		if (put_old(h, k, area, &old[k]) < 0)
			error_prefix(err, r, "memory policy of thread %d could not be put back", held_tid(h, k));
	return r;
}

int mempolicy_reset(struct held *h, struct error *err)
{
	for (size_t i = 0; i < held_threads(h); i++) {
		int r = set_policy(h, i, MPOL_DEFAULT, 0, 0);

		if (r < 0)
			return set_error(held_tid(h, i), MPOL_DEFAULT, 0, r, err);
	}
	return 0;
}
