/*
 * A line of the index:
 *
 *   +ID GROUP LETTERS MCPU MEMORY MEMS CPUS WISH PID START_TIME ACTOR ACTOR_START_TIME
 *
 * LETTERS are state, mechanism, exclusive, bound, weights, unsynced, streams; MEMS is hexadecimal; WISH is "=" when it
 * equals CPUS. Every field ends in a NUL, so that the file can be mapped and its strings used where they lie: for a
 * thousand containers the page faults of a copy cost more than all the rest. To read one: tr '\0' '\t' < index
 */
#include "ledger_private.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

static const char state_letters[] = {
	[ENTRY_INTENT] = 'i',
	[ENTRY_DONE] = 'd',
	[ENTRY_DEGRADED] = 'g',
	[ENTRY_LEAVING] = 'l',
};
static const char mechanism_letters[] = {
	[MECHANISM_NONE] = 'n',
	[MECHANISM_COOKIE] = 'k',
	[MECHANISM_CORES] = 'c',
	[MECHANISM_NO_SIBLINGS] = 's',
};

/* ---- writing ---- */

static nodemask plan_nodes(const struct plan *p)
{
	return p->memory_nodes ? p->memory_nodes : p->mems;
}

char *line_format(const struct entry *e, size_t *ret_len)
{
	const struct plan *p = e->plan;
	cleanup_free char *cpus = mask_format(&p->cpus);
	cleanup_free char *wish = mask_format(&p->wish);
	char *line;
	int len;

	if (!cpus || !wish)
		return NULL;
	/* %c with 0 for the separator: a NUL in the format would end it. */
	len = asprintf(
	    &line, "+%s%c%s%c%c%c%c%c%c%c%c%c%u%c%" PRIu64 "%c%" PRIx64 "%c%s%c%s%c%d%c%" PRIu64 "%c%d%c%" PRIu64 "%c\n",
	    e->id, 0, e->group, 0, state_letters[e->state], mechanism_letters[p->mechanism], p->exclusive ? 'x' : '-',
	    p->bound ? 'b' : '-', p->set_weights ? 'w' : '-', e->unsynced ? 'u' : '-',
	    p->streams ? 's' : '-', 0, p->mcpu, 0, p->memory, 0,
	    plan_nodes(p), 0, cpus, 0, mask_equal(&p->cpus, &p->wish) ? "=" : wish, 0, e->pid, 0, e->start_time, 0,
	    e->actor, 0, e->actor_start_time, 0);
	if (len < 0)
		return NULL;
	*ret_len = (size_t) len;
	return line;
}

/* ---- reading: a cursor moves over the fields and is NULL after the first one that makes no sense ---- */

struct cursor {
	const char *at, *end; /* end: the line's newline, which no number and no mask gets past */
};

static void expect_nul(struct cursor *c)
{
	if (c->at)
		c->at = *c->at == '\0' ? c->at + 1 : NULL;
}

const char *number_parse(const char *s, unsigned base, uint64_t max, uint64_t *ret)
{
	const char *at = s;
	uint64_t value = 0;

	for (;; at++) {
		unsigned digit = *at >= '0' && *at <= '9'   ? (unsigned) (*at - '0')
				 : *at >= 'a' && *at <= 'f' ? (unsigned) (*at - 'a' + 10)
							    : base;

		if (digit >= base)
			break;
		if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value))
			return NULL;
	}
	if (at == s || value > max)
		return NULL;
	*ret = value;
	return at;
}

static uint64_t take_number(struct cursor *c, unsigned base, uint64_t max)
{
	uint64_t value = 0;

	if (c->at)
		c->at = number_parse(c->at, base, max, &value);
	expect_nul(c);
	return value;
}

static const char *take_string(struct cursor *c)
{
	const char *s = c->at;
	const char *nul = s ? memchr(s, '\0', (size_t) (c->end - s)) : NULL;

	c->at = nul && nul > s ? nul + 1 : NULL;
	return s;
}

static void take_letters(struct cursor *c, struct index_row *row)
{
	const char *s = c->at, *state, *mechanism;

	if (!s || c->end - s <= 7)
		goto bad;
	state = memchr(state_letters, s[0], sizeof(state_letters));
	mechanism = memchr(mechanism_letters, s[1], sizeof(mechanism_letters));
	if (!state || !mechanism)
		goto bad;
	row->state = (enum entry_state)(state - state_letters);
	row->occupant.mechanism = (enum mechanism)(mechanism - mechanism_letters);
	row->occupant.exclusive = s[2] == 'x';
	row->occupant.bound = s[3] == 'b';
	row->occupant.weights = s[4] == 'w';
	row->occupant.unsynced = s[5] == 'u';
	row->occupant.streams = s[6] == 's';
	c->at = s + 7;
	expect_nul(c);
	return;
bad:
	c->at = NULL;
}

/* How many slots are tried before a mask goes without one. */
#define PROBES 16

/* NULL: no memory, or no list of CPUs, and then the cursor is NULL too. */
static const struct mask *take_mask(struct cursor *c, struct mask_cache *cache, struct arena *a)
{
	const char *text = c->at, *s = text;
	uint32_t hash = 2166136261u;
	struct mask *mask;
	unsigned i = 0;

	if (!text)
		return NULL;
	for (; *s && *s != '\n'; s++)
		hash = (hash ^ (unsigned char) *s) * 16777619u;
	c->at = s;
	expect_nul(c);
	if (!c->at)
		return NULL;
	hash ^= hash >> 16;
	for (; i < PROBES && cache->slot[(hash + i) % MASK_SLOTS].text; i++)
		if (str_eq(cache->slot[(hash + i) % MASK_SLOTS].text, text))
			return cache->slot[(hash + i) % MASK_SLOTS].mask;
	mask = arena_new(a, struct mask, 1);
	if (!mask)
		return NULL;
	if (mask_parse(text, mask) < 0) {
		c->at = NULL;
		return NULL;
	}
	if (i < PROBES) {
		cache->slot[(hash + i) % MASK_SLOTS].text = text;
		cache->slot[(hash + i) % MASK_SLOTS].mask = mask;
	}
	return mask;
}

int line_parse(const char *line, const char *end, struct mask_cache *cache, struct arena *a, struct index_row *ret)
{
	struct cursor c = { line, end };
	struct index_row row;

	row.occupant.id = take_string(&c);
	row.occupant.group = take_string(&c);
	take_letters(&c, &row);
	row.occupant.mcpu = (unsigned) take_number(&c, 10, UINT_MAX);
	row.occupant.memory = take_number(&c, 10, UINT64_MAX);
	row.occupant.mems = take_number(&c, 16, UINT64_MAX);
	row.occupant.cpus = take_mask(&c, cache, a);
	if (c.at && c.at[0] == '=' && c.at[1] == '\0') {
		row.occupant.wish = row.occupant.cpus;
		c.at += 2;
	} else {
		row.occupant.wish = take_mask(&c, cache, a);
	}
	row.pid = (pid_t) take_number(&c, 10, INT_MAX);
	row.start_time = take_number(&c, 10, UINT64_MAX);
	row.actor = (pid_t) take_number(&c, 10, INT_MAX);
	row.actor_start_time = take_number(&c, 10, UINT64_MAX);
	if (c.at != end)
		return -EBADMSG;
	if (!row.occupant.cpus || !row.occupant.wish)
		return -ENOMEM;
	*ret = row;
	return 0;
}
