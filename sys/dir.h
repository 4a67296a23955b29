/* Directories: of numbered entries (/proc/PID/task, weighted_interleave/nodeN), and to be read name by name. */
#pragma once

#include <dirent.h>

#include "sys.h"

/*
 * The numbers N of all entries named PREFIXN, ascending, malloc'd; other entries are passed over. Absolute path below
 * the root.
 */
int dir_ids(const struct sys *s, const char *path, const char *prefix, int **ret_ids, size_t *ret_n) must_check;

/* The directory `name` below dir_fd as a stream of its own, or NULL and errno. No symbolic link is followed. */
DIR *dir_open(int dir_fd, const char *name) must_check;
void dir_closep(DIR **dir);
#define cleanup_dir cleanup_with(dir_closep)
