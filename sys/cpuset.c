#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#define VALUE_MAX (64u << 10) /* of one cpuset file; 4,096 CPUs with gaps take 20 KiB */

/* The two sets of a cpuset. Both are lists of numbers, so both are compared as masks. */
enum which { CPUS, MEMS };
static const struct {
	const char *file;
	const char *effective[2]; /* v1, v2 */
} files[] = {
	[CPUS] = { "cpuset.cpus", { "cpuset.effective_cpus", "cpuset.cpus.effective" } },
	[MEMS] = { "cpuset.mems", { "cpuset.effective_mems", "cpuset.mems.effective" } },
};

void cpuset_done(struct cpuset *c)
{
	closep(&c->dir_fd);
	free(c->path);
	free(c->mount);
	*c = CPUSET_NONE;
}

/* A container may have named its cgroup. */
static int in_cgroup(const char *path, int r, struct error *err)
{
	cleanup_free char *shown = printable(path, strlen(path), 300);

	return error_prefix(err, r, "cgroup %s", shown ? shown : "?");
}

/* ---- finding the directory ---- */

static int open_dir(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Hands the controller to the children of one cgroup. */
static int enable_below(int dir_fd, struct error *err)
{
	int r = file_write_at(dir_fd, "cgroup.subtree_control", "+cpuset");

	switch (-r) {
	case 0:
		return 0;
	case EBUSY:
		return error_set(err, ENOTSUP, "no cpuset controller: an ancestor holds processes of its own, so the "
					       "kernel does not hand controllers down from it");
	case ENOENT:
		return error_set(err, ENOTSUP, "no cpuset controller: it is bound to a cgroup v1 hierarchy, or an "
					       "ancestor does not hand it down");
	default:
		return error_set(err, ENOTSUP, "no cpuset controller: cgroup.subtree_control of an ancestor cannot be "
					       "written: %s", strerror(-r));
	}
}

/*
 * Walks down one name at a time and never follows a link, so that no path leads out of the mount. With `enable` every
 * directory on the way hands the cpuset controller to its children.
 */
static int walk(const struct sys *s, const struct cpuset *c, bool enable, int *ret_fd, struct error *err)
{
	cleanup_fd int fd = openat(s->root_fd, c->mount + 1, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *at = c->path;

	if (fd < 0)
		return error_set(err, errno, "mount point %s: %s", c->mount, strerror(errno));
	for (at += strspn(at, "/"); *at; at += strspn(at, "/")) {
		cleanup_free char *name = strndup(at, strcspn(at, "/"));
		int next, r;

		if (!name)
			return error_no_memory(err);
		if (str_eq(name, ".") || str_eq(name, ".."))
			return error_set(err, EINVAL, "the path must not hold \"%s\"", name);
		if (enable && (r = enable_below(fd, err)) < 0)
			return r;
		next = open_dir(fd, name);
		if (next == -ENOTDIR || next == -ELOOP)
			return error_set(err, -next, "a part of the path is not a directory (a symbolic link is not "
						     "followed)");
		if (next < 0)
			return error_set(err, -next, "cannot be opened: %s", strerror(-next));
		closep(&fd);
		fd = next;
		at += strlen(name);
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* One look tells both: whether the controller is there, and whether the caller may use it. */
static bool has_controller(const struct sys *s, struct cpuset *c)
{
	bool may_write = faccessat(c->dir_fd, files[CPUS].file, W_OK, AT_EACCESS) == 0;
	bool there = may_write || errno != ENOENT;

	c->writable = may_write && s->acting;
	return there;
}

static int open_checked(const struct sys *s, struct cpuset *c, struct error *err)
{
	int r;

	if (c->path[0] != '/')
		return error_set(err, EINVAL, "a path from the mount point on is needed");
	if (str_eq(c->path, "/"))
		return error_set(err, ENOTSUP, "the root cgroup's cpuset is the whole machine and cannot be changed");
	r = walk(s, c, false, &c->dir_fd, err);
	if (r < 0 || has_controller(s, c))
		return r;
	if (c->v2 && s->acting) {
		closep(&c->dir_fd);
		c->dir_fd = -1;
		r = walk(s, c, true, &c->dir_fd, err);
		if (r < 0 || has_controller(s, c))
			return r;
	}
	return error_set(err, ENOTSUP, "no cpuset controller");
}

int cpuset_open_path(const struct sys *s, const struct cgroup_layout *layout, const char *path, struct cpuset *ret,
		     struct error *err)
{
	cleanup_cpuset struct cpuset c = CPUSET_NONE;
	int r;

	if (!layout->cpuset_mount)
		return error_set(err, ENOTSUP, "no cpuset controller is mounted on this machine");
	c.v2 = layout->cpuset_v2;
	c.path = strdup(path);
	c.mount = strdup(layout->cpuset_mount);
	if (!c.path || !c.mount)
		return error_no_memory(err);
	r = open_checked(s, &c, err);
	if (r < 0)
		return in_cgroup(path, r, err);
	*ret = c;
	c = CPUSET_NONE;
	return 0;
}

static bool names_cpuset(const char *controllers, size_t len)
{
	static const char word[] = "cpuset";
	size_t n;

	for (const char *end = controllers + len; controllers < end; controllers += n + 1) {
		const char *comma = memchr(controllers, ',', (size_t) (end - controllers));

		n = comma ? (size_t) (comma - controllers) : (size_t) (end - controllers);
		if (n == strlen(word) && memcmp(controllers, word, n) == 0)
			return true;
	}
	return false;
}

/* The path in "ID:CONTROLLERS:PATH" (cgroups(7)) of the hierarchy that has the controller. Cuts `text`. */
static char *path_in_hierarchy(char *text, bool v2)
{
	char *save = NULL;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!path)
			continue;
		controllers++;
		if (v2 ? str_starts(line, "0::") : names_cpuset(controllers, (size_t) (path - controllers)))
			return path + 1;
	}
	return NULL;
}

static bool ends_with(const char *s, const char *end)
{
	size_t len = strlen(s), n = strlen(end);

	return len >= n && str_eq(s + len - n, end);
}

int cpuset_open(const struct sys *s, const struct cgroup_layout *layout, pid_t pid, struct cpuset *ret,
		struct error *err)
{
	cleanup_free char *text = NULL;
	char *path;
	int r = file_readf(s, &text, "/proc/%d/cgroup", pid);

	if (r < 0)
		return error_set(err, r == -ENOENT ? ESRCH : -r, "process %d: its cgroup cannot be read: %s", pid,
				 strerror(r == -ENOENT ? ESRCH : -r));
	path = path_in_hierarchy(text, layout->cpuset_v2);
	if (!path)
		return error_set(err, ENOTSUP, "process %d is in no cgroup of the cpuset hierarchy", pid);
	if (str_eq(path, "/..") || str_starts(path, "/../"))
		return error_set(err, ENOTSUP, "process %d: its cgroup lies outside of cotenant's cgroup namespace; "
					       "run cotenant in the host's", pid);
	if (ends_with(path, " (deleted)"))
		return error_set(err, ENOENT, "process %d: its cgroup was removed", pid);
	r = cpuset_open_path(s, layout, path, ret, err);
	return r < 0 ? error_prefix(err, r, "process %d", pid) : 0;
}

/* ---- reading ---- */

/* Without its newline. */
static int read_value(int dir_fd, const char *name, char **ret_text)
{
	int r = file_read_at(dir_fd, name, VALUE_MAX, ret_text, NULL);

	if (r == 0)
		(*ret_text)[strcspn(*ret_text, "\n")] = '\0';
	return r;
}

/* What applies. Kernels before 3.17 have no such file in v1: there it is the configured value. */
static int read_effective(const struct cpuset *c, int dir_fd, enum which which, char **ret_text)
{
	int r = read_value(dir_fd, files[which].effective[c->v2], ret_text);

	return r == -ENOENT && !c->v2 ? read_value(dir_fd, files[which].file, ret_text) : r;
}

int cpuset_read(const struct cpuset *c, char **ret_cpus, char **ret_mems, struct mask *ret_effective_cpus,
		nodemask *ret_effective_mems)
{
	cleanup_free char *cpus = NULL, *mems = NULL, *effective_cpus = NULL, *effective_mems = NULL;
	struct mask cpu_mask = { 0 };
	nodemask nodes = 0;
	int r = 0;

	if (ret_cpus)
		r = read_value(c->dir_fd, files[CPUS].file, &cpus);
	if (r == 0 && ret_mems)
		r = read_value(c->dir_fd, files[MEMS].file, &mems);
	if (r == 0 && ret_effective_cpus && (r = read_effective(c, c->dir_fd, CPUS, &effective_cpus)) == 0)
		r = mask_parse(effective_cpus, &cpu_mask);
	if (r == 0 && ret_effective_mems && (r = read_effective(c, c->dir_fd, MEMS, &effective_mems)) == 0)
		r = nodemask_parse(effective_mems, &nodes);
	if (r < 0)
		return r;
	if (ret_cpus)
		*ret_cpus = TAKE_PTR(cpus);
	if (ret_mems)
		*ret_mems = TAKE_PTR(mems);
	if (ret_effective_cpus)
		*ret_effective_cpus = cpu_mask;
	if (ret_effective_mems)
		*ret_effective_mems = nodes;
	return 0;
}

/* ---- writing ---- */

static const char *or_nothing(const char *list)
{
	return list && *list ? list : "nothing";
}

/* What the parent has to give, for messages and for v1, which has no inheriting. */
static int read_parent(const struct cpuset *c, enum which which, char **ret_text)
{
	cleanup_fd int parent = open_dir(c->dir_fd, "..");

	return parent < 0 ? parent : read_effective(c, parent, which, ret_text);
}

static int refused(const struct cpuset *c, enum which which, const char *value, int r, struct error *err)
{
	cleanup_free char *parent = NULL;

	if (read_parent(c, which, &parent) < 0)
		parent = NULL;
	/* v1 says EACCES beyond the parent's set, EBUSY below a child's (kernel/cgroup/cpuset-v1.c). */
	return error_set(err, -r, "%s: the kernel refused %s: %s%s%s", files[which].file, or_nothing(value),
			 r == -EBUSY ? "a child cgroup or a deadline task needs more" : strerror(-r),
			 parent ? "; the parent cgroup has " : "", parent ? or_nothing(parent) : "");
}

static bool same_set(const char *a, const char *b)
{
	struct mask x = { 0 }, y = { 0 };

	return mask_parse(a, &x) == 0 && mask_parse(b, &y) == 0 && mask_equal(&x, &y);
}

/* The kernel takes a v2 value whole and then applies what the parent has of it, or the parent's where that is none. */
static int read_back(const struct cpuset *c, enum which which, const char *value, struct error *err)
{
	cleanup_free char *configured = NULL, *effective = NULL, *parent = NULL;
	int r = read_value(c->dir_fd, files[which].file, &configured);

	if (r == 0)
		r = read_effective(c, c->dir_fd, which, &effective);
	if (r < 0)
		return error_set(err, -r, "%s: cannot be read back: %s", files[which].file, strerror(-r));
	if (same_set(configured, value) && *effective && (!*value || same_set(effective, value)))
		return 0;
	if (!same_set(configured, value))
		return error_set(err, EBADE, "%s: wrote %s, the kernel made it %s", files[which].file,
				 or_nothing(value), or_nothing(configured));
	if (read_parent(c, which, &parent) < 0)
		parent = NULL;
	return error_set(err, EBADE, "%s: wrote %s, but %s applies: the parent cgroup has %s", files[which].file,
			 or_nothing(value), or_nothing(effective), parent ? or_nothing(parent) : "an unknown set");
}

/* No value at all stands for the parent's. */
static int inherit(const struct cpuset *c, enum which which, char **ret_text, struct error *err)
{
	int r = read_parent(c, which, ret_text);

	return r < 0 ? error_set(err, -r, "%s: the parent's value cannot be read: %s", files[which].file,
				 strerror(-r)) :
		       0;
}

/* A value that stands there already is not written again, but whether it applies is looked up all the same. */
static int write_one(const struct cpuset *c, enum which which, const char *old, const char *value, struct error *err)
{
	cleanup_free char *inherited = NULL;
	int r = 0;

	if (!*value && !c->v2) {
		r = inherit(c, which, &inherited, err);
		if (r < 0)
			return r;
		value = inherited;
	}
	/* write(2) of no bytes at all would not reach the kernel's handler. */
	if (!old || !same_set(old, value))
		r = file_write_at(c->dir_fd, files[which].file, *value ? value : "\n");
	/* v2 takes back no value of a cgroup that has processes (validate_change() in kernel/cgroup/cpuset.c). */
	if (r == -ENOSPC && !*value) {
		r = inherit(c, which, &inherited, err);
		if (r < 0)
			return r;
		value = inherited;
		r = file_write_at(c->dir_fd, files[which].file, value);
	}
	return r < 0 ? refused(c, which, value, r, err) : read_back(c, which, value, err);
}

/* Memory first: pages then follow the CPUs that are about to change, and never the other way round. */
static int write_both(const struct cpuset *c, const char *const old[2], const char *const new[2], struct error *err)
{
	int r = new[MEMS] ? write_one(c, MEMS, old[MEMS], new[MEMS], err) : 0;

	return r == 0 && new[CPUS] ? write_one(c, CPUS, old[CPUS], new[CPUS], err) : r;
}

int cpuset_write(const struct sys *s, const struct cpuset *c, const char *cpus, const char *mems, struct error *err)
{
	cleanup_free char *old_cpus = NULL, *old_mems = NULL;
	static const char *const unknown[2] = { NULL, NULL };
	int r;

	if (c->dir_fd < 0)
		return error_set(err, ENOTSUP, "the container has no cpuset cgroup");
	if (!s->acting)
		return in_cgroup(c->path,
				 error_set(err, EROFS, "the root directory is not this machine's: nothing is changed"),
				 err);
	r = cpuset_read(c, cpus ? &old_cpus : NULL, mems ? &old_mems : NULL, NULL, NULL);
	if (r < 0)
		return in_cgroup(c->path, error_set(err, -r, "its cpuset cannot be read: %s", strerror(-r)), err);
	r = write_both(c, (const char *const[]){ [CPUS] = old_cpus, [MEMS] = old_mems },
		       (const char *const[]){ [CPUS] = cpus, [MEMS] = mems }, err);
	if (r == 0)
		return 0;
	/* Half a change is nobody's wish. */
	if (write_both(c, unknown, (const char *const[]){ [CPUS] = old_cpus, [MEMS] = old_mems }, NULL) < 0)
		error_prefix(err, r, "half changed, and the old value cannot be put back");
	return in_cgroup(c->path, r, err);
}
