/* Directories of numbered entries: /proc/PID/task, weighted_interleave/nodeN. */
#pragma once

#include "sys.h"

/*
 * The numbers N of all entries named PREFIXN, ascending, malloc'd; other entries are passed over. Absolute path below
 * the root.
 */
int dir_ids(const struct sys *s, const char *path, const char *prefix, int **ret_ids, size_t *ret_n) must_check;
