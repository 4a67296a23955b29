/* Small helpers shared by every room: cleanup attributes, ownership moves, string tests. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define must_check __attribute__((warn_unused_result))
#define printf_like(fmt, first) __attribute__((format(printf, fmt, first)))
#define cleanup_with(fn) __attribute__((__cleanup__(fn)))

static inline void freep(void *p)
{
	free(*(void **) p);
	*(void **) p = NULL;
}

/* Functions for cleanup_with() leave NULL, or -1 for a descriptor: called by hand, they can be called again. */

/* Memory owned by the scope: freed on every way out. */
#define cleanup_free cleanup_with(freep)

/* Hands the pointer over and leaves NULL behind, so that the scope does not free it. */
#define TAKE_PTR(p)                        \
	({                                 \
		__typeof__(p) taken = (p); \
		(p) = NULL;                \
		taken;                     \
	})

static inline bool str_eq(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

static inline bool str_starts(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

static inline size_t size_min(size_t a, size_t b)
{
	return a < b ? a : b;
}
