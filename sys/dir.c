#include "dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>

/* The kernel's own ceiling for threads (PID_MAX_LIMIT): no directory read here can hold more. */
#define IDS_MAX (4u << 20)

struct ids {
	int *id;
	size_t n, room;
};

static int ids_add(struct ids *ids, int id)
{
	if (ids->n == IDS_MAX)
		return -EFBIG;
	if (ids->n == ids->room) {
		size_t room = ids->room ? ids->room * 2 : 32;
		int *bigger = reallocarray(ids->id, room, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		ids->id = bigger;
		ids->room = room;
	}
	ids->id[ids->n++] = id;
	return 0;
}

static bool parse_id(const char *name, const char *prefix, int *ret)
{
	unsigned long id;
	char *end;

	if (!str_starts(name, prefix))
		return false;
	name += strlen(prefix);
	if (*name < '0' || *name > '9')
		return false;
	id = strtoul(name, &end, 10);
	if (*end || id > INT_MAX)
		return false;
	*ret = (int) id;
	return true;
}

static int compare_ids(const void *a, const void *b)
{
	int x = *(const int *) a, y = *(const int *) b;

	return (x > y) - (x < y);
}

/* getdents64(2) instead of readdir(3), whose 32 KiB buffer costs page faults on every container start. */
static int read_ids(int fd, const char *prefix, struct ids *ids)
{
	_Alignas(struct dirent64) char buffer[2048];

	for (;;) {
		ssize_t n = getdents64(fd, buffer, sizeof(buffer));

		if (n <= 0)
			return n < 0 ? -errno : 0;
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *entry = (const void *) (buffer + at);
			int id, r;

			at += entry->d_reclen;
			if (!parse_id(entry->d_name, prefix, &id))
				continue;
			r = ids_add(ids, id);
			if (r < 0)
				return r;
		}
	}
}

int dir_ids(const struct sys *s, const char *path, const char *prefix, int **ret_ids, size_t *ret_n)
{
	cleanup_fd int fd = openat(s->root_fd, path + 1, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ids ids = { 0 };
	int r;

	if (fd < 0)
		return -errno;
	r = read_ids(fd, prefix, &ids);
	if (r < 0) {
		free(ids.id);
		return r;
	}
	if (ids.n)
		qsort(ids.id, ids.n, sizeof(*ids.id), compare_ids);
	*ret_ids = ids.id;
	*ret_n = ids.n;
	return 0;
}

DIR *dir_open(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir && fd >= 0) {
		int code = errno;

		close(fd);
		errno = code;
	}
	return dir;
}

void dir_closep(DIR **dir)
{
	if (*dir)
		closedir(*dir);
	*dir = NULL;
}
