/*
 * What a regular expression may ask of glibc, which builds its automaton from the expression with every repeat written
 * out, and while matching makes states of it as large as that, one for each byte of the text at worst.
 */
#include <errno.h>

#include "condition.h"

#define REPEAT_MAX 1000 /* far above REGEX_SIZE_MAX and far below an overflow */

/* An alternative of a group that is open, or of the whole. */
struct level {
	size_t size;      /* written out, up to the group */
	unsigned anchors; /* up to the group */
	bool others_empty; /* an alternative before this one can match the empty text */
	bool empty;        /* so can this one, as far as it goes without `last` */
};

struct scan {
	struct arena *arena;
	const char *text, *at; /* the whole, and what is left */
	size_t size;           /* written out, up to here */
	unsigned anchors;
	struct {
		size_t size;
		unsigned anchors;
		bool empty; /* can match the empty text */
	} last; /* what a repeat would repeat */
	struct level levels[REGEX_DEPTH_MAX + 1];
	unsigned depth;
	bool branched; /* a | outside of all groups */
	const char *why;
};

static int refuse(struct scan *s, const char *why)
{
	s->why = why ? arena_printf(s->arena, "at its byte %zu: %s", (size_t) (s->at - s->text) + 1, why) : NULL;
	return s->why ? -EINVAL : -ENOMEM;
}

static int grow(struct scan *s, size_t size)
{
	s->size += size;
	s->last.size = size;
	if (s->size > REGEX_SIZE_MAX)
		return refuse(s, arena_printf(s->arena,
					      "a regular expression may come to %d characters with its repeats written "
					      "out; shorten the repeats, use a glob, or make several rules of it",
					      REGEX_SIZE_MAX));
	return 0;
}

/* One more thing in a row: a character, a bracket, an anchor, a group. */
static int begin(struct scan *s, size_t len, bool empty)
{
	s->levels[s->depth].empty &= s->last.empty;
	s->last.empty = empty;
	s->last.anchors = 0;
	s->at += len;
	return grow(s, 1);
}

static void begin_alternative(struct scan *s)
{
	s->levels[s->depth].empty = true;
	s->last.empty = true;
	s->last.anchors = 0;
	s->last.size = 0; /* glibc refuses a repeat here */
}

static void end_alternative(struct scan *s)
{
	struct level *level = &s->levels[s->depth];

	level->others_empty |= level->empty && s->last.empty;
}

static int alternative(struct scan *s)
{
	int r;

	end_alternative(s);
	s->branched = s->branched || !s->depth;
	s->at++;
	r = grow(s, 1);
	begin_alternative(s);
	return r;
}

static int open_group(struct scan *s)
{
	size_t size = s->size;
	int r;

	if (s->depth == REGEX_DEPTH_MAX)
		return refuse(s, arena_printf(s->arena,
					      "parentheses may be nested %d deep; make several rules of the expression",
					      REGEX_DEPTH_MAX));
	r = begin(s, 1, true);
	if (r < 0)
		return r;
	s->levels[++s->depth] = (struct level){ .size = size, .anchors = s->anchors };
	begin_alternative(s);
	return 0;
}

static int close_group(struct scan *s)
{
	const struct level *level = &s->levels[s->depth];

	if (!s->depth)
		return refuse(s, "a ) closes nothing; write \\) for the character");
	end_alternative(s);
	s->last.size = s->size - level->size;
	s->last.anchors = s->anchors - level->anchors;
	s->last.empty = level->others_empty;
	s->depth--;
	s->at++;
	return 0;
}

static int anchor(struct scan *s)
{
	int r;

	if (s->anchors++ == REGEX_ANCHORS_MAX)
		return refuse(s, arena_printf(s->arena,
					      "a regular expression may have %d anchors; put what is common to its "
					      "alternatives outside, as in ^(a|b)$",
					      REGEX_ANCHORS_MAX));
	r = begin(s, 1, true);
	s->last.anchors = 1;
	return r;
}

static int escape(struct scan *s)
{
	if (s->at[1] >= '1' && s->at[1] <= '9')
		return refuse(s, "back-references are not allowed in a regular expression; make a rule for each text");
	if (s->at[1] && strchr("bB<>`'", s->at[1]))
		return refuse(s, "the anchors of a regular expression are ^ and $; for words write what stands between "
				 "them, as in (^|-)a(-|$)");
	if (!s->at[1])
		return refuse(s, "a backslash ends the expression; write \\\\ for the character");
	return begin(s, 2, false);
}

/* "[:alpha:]" and its kind, within brackets. */
static const char *skip_class(const char *at)
{
	const char end[] = { at[1], ']', '\0' }, *found = strstr(at + 2, end);

	return found ? found + 2 : NULL;
}

/* The locale decides whether bytes beyond ASCII are characters, and hook and tool have different ones. */
static int bracket(struct scan *s)
{
	const char *at = s->at + 1;

	at += *at == '^';
	at += *at == ']';
	while (at && *at && *at != ']') {
		if ((unsigned char) *at >= 0x80)
			return refuse(s, "brackets hold ASCII characters only; write the others as (x|y)");
		at = *at == '[' && at[1] && strchr(".:=", at[1]) ? skip_class(at) : at + 1;
	}
	if (!at || !*at)
		return refuse(s, "a [ is not closed; write \\[ for the character");
	return begin(s, (size_t) (at + 1 - s->at), false);
}

static bool number(const char **at, size_t *ret)
{
	const char *start = *at;

	for (*ret = 0; **at >= '0' && **at <= '9'; (*at)++)
		*ret = size_min(*ret * 10 + (size_t) (**at - '0'), REPEAT_MAX);
	return *at > start;
}

/* "{3}", "{3,}", "{3,5}", "{,5}" */
static int interval(struct scan *s, size_t *ret_low, size_t *ret_high)
{
	const char *at = s->at + 1;
	bool low = number(&at, ret_low), high = low;

	*ret_high = *ret_low;
	if (*at == ',') {
		at++;
		high = number(&at, ret_high);
		if (!high)
			*ret_high = SIZE_MAX;
	}
	if (*at != '}' || (!low && !high) || *ret_low > *ret_high)
		return refuse(s, "a repeat is written {3}, {3,} or {3,5}; write \\{ for the character");
	s->at = at + 1;
	return 0;
}

/*
 * glibc copies what is repeated: as often as it may come, and once more where there is no end to it. What can be empty,
 * or holds an anchor, it goes through in every combination (calc_eclosure_iter(), duplicate_node_closure() in regcomp.c).
 */
static int repeat(struct scan *s)
{
	size_t low = *s->at == '+', high = *s->at == '?' ? 1 : SIZE_MAX, copies, once = s->last.size;
	int r = 0;

	if (s->last.anchors)
		return refuse(s, "^ and $ must not be repeated; put them outside of the repeat");
	if (s->last.empty && once)
		return refuse(s, "what can match the empty text must not be repeated; leave out one of the repeats");
	if (*s->at == '{')
		r = interval(s, &low, &high);
	else
		s->at++;
	if (r < 0)
		return r;
	copies = high == SIZE_MAX ? low + 1 : high;
	s->last.empty = !low;
	s->size -= once;
	return grow(s, once * (copies ? copies : 1) + (high == SIZE_MAX ? 1 : high - low));
}

static int step(struct scan *s)
{
	switch (*s->at) {
	case '(':
		return open_group(s);
	case ')':
		return close_group(s);
	case '|':
		return alternative(s);
	case '[':
		return bracket(s);
	case '\\':
		return escape(s);
	case '^':
	case '$':
		return anchor(s);
	case '*':
	case '+':
	case '?':
	case '{':
		return repeat(s);
	default:
		return begin(s, 1, false);
	}
}

int regex_check(struct arena *a, const char *text, size_t *ret_size, bool *ret_anchored, const char **ret_why)
{
	struct scan s = { .arena = a, .text = text, .at = text };
	int r = 0;

	begin_alternative(&s);
	while (r == 0 && *s.at)
		r = step(&s);
	if (r < 0) {
		*ret_why = s.why;
		return r;
	}
	*ret_size = s.size;
	*ret_anchored = *text == '^' && !s.branched;
	return 0;
}
