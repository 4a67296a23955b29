/* Directory trees that stand for a machine's root. */
#pragma once

#include "sys.h"

/* A new empty directory below /tmp; its path is malloc'd. Failures end the test. */
char *tree_new(void);
/* Removes it with all that is in it, and frees the path. */
void tree_free(char *root);
/* Makes the directories on the way. path begins with "/". */
void tree_dir(const char *root, const char *path);
void tree_file(const char *root, const char *path, const char *text);
void tree_link(const char *root, const char *path, const char *target);
/* Contents, malloc'd. */
char *tree_read(const char *root, const char *path);
