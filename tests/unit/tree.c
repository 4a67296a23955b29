#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

static char *join(const char *root, const char *path)
{
	char *joined = NULL;

	assert_true(asprintf(&joined, "%s%s", root, path) > 0);
	return joined;
}

char *tree_new(void)
{
	char *root = strdup("/tmp/cotenant-test-XXXXXX");

	assert_non_null(root);
	assert_non_null(mkdtemp(root));
	return root;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void) st;
	(void) type;
	(void) ftw;
	return remove(path);
}

void tree_free(char *root)
{
	assert_int_equal(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
	free(root);
}

void tree_dir(const char *root, const char *path)
{
	cleanup_free char *full = join(root, path);

	for (char *slash = full + strlen(root); slash; slash = strchr(slash + 1, '/')) {
		if (slash == full + strlen(root))
			continue;
		*slash = '\0';
		assert_true(mkdir(full, 0755) == 0 || errno == EEXIST);
		*slash = '/';
	}
	assert_true(mkdir(full, 0755) == 0 || errno == EEXIST);
}

static char *make_parent(const char *root, const char *path)
{
	cleanup_free char *parent = strdup(path);

	assert_non_null(parent);
	*strrchr(parent, '/') = '\0';
	if (*parent)
		tree_dir(root, parent);
	return join(root, path);
}

void tree_file(const char *root, const char *path, const char *text)
{
	cleanup_free char *full = make_parent(root, path);
	FILE *file = fopen(full, "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

void tree_link(const char *root, const char *path, const char *target)
{
	cleanup_free char *full = make_parent(root, path);

	assert_int_equal(symlink(target, full), 0);
}

char *tree_read(const char *root, const char *path)
{
	cleanup_free char *full = join(root, path);
	cleanup_fd int fd = open(full, O_RDONLY | O_CLOEXEC);
	char *text = NULL;

	assert_true(fd >= 0);
	assert_int_equal(file_read_fd(fd, 1 << 20, &text, NULL), 0);
	return text;
}
