#include "mask.h"

#include <errno.h>
#include <stdio.h>

bool mask_empty(const struct mask *m)
{
	return mask_next(m, 0) == CPU_MAX;
}

bool mask_equal(const struct mask *a, const struct mask *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

bool mask_intersects(const struct mask *a, const struct mask *b)
{
	for (size_t i = 0; i < MASK_WORDS; i++)
		if (a->w[i] & b->w[i])
			return true;
	return false;
}

bool mask_subset(const struct mask *part, const struct mask *whole)
{
	for (size_t i = 0; i < MASK_WORDS; i++)
		if (part->w[i] & ~whole->w[i])
			return false;
	return true;
}

unsigned mask_weight(const struct mask *m)
{
	unsigned n = 0;

	for (size_t i = 0; i < MASK_WORDS; i++)
		if (m->w[i])
			n += bit_count(m->w[i]);
	return n;
}

void mask_or(struct mask *m, const struct mask *other)
{
	for (size_t i = 0; i < MASK_WORDS; i++)
		m->w[i] |= other->w[i];
}

void mask_and(struct mask *m, const struct mask *other)
{
	for (size_t i = 0; i < MASK_WORDS; i++)
		m->w[i] &= other->w[i];
}

void mask_andnot(struct mask *m, const struct mask *other)
{
	for (size_t i = 0; i < MASK_WORDS; i++)
		m->w[i] &= ~other->w[i];
}

unsigned mask_next(const struct mask *m, unsigned from)
{
	uint64_t word;
	size_t i = from / 64;

	if (from >= CPU_MAX)
		return CPU_MAX;
	word = m->w[i] & ~UINT64_C(0) << (from % 64);
	while (!word) {
		if (++i == MASK_WORDS)
			return CPU_MAX;
		word = m->w[i];
	}
	return (unsigned) (i * 64) + (unsigned) __builtin_ctzll(word);
}

static const char *skip_space(const char *s)
{
	return s + strspn(s, " \t\n\r");
}

/* One decimal number below `end`. Digits only: strtoul() would take "+1", " 1" and "-1". */
static int parse_id(const char **at, unsigned end, unsigned *ret)
{
	const char *s = *at;
	unsigned value = 0;

	if (*s < '0' || *s > '9')
		return -EINVAL;
	for (; *s >= '0' && *s <= '9'; s++)
		if (value < end)
			value = value * 10 + (unsigned) (*s - '0');
	if (value >= end)
		return -ERANGE;
	*at = s;
	*ret = value;
	return 0;
}

/*
 * The kernel's bitmap_parselist() in the subset that it prints itself: numbers and ranges. `words` is zeroed first and
 * holds `end` bits.
 */
static int parse_list(const char *list, unsigned end, uint64_t *words)
{
	const char *s = skip_space(list);
	int r;

	memset(words, 0, end / 8);
	if (!*s)
		return 0;
	for (;;) {
		unsigned first, last;

		r = parse_id(&s, end, &first);
		if (r < 0)
			return r;
		last = first;
		if (*s == '-') {
			s++;
			r = parse_id(&s, end, &last);
			if (r < 0)
				return r;
		}
		if (last < first)
			return -EINVAL;
		for (unsigned id = first; id <= last; id++)
			words[id / 64] |= UINT64_C(1) << (id % 64);
		if (*s != ',')
			break;
		s++;
	}
	return *skip_space(s) ? -EINVAL : 0;
}

int mask_parse(const char *list, struct mask *ret_mask)
{
	struct mask m;
	int r = parse_list(list, CPU_MAX, m.w);

	if (r < 0)
		return r;
	*ret_mask = m; /* cppcheck-suppress uninitvar ; parse_list() clears all words */
	return 0;
}

int nodemask_parse(const char *list, nodemask *ret_nodes)
{
	nodemask nodes;
	int r = parse_list(list, NODE_MAX, &nodes);

	if (r < 0)
		return r;
	*ret_nodes = nodes;
	return 0;
}

/* The first id >= from that is a member (or, with `member` false, is none), or `end`. */
static unsigned find_next(const uint64_t *words, unsigned end, unsigned from, bool member)
{
	for (; from < end; from = (from / 64 + 1) * 64) {
		uint64_t word = (member ? words[from / 64] : ~words[from / 64]) >> (from % 64);

		if (word)
			return from + (unsigned) __builtin_ctzll(word);
	}
	return end;
}

/* Writes the list into out (size bytes, may be 0) and returns the length it has or would have, as snprintf() does. */
static size_t format_list(const uint64_t *words, unsigned end, char *out, size_t size)
{
	size_t len = 0;

	for (unsigned first = find_next(words, end, 0, true), last; first < end;
	     first = find_next(words, end, last + 1, true)) {
		char *at = size ? out + len : NULL;
		size_t left = size ? size - len : 0;
		int n;

		last = find_next(words, end, first, false) - 1;
		if (last > first)
			n = snprintf(at, left, "%s%u-%u", len ? "," : "", first, last);
		else
			n = snprintf(at, left, "%s%u", len ? "," : "", first);
		len += (size_t) n;
	}
	return len;
}

static char *format_alloc(const uint64_t *words, unsigned end)
{
	size_t size = format_list(words, end, NULL, 0) + 1;
	char *text = calloc(1, size);

	if (text)
		format_list(words, end, text, size);
	return text;
}

char *mask_format(const struct mask *m)
{
	return format_alloc(m->w, CPU_MAX);
}

char *nodemask_format(nodemask nodes)
{
	return format_alloc(&nodes, NODE_MAX);
}
