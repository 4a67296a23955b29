/* An arena: many small allocations with one owner and one free. Used for documents and what is read from them. */
#pragma once

#include "base.h"

struct arena_block;
struct arena {
	struct arena_block *head;
	size_t used; /* bytes handed out, for limits */
};

void arena_done(struct arena *a);
#define cleanup_arena cleanup_with(arena_done)

/* Zeroed memory aligned for any type; NULL when out of memory. Lives until arena_done(). */
void *arena_alloc(struct arena *a, size_t size) must_check;
char *arena_strndup(struct arena *a, const char *s, size_t len) must_check;
char *arena_strdup(struct arena *a, const char *s) must_check;
char *arena_printf(struct arena *a, const char *fmt, ...) printf_like(2, 3) must_check;
#define arena_new(a, type, n) ((type *) arena_alloc((a), sizeof(type) * (n)))
