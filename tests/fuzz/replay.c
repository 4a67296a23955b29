/*
 * Runs every file of the given directories (or the given files) through a fuzz harness, so that any compiler can replay
 * the corpus. Fails when a directory holds no file, since a test that ran nothing has shown nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>

#include "base.h"

#define FILE_MAX (4u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int complain(const char *path, int code)
{
	fprintf(stderr, "replay: %s: %s\n", path, strerror(code));
	return -code;
}

static int replay_file(const char *path)
{
	cleanup_free uint8_t *data = malloc(FILE_MAX), *exact = NULL;
	FILE *f = data ? fopen(path, "re") : NULL;
	size_t size;

	if (!f)
		return complain(path, errno);
	size = fread(data, 1, FILE_MAX, f);
	fclose(f);
	exact = malloc(size ? size : 1); /* so that a read past the end is seen */
	if (!exact)
		return complain(path, ENOMEM);
	memcpy(exact, data, size);
	(void) LLVMFuzzerTestOneInput(exact, size);
	return 0;
}

static int replay_directory(const char *path, DIR *dir)
{
	struct dirent *entry;
	size_t n = 0;

	while ((entry = readdir(dir))) {
		cleanup_free char *file = NULL;
		int r;

		if (entry->d_name[0] == '.')
			continue;
		if (asprintf(&file, "%s/%s", path, entry->d_name) < 0) {
			file = NULL;
			return complain(path, ENOMEM);
		}
		r = replay_file(file);
		if (r < 0)
			return r;
		n++;
	}
	printf("replay: %s: %zu files\n", path, n);
	return n ? 0 : complain(path, ENOENT);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: %s DIRECTORY-OR-FILE...\n", argv[0]);
		return 2;
	}
	for (int i = 1; i < argc; i++) {
		DIR *dir = opendir(argv[i]);
		int r = dir ? replay_directory(argv[i], dir) : replay_file(argv[i]);

		if (dir)
			closedir(dir);
		if (r < 0)
			return 1;
	}
	return 0;
}
