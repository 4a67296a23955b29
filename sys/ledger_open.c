/* Opening the state directory, and the locks in it. */
#include "ledger_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#define LOCK_NAMES 65536 /* of each kind */

uint64_t ledger_hash(const char *s)
{
	uint64_t hash = UINT64_C(14695981039346656037);

	for (; *s; s++)
		hash = (hash ^ (unsigned char) *s) * UINT64_C(1099511628211);
	return hash;
}

/* ---- directories ---- */

/* Every directory on the way that is missing. */
static int make_dirs(int base_fd, const char *path)
{
	cleanup_free char *part = strdup(path);

	if (!part)
		return -ENOMEM;
	for (char *at = part; *at;) {
		size_t len = strcspn(at, "/");
		char was = at[len];

		at[len] = '\0';
		if (len && mkdirat(base_fd, part, 0700) < 0 && errno != EEXIST)
			return -errno;
		at[len] = was;
		at += len + (was == '/');
	}
	return 0;
}

static int check_dir(int fd, const char *path, struct error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_set(err, errno, "state directory %s: %s", path, strerror(errno));
	if (st.st_uid != geteuid())
		return error_set(err, EPERM,
				 "state directory %s: belongs to user %u, who could plant entries: remove it, or give "
				 "another with --state-dir",
				 path, st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return error_set(
		    err, EPERM,
		    "state directory %s: mode %04o lets others plant entries: chmod go-w %s, after a look at "
		    "what is in it",
		    path, st.st_mode & 07777u, path);
	return 0;
}

static int open_dir(bool create, int base_fd, const char *name, const char *path, int *ret_fd, struct error *err)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	cleanup_fd int fd = openat(base_fd, name, flags);
	int r;

	if (fd < 0 && errno == ENOENT) {
		if (!create)
			return error_set(err, ENOENT,
					 "no ledger at %s: either nothing was placed since boot, or the hooks use "
					 "another --state-dir",
					 path);
		r = make_dirs(base_fd, name);
		if (r < 0)
			return error_set(err, -r,
					 "state directory %s: cannot be created: %s; give another with --state-dir",
					 path, strerror(-r));
		fd = openat(base_fd, name, flags);
	}
	if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
		return error_set(
		    err, ENOTDIR,
		    "state directory %s: is no directory (symbolic links are not followed); give another with "
		    "--state-dir",
		    path);
	if (fd < 0)
		return error_set(err, errno, "state directory %s: %s%s", path, strerror(errno),
				 errno == EACCES ? ": it is root's alone" : "");
	r = check_dir(fd, path, err);
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

static int open_all(struct ledger *l, bool create, struct error *err)
{
	const bool absolute = l->path[0] == '/';
	const char *below = l->path + strspn(l->path, "/");
	int r = open_dir(create, absolute ? l->sys->root_fd : AT_FDCWD, *below ? below : ".", l->path, &l->dir_fd, err);

	if (r == 0)
		r = open_dir(create, l->dir_fd, "containers", l->path, &l->containers_fd, err);
	if (r == 0)
		r = open_dir(create, l->dir_fd, "groups", l->path, &l->groups_fd, err);
	if (r < 0 || !create)
		return r;
	l->lock_fd = openat(l->dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	return l->lock_fd < 0 ? error_set(err, errno, "%s/lock: %s", l->path, strerror(errno)) : 0;
}

static int open_ledger(struct sys *sys, const char *state_dir, bool create, struct ledger **ret_ledger,
		       struct error *err)
{
	cleanup_ledger struct ledger *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return error_no_memory(err);
	*l = (struct ledger){
		.sys = sys,
		.dir_fd = -1,
		.containers_fd = -1,
		.groups_fd = -1,
		.lock_fd = -1,
		.put_fd = -1,
		.index = INDEX_NONE,
	};
	l->path = strdup(state_dir);
	if (!l->path)
		return error_no_memory(err);
	r = open_all(l, create, err);
	if (r == 0)
		*ret_ledger = TAKE_PTR(l);
	return r;
}

int ledger_open(struct sys *sys, const char *state_dir, struct ledger **ret_ledger, struct error *err)
{
	return open_ledger(sys, state_dir, sys->acting, ret_ledger, err);
}

int ledger_open_existing(struct sys *sys, const char *state_dir, struct ledger **ret_ledger, struct error *err)
{
	return open_ledger(sys, state_dir, false, ret_ledger, err);
}

void ledger_close(struct ledger *l)
{
	if (!l)
		return;
	ledger_unlock(l);
	occupancy_done(&l->occupancy);
	closep(&l->dir_fd);
	closep(&l->containers_fd);
	closep(&l->groups_fd);
	closep(&l->lock_fd);
	closep(&l->put_fd);
	free(l->put_id);
	free(l->path);
	free(l);
}

void ledger_closep(struct ledger **l)
{
	ledger_close(*l);
	*l = NULL;
}

/* ---- locks ---- */

/*
 * One byte each, locked on the open file description: released by the kernel when its holder dies, shared by forked
 * children only until they exec or exit. (Classic record locks would be lost with the first close of the file.)
 *
 * The kernel does not say which process holds such a lock (F_OFD_GETLK gives pid -1), so the holder writes its pid at
 * the lock's place in the file.
 */
struct range {
	unsigned slot;
	const char *what;
};

#define HOLDER_LEN (sizeof("4194304   \n") - 1)

static int move_lock(const struct ledger *l, unsigned slot, short type)
{
	struct flock range = { .l_type = type, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1 };

	return fcntl(l->lock_fd, F_OFD_SETLK, &range) < 0 ? -errno : 0;
}

static void write_holder(const struct ledger *l, unsigned slot)
{
	char text[HOLDER_LEN + 1];

	snprintf(text, sizeof(text), "%-10d\n", getpid());
	if (pwrite(l->lock_fd, text, HOLDER_LEN, (off_t) (slot * HOLDER_LEN)) < 0)
		return; /* a message will be poorer */
}

static int timed_out(const struct ledger *l, unsigned slot, const char *what, struct error *err)
{
	char text[HOLDER_LEN + 1] = "";
	cleanup_free char *name = NULL, *shown = NULL;
	pid_t pid = 0;

	if (pread(l->lock_fd, text, HOLDER_LEN, (off_t) (slot * HOLDER_LEN)) > 0)
		pid = (pid_t) strtol(text, NULL, 10);
	if (pid <= 0 || file_readf(l->sys, &name, "/proc/%d/comm", pid) < 0)
		return error_set(err, ETIMEDOUT, "%s: %s is locked and was not freed in time", l->path, what);
	name[strcspn(name, "\n")] = '\0';
	shown = printable(name, strlen(name), 32);
	return error_set(
	    err, ETIMEDOUT,
	    "%s: %s is locked by process %d (%s) and was not freed in time: if that process hangs, kill it", l->path,
	    what, pid, shown ? shown : "?");
}

/*
 * Asks again and again rather than waiting in the kernel: F_OFD_SETLKW knows no time limit, and a signal that ends it
 * would be the program's business. The pauses grow to 1 ms, a few times what a hook holds the ledger for.
 */
static int take_lock(struct ledger *l, unsigned slot, const char *what, struct error *err)
{
	struct timespec pause = { .tv_nsec = 50000 };

	for (;;) {
		int r = move_lock(l, slot, F_WRLCK);

		if (r == 0) {
			write_holder(l, slot);
			return 0;
		}
		if (r != -EAGAIN && r != -EACCES && r != -EINTR)
			return error_set(err, -r, "%s/lock: %s", l->path, strerror(-r));
		if (sys_left_ms(l->sys) == 0)
			return timed_out(l, slot, what, err);
		ppoll(NULL, 0, &pause, NULL);
		pause.tv_nsec = pause.tv_nsec < 500000 ? pause.tv_nsec * 2 : 1000000;
	}
}

static void free_lock(const struct ledger *l, unsigned slot)
{
	if (move_lock(l, slot, F_UNLCK) < 0)
		return; /* only for a file description that holds no lock */
}

int ledger_need_lock(const struct ledger *l, struct error *err)
{
	return l->locked ? 0 : error_set(err, ENOLCK, "%s: the ledger is not locked", l->path);
}

int ledger_lock(struct ledger *l, struct error *err)
{
	int r = l->locked ? error_set(err, EDEADLK, "%s: the ledger is locked already", l->path)
			  : take_lock(l, 0, "the ledger", err);

	if (r == 0)
		l->locked = true;
	return r;
}

void ledger_unlock(struct ledger *l)
{
	if (!l->locked)
		return;
	index_done(&l->index);
	free_lock(l, 0);
	l->locked = false;
}

static unsigned slot_of(enum ledger_lock kind, const char *name)
{
	return 1 + (unsigned) kind * LOCK_NAMES + (unsigned) (ledger_hash(name) % LOCK_NAMES);
}

int ledger_lock_name(struct ledger *l, enum ledger_lock kind, const char *name, struct error *err)
{
	static const char *const kinds[] = {
		[LOCK_ID] = "container", [LOCK_GROUP] = "group", [LOCK_CPUSET] = "the cpuset of container"
	};
	cleanup_free char *shown = printable(name, strlen(name), TENANT_MAX);
	cleanup_free char *what = NULL;

	if (!shown || asprintf(&what, "%s %s", kinds[kind], shown) < 0) {
		what = NULL;
		return error_no_memory(err);
	}
	return take_lock(l, slot_of(kind, name), what, err);
}

int ledger_try_name(struct ledger *l, enum ledger_lock kind, const char *name)
{
	int r = move_lock(l, slot_of(kind, name), F_WRLCK);

	if (r == 0)
		write_holder(l, slot_of(kind, name));
	return r == -EACCES ? -EAGAIN : r;
}

void ledger_unlock_name(struct ledger *l, enum ledger_lock kind, const char *name)
{
	free_lock(l, slot_of(kind, name));
}
