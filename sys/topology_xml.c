/*
 * Looks through a file of hwloc's before hwloc gets it. Of one that it cannot read, hwloc says no more than that; here
 * the error gets a place. And what would cost hwloc its memory or its stack does not come to it.
 */
#include "discover.h"

#include <errno.h>

#define ELEMENTS_MAX 500000u
#define DEPTH_MAX 128 /* hwloc reads nested objects by recursion */
#define EXPORT "lstopo FILE.xml writes one"

struct element {
	const char *name, *attributes, *end; /* end: its '>' */
	size_t name_len;
	unsigned line, column;
};

struct scan {
	const char *path, *at, *end, *line_start;
	unsigned line;
	struct error *err;
	struct element open[DEPTH_MAX];
	size_t depth;
	unsigned n_elements, n_cpus;
};

#define scan_error(s, element, code, fmt, ...) \
	error_set((s)->err, code, "%s:%u:%u: " fmt, (s)->path, (element)->line, (element)->column, ##__VA_ARGS__)

static int cut_off(const struct scan *s, const struct element *inside)
{
	return error_set(s->err, EINVAL, "%s:%u:%u: the file ends inside <%.*s>, which begins at line %u: it is cut "
			 "off; " EXPORT, s->path, s->line, (unsigned) (s->end - s->line_start) + 1,
			 (int) size_min(inside->name_len, 40), inside->name, inside->line);
}

static void advance(struct scan *s, const char *to)
{
	for (; s->at < to; s->at++)
		if (*s->at == '\n') {
			s->line++;
			s->line_start = s->at + 1;
		}
}

/* The '>' of an element; those in quotes do not count. NULL: there is none. */
static const char *closing_bracket(const char *at, const char *end)
{
	bool quoted = false;

	for (; at < end; at++) {
		if (*at == '"')
			quoted = !quoted;
		else if (*at == '>' && !quoted)
			return at;
	}
	return NULL;
}

/* The next "<…>" that is no comment, declaration or instruction. 1: found; 0: there is no more. */
static int next_element(struct scan *s, struct element *ret)
{
	for (;;) {
		const char *bracket = memchr(s->at, '<', (size_t) (s->end - s->at));

		advance(s, bracket ? bracket : s->end);
		if (!bracket)
			return 0;
		*ret = (struct element){ .name = s->at + 1, .line = s->line,
					 .column = (unsigned) (s->at - s->line_start) + 1 };
		while (ret->name + ret->name_len < s->end && !strchr(" \t\r\n>", ret->name[ret->name_len]))
			ret->name_len++;
		ret->attributes = ret->name + ret->name_len;
		if (str_starts(ret->name, "!--")) {
			const char *over = strstr(ret->name, "-->");

			ret->end = over ? over + 2 : NULL;
		} else {
			ret->end = closing_bracket(ret->attributes, s->end);
		}
		if (!ret->end) {
			s->at = s->end;
			return cut_off(s, ret);
		}
		advance(s, ret->end);
		if (ret->name[0] != '!' && ret->name[0] != '?')
			return 1;
	}
}

/* The value of an attribute, up to its closing quote; NULL: it has none of that name. */
static const char *attribute(const struct element *e, const char *name, size_t *ret_len)
{
	const size_t len = strlen(name);

	for (const char *at = e->attributes; at < e->end; at++) {
		const char *value = at + 1 + len + 2, *quote;

		if (*at == '"') { /* over another one's value */
			at = memchr(at + 1, '"', (size_t) (e->end - at - 1));
			if (!at)
				return NULL;
		}
		if (!strchr(" \t\r\n", *at) || value >= e->end || strncmp(at + 1, name, len) != 0 ||
		    strncmp(at + 1 + len, "=\"", 2) != 0)
			continue;
		quote = memchr(value, '"', (size_t) (e->end - value));
		if (quote)
			*ret_len = (size_t) (quote - value);
		return quote ? value : NULL;
	}
	return NULL;
}

static bool attribute_is(const struct element *e, const char *name, const char *expected)
{
	size_t len;
	const char *value = attribute(e, name, &len);

	return value && len == strlen(expected) && strncmp(value, expected, len) == 0;
}

static bool named(const struct element *e, const char *name)
{
	return e->name_len == strlen(name) && strncmp(e->name, name, e->name_len) == 0;
}

static int check_root(const struct scan *s, const struct element *e)
{
	size_t len;
	const char *version = attribute(e, "version", &len);

	if (!named(e, "topology") && !named(e, "root"))
		return scan_error(s, e, EINVAL, "<%.*s> where <topology> was expected: this XML is not from hwloc; "
				  EXPORT, (int) size_min(e->name_len, 40), e->name);
	/* hwloc 1 and 2 write 1.0 and 2.0, or no version at all. */
	if (version && strtoul(version, NULL, 10) > 2)
		return scan_error(s, e, EPROTONOSUPPORT, "its format is version %.*s, and the newest that is known "
				  "here is 2: export it with lstopo --export-xml-flags v2 FILE.xml",
				  (int) size_min(len, 16), version);
	return 0;
}

/* `what` needs an index below `max`, or none of our masks holds it and hwloc's grow to its size. */
static int check_index(const struct scan *s, const struct element *e, const char *what, unsigned long max)
{
	size_t len;
	const char *index = attribute(e, "os_index", &len);

	if (!index)
		return scan_error(s, e, EINVAL, "a %s without os_index; " EXPORT, what);
	if (*index < '0' || *index > '9' || len > 10)
		return scan_error(s, e, EINVAL, "os_index=\"%.*s\" is no number of a %s", (int) size_min(len, 16),
				  index, what);
	if (strtoul(index, NULL, 10) >= max)
		return scan_error(s, e, ERANGE, "%s %lu: cotenant knows %ss 0-%lu only", what,
				  strtoul(index, NULL, 10), what, max - 1);
	return 0;
}

static int check_element(struct scan *s, const struct element *e)
{
	size_t len;
	const char *count = attribute(e, "nbobjs", &len);

	if (count && strtoul(count, NULL, 10) > CPU_MAX)
		return scan_error(s, e, ERANGE, "nbobjs=\"%.*s\": more objects than any machine has",
				  (int) size_min(len, 16), count);
	if (!named(e, "object"))
		return 0;
	if (attribute_is(e, "type", "PU")) {
		s->n_cpus++;
		return check_index(s, e, "CPU", CPU_MAX);
	}
	if (attribute_is(e, "type", "NUMANode"))
		return check_index(s, e, "NUMA node", NODE_MAX);
	return 0;
}

static int close_element(struct scan *s, const struct element *e)
{
	const struct element *top = s->depth ? &s->open[s->depth - 1] : NULL;

	if (!top || e->name_len - 1 != top->name_len || strncmp(e->name + 1, top->name, top->name_len) != 0)
		return scan_error(s, e, EINVAL, "<%.*s> ends what was not begun; " EXPORT,
				  (int) size_min(e->name_len, 40), e->name);
	s->depth--;
	return 0;
}

static int open_element(struct scan *s, const struct element *e)
{
	const bool first = s->n_elements == 0, whole = e->end[-1] == '/';
	int r;

	if (++s->n_elements > ELEMENTS_MAX)
		return scan_error(s, e, E2BIG, "more than %u elements: export it without devices, lstopo --no-io",
				  ELEMENTS_MAX);
	if (!first && !s->depth)
		return scan_error(s, e, EINVAL, "something follows the end of the topology; " EXPORT);
	r = first ? check_root(s, e) : check_element(s, e);
	if (r < 0 || whole)
		return r;
	if (s->depth == DEPTH_MAX)
		return scan_error(s, e, E2BIG, "elements are nested deeper than %d", DEPTH_MAX);
	s->open[s->depth++] = *e;
	return 0;
}

int topology_check_xml(const char *path, const char *text, size_t len, struct error *err)
{
	struct scan s = { .path = path, .at = text, .end = text + len, .line_start = text, .line = 1, .err = err };
	const char *nul = memchr(text, '\0', len), *begin = text + strspn(text, " \t\r\n");
	struct element e;
	int r;

	if (nul) {
		advance(&s, nul);
		return error_set(err, EINVAL, "%s:%u:%u: a NUL byte: this is not XML, or a damaged copy; " EXPORT, path,
				 s.line, (unsigned) (nul - s.line_start) + 1);
	}
	if (!*begin)
		return error_set(err, EINVAL, "%s: is empty; " EXPORT, path);
	if (*begin != '<') {
		advance(&s, begin);
		return error_set(err, EINVAL, "%s:%u:%u: is not XML; " EXPORT, path, s.line,
				 (unsigned) (begin - s.line_start) + 1);
	}
	while ((r = next_element(&s, &e)) > 0) {
		r = *e.name == '/' ? close_element(&s, &e) : open_element(&s, &e);
		if (r < 0)
			return r;
	}
	if (r < 0)
		return r;
	if (s.depth)
		return cut_off(&s, &s.open[s.depth - 1]);
	if (!s.n_elements)
		return error_set(err, EINVAL, "%s: holds no <topology>; " EXPORT, path);
	if (!s.n_cpus)
		return error_set(err, EINVAL, "%s: describes a machine without CPUs; " EXPORT, path);
	return 0;
}
