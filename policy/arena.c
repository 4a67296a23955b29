#include "arena.h"

#include <stdarg.h>
#include <stdio.h>

#define BLOCK_SIZE (16u << 10)

struct arena_block {
	struct arena_block *next;
	size_t size, used;
	max_align_t data[];
};

void arena_done(struct arena *a)
{
	while (a->head) {
		struct arena_block *next = a->head->next;

		free(a->head);
		a->head = next;
	}
	a->used = 0;
}

void *arena_alloc(struct arena *a, size_t size)
{
	const size_t align = sizeof(max_align_t);
	struct arena_block *block = a->head;
	void *p;

	if (size > SIZE_MAX / 2)
		return NULL;
	size = (size + align - 1) / align * align;
	if (!block || block->size - block->used < size) {
		size_t want = size > BLOCK_SIZE ? size : BLOCK_SIZE;

		block = malloc(sizeof(*block) + want);
		if (!block)
			return NULL;
		block->size = want;
		block->used = 0;
		block->next = a->head;
		a->head = block;
	}
	p = (char *) block->data + block->used;
	block->used += size;
	a->used += size;
	return memset(p, 0, size);
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
	char *copy = arena_alloc(a, len + 1);

	return copy ? memcpy(copy, s, len) : NULL;
}

char *arena_strdup(struct arena *a, const char *s)
{
	return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list args;
	char *text = NULL, *copy;

	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) < 0)
		text = NULL;
	va_end(args);
	copy = text ? arena_strdup(a, text) : NULL;
	free(text);
	return copy;
}
