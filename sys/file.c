#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#define FILE_READF_MAX (1u << 20)

/* The real root keeps absolute paths as they are: openat(2) ignores the directory then, and no path walk is added. */
static const char *below_root(const struct sys *s, const char *path)
{
	return s->acting ? path : path + 1;
}

int file_read_fd(int fd, size_t limit, char **ret_text, size_t *ret_len)
{
	size_t size = 4096, used = 0;
	cleanup_free char *text = malloc(size);

	if (!text)
		return -ENOMEM;
	for (;;) {
		ssize_t n = read(fd, text + used, size - used - 1);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (n == 0)
			break;
		used += (size_t) n;
		if (used > limit)
			return -EFBIG;
		if (size - used - 1 < size / 4) {
			char *bigger = realloc(text, size * 2);

			if (!bigger)
				return -ENOMEM;
			text = bigger;
			size *= 2;
		}
	}
	text[used] = '\0';
	*ret_text = TAKE_PTR(text);
	if (ret_len)
		*ret_len = used;
	return 0;
}

int file_read(const struct sys *s, const char *path, size_t limit, char **ret_text, size_t *ret_len)
{
	/* O_NONBLOCK: a FIFO in the place of a file must not hold a container start. */
	cleanup_fd int fd = openat(s->root_fd, below_root(s, path), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	return fd < 0 ? -errno : file_read_fd(fd, limit, ret_text, ret_len);
}

int file_read_at(int dir_fd, const char *name, size_t limit, char **ret_text, size_t *ret_len)
{
	cleanup_fd int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);

	return fd < 0 ? -errno : file_read_fd(fd, limit, ret_text, ret_len);
}

int file_readf(const struct sys *s, char **ret_text, const char *fmt, ...)
{
	cleanup_free char *path = NULL;
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&path, fmt, args) < 0)
		path = NULL;
	va_end(args);
	return path ? file_read(s, path, FILE_READF_MAX, ret_text, NULL) : -ENOMEM;
}

static int write_all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(fd, text, len);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		text += n;
		len -= (size_t) n;
	}
	return 0;
}

int file_write_at(int dir_fd, const char *name, const char *text)
{
	cleanup_fd int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW);
	size_t len = strlen(text);

	if (fd < 0)
		return -errno;
	/* Kernel files take a value whole or not at all: no second write. */
	errno = 0;
	return write(fd, text, len) == (ssize_t) len ? 0 : errno ? -errno : -EIO;
}

int file_write(const struct sys *s, const char *path, const char *text)
{
	return s->acting ? file_write_at(s->root_fd, path, text) : -EROFS;
}

static int replace(int dir_fd, const char *name, const char *text, size_t len, int flags, mode_t mode)
{
	cleanup_free char *temp = NULL;
	cleanup_fd int fd = -1;
	int r;

	if (asprintf(&temp, ".%d.tmp", getpid()) < 0)
		return -ENOMEM;
	fd = openat(dir_fd, temp, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, mode);
	if (fd < 0)
		return -errno;
	r = write_all(fd, text, len);
	if (r == 0 && renameat(dir_fd, temp, dir_fd, name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dir_fd, temp, 0);
	return r;
}

int file_replace(int dir_fd, const char *name, const char *text, size_t len)
{
	return replace(dir_fd, name, text, len, O_TRUNC, 0600);
}

int file_save(const char *path, const char *text, size_t len, struct error *err)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	cleanup_free char *dir = slash ? strndup(path, (size_t) (slash - path) + 1) : strdup(".");
	cleanup_fd int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	struct stat st;
	int r;

	if (!dir)
		return error_no_memory(err);
	if (fd < 0)
		return error_set(err, errno, "%s: %s", path, strerror(errno));
	/* A rename would put a file in the place of a device such as /dev/stdout. */
	if (!*name || (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode)))
		return error_set(err, EEXIST, "%s: is no regular file, and only such a one is replaced", path);
	/* O_EXCL: the directory may be one in which others can write too. */
	r = replace(fd, name, text, len, O_EXCL, 0666);
	return r < 0 ? error_set(err, -r, "%s: %s", path, strerror(-r)) : 0;
}
