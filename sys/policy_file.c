/* Reading the policy and its drop-ins. Whoever can write them decides over every container, so it must be root alone.
 */
#include "sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define DROP_INS_MAX 1024
#define SUFFIX ".json"

struct sources {
	struct policy_source *items; /* name and text are owned */
	size_t n, room;
};

static void sources_done(struct sources *sources)
{
	for (size_t i = 0; i < sources->n; i++) {
		free((char *) sources->items[i].name);
		free((char *) sources->items[i].text);
	}
	free(sources->items);
}

static int open_below(int base_fd, const char *path, int flags)
{
	const char *below = path + strspn(path, "/");
	int fd = openat(path[0] == '/' ? base_fd : AT_FDCWD, *below ? below : ".", flags | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* An absolute path is one below the root; a relative one is what the caller's shell takes it for. */
static int open_path(const struct sys *s, const char *path, int flags)
{
	return open_below(s->root_fd, path, flags);
}

static int check_owner(const struct stat *st, const char *path, struct error *err)
{
	/* A rootless runtime's hook runs as its user, who may trust what is his own. */
	if (st->st_uid != 0 && st->st_uid != geteuid())
		return error_set(err, EPERM, "%s: belongs to user %u, and must be root's%s: chown root %s", path,
				 st->st_uid, geteuid() ? " or yours" : "", path);
	if (st->st_mode & (S_IWGRP | S_IWOTH))
		return error_set(err, EPERM, "%s: mode %04o lets others change it: chmod go-w %s", path,
				 st->st_mode & 07777u, path);
	return 0;
}

static int check_file(int fd, const char *path, struct error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_set(err, errno, "%s: %s", path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return error_set(err, EISDIR, "%s: is a directory; name the policy in it", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, EINVAL, "%s: is not a regular file", path);
	return check_owner(&st, path, err);
}

/* ---- directories: who can write one of them can put another file in the policy's place ---- */

#define OVERFLOW_UID 65534 /* DEFAULT_OVERFLOWUID (linux/highuid.h): whoever has no name in a user namespace */
#define UID_MAP_MAX (16u << 10)

/*
 * In a user namespace the host's root is nobody, and so is the owner of "/". Whoever stands above the namespace can do
 * with it what he likes anyway.
 */
static bool is_above_us(uid_t uid)
{
	cleanup_fd int fd = uid == OVERFLOW_UID ? open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC) : -1;
	cleanup_free char *map = NULL;
	unsigned long inside, outside, count;
	char *at;

	if (fd < 0 || file_read_fd(fd, UID_MAP_MAX, &map, NULL) < 0)
		return false;
	inside = strtoul(map, &at, 10); /* the first line; the host's own namespace has one for all */
	outside = strtoul(at, &at, 10);
	count = strtoul(at, &at, 10);
	return inside != 0 || outside != 0 || count != UINT32_MAX;
}

/* A sticky one (/tmp) keeps others' hands off. */
static int check_dir(int base_fd, const char *dir, bool holds_it, struct error *err)
{
	cleanup_fd int fd = open_below(base_fd, dir, O_PATH | O_DIRECTORY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set(err, fd < 0 ? -fd : errno, "directory %s: %s", dir, strerror(fd < 0 ? -fd : errno));
	if (st.st_mode & S_ISVTX)
		st.st_mode &= ~(mode_t) (S_IWGRP | S_IWOTH);
	if (!holds_it && is_above_us(st.st_uid))
		st.st_uid = 0;
	return check_owner(&st, dir, err);
}

/* "/etc/cotenant/policy.json" → "/", "/etc/", "/etc/cotenant/" */
static int check_dirs(int base_fd, const char *path, struct error *err)
{
	const char *last = strrchr(path, '/');
	int r = last ? 0 : check_dir(base_fd, ".", true, err);

	for (const char *slash = strchr(path, '/'); slash && r == 0; slash = strchr(slash + 1, '/')) {
		cleanup_free char *dir = strndup(path, (size_t) (slash - path) + 1);

		r = dir ? check_dir(base_fd, dir, slash == last, err) : error_no_memory(err);
	}
	return r;
}

/* The directories of its name, and, when links led elsewhere or it is relative, those where it really lies. */
static int check_place(const struct sys *s, int fd, const char *path, struct error *err)
{
	cleanup_free char *real = calloc(1, PATH_MAX);
	char link[sizeof("/proc/self/fd/2147483647")];
	int r = real ? check_dirs(s->root_fd, path, err) : error_no_memory(err);

	/* Below another root that is a matter of that root's machine. */
	if (r < 0 || !s->acting)
		return r;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (readlink(link, real, PATH_MAX - 1) < 0)
		return error_set(err, errno, "%s: where it lies cannot be told: %s: %s", path, link, strerror(errno));
	return str_eq(real, path) ? 0 : check_dirs(s->root_fd, real, err);
}

/* Takes the descriptor, or the negative errno of opening it. */
static int add_source(const struct sys *s, struct sources *sources, int opened, const char *path, struct error *err)
{
	cleanup_fd int fd = opened;
	cleanup_free char *text = NULL, *name = NULL;
	size_t len = 0;
	int r = fd < 0 ? error_set(err, -fd, "%s: %s", path, strerror(-fd)) : check_file(fd, path, err);

	if (r == 0)
		r = check_place(s, fd, path, err);
	if (r < 0)
		return r;
	r = file_read_fd(fd, POLICY_MAX, &text, &len);
	if (r == -EFBIG)
		return error_set(err, EFBIG, "%s: is larger than %u bytes", path, POLICY_MAX);
	if (r < 0)
		return error_set(err, -r, "%s: %s", path, strerror(-r));
	if (len == 0)
		return error_set(err, EINVAL, "%s: is empty; the least that says something is in cotenant-policy(5)",
				 path);
	if (sources->n == sources->room) {
		size_t room = sources->room ? sources->room * 2 : 8;
		struct policy_source *items = reallocarray(sources->items, room, sizeof(*items));

		if (!items)
			return error_no_memory(err);
		sources->items = items;
		sources->room = room;
	}
	name = strdup(path);
	if (!name)
		return error_no_memory(err);
	sources->items[sources->n++] = (struct policy_source){ TAKE_PTR(name), TAKE_PTR(text), len };
	return 0;
}

static int load_main(const struct sys *s, const char *path, struct sources *sources, struct error *err)
{
	/* O_NONBLOCK: a FIFO must not hold a container start. */
	int fd = open_path(s, path, O_RDONLY | O_NOCTTY | O_NONBLOCK);

	if (fd == -ENOENT)
		return error_set(err, ENOENT,
				 "%s: there is none: write one (cotenant-policy(5)) or name one with --policy", path);
	return add_source(s, sources, fd, path, err);
}

/* ---- drop-ins ---- */

/* "…/policy.json" → "…/policy.d" */
static char *drop_in_dir(const char *path)
{
	size_t len = strlen(path), suffix = strlen(SUFFIX);
	char *dir;

	if (len > suffix && str_eq(path + len - suffix, SUFFIX))
		len -= suffix;
	return asprintf(&dir, "%.*s.d", (int) len, path) < 0 ? NULL : dir;
}

static int is_drop_in(const struct dirent *d)
{
	size_t len = strlen(d->d_name), suffix = strlen(SUFFIX);

	return d->d_name[0] != '.' && len > suffix && str_eq(d->d_name + len - suffix, SUFFIX);
}

/* Not alphasort(): the order must not depend on the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_drop_in(const struct sys *s, struct sources *sources, int dir_fd, const char *dir, const char *name,
		       struct error *err)
{
	cleanup_free char *path = NULL;
	int fd;

	if (asprintf(&path, "%s/%s", dir, name) < 0) {
		path = NULL;
		return error_no_memory(err);
	}
	fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	return add_source(s, sources, fd < 0 ? -errno : fd, path, err);
}

static int load_drop_ins(const struct sys *s, const char *path, struct sources *sources, struct error *err)
{
	cleanup_free char *dir = drop_in_dir(path);
	struct dirent **found = NULL;
	cleanup_fd int fd = -1;
	struct stat st;
	int n, r;

	if (!dir)
		return error_no_memory(err);
	fd = open_path(s, dir, O_RDONLY | O_DIRECTORY);
	if (fd == -ENOENT)
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set(err, fd < 0 ? -fd : errno, "directory %s: %s", dir, strerror(fd < 0 ? -fd : errno));
	r = check_owner(&st, dir, err);
	if (r == 0)
		r = check_place(s, fd, dir, err);
	if (r < 0)
		return r;
	n = scandirat(fd, ".", &found, is_drop_in, by_name);
	if (n < 0)
		return error_set(err, errno, "directory %s: %s", dir, strerror(errno));
	if (n > DROP_INS_MAX)
		r = error_set(err, E2BIG, "directory %s: holds more than %d policies", dir, DROP_INS_MAX);
	for (int i = 0; i < n; i++) {
		if (r == 0)
			r = add_drop_in(s, sources, fd, dir, found[i]->d_name, err);
		free(found[i]);
	}
	free(found);
	return r;
}

int policy_load(const struct sys *s, const char *path, struct policy **ret_policy, struct error *err)
{
	cleanup_with(sources_done) struct sources sources = { 0 };
	int r = load_main(s, path, &sources, err);

	if (r == 0)
		r = load_drop_ins(s, path, &sources, err);
	return r < 0 ? r : policy_parse(sources.items, sources.n, ret_policy, err);
}
