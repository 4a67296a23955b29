/*
 * The index: a header and one line per container (see sys/ledger_line.c).
 *
 * A line is never changed but for its first byte: "-" once it is outdated, with the new line appended.
 *
 * No fsync: the directory is a tmpfs, which does not outlive the machine, and against a killed process the page cache
 * keeps the order in which the writes were made.
 */
#include "ledger_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define INDEX "index"
#define INDEX_MAX (64u << 20)
#define COMPACT_MIN 16384 /* below this size outdated lines cost nothing */

#define HEADER_NAME "cotenant index 2 "
#define HEADER_LEN (sizeof(HEADER_NAME "c dead 00000000 turn 00000000\n") - 1)
#define DEAD_AT (sizeof(HEADER_NAME "c dead ") - 1)
#define TURN_AT (sizeof(HEADER_NAME "c dead 00000000 turn ") - 1)
#define CLEAN 'c'
#define DIRTY 'd'

/* ---- header and file ---- */

void index_done(struct index *ix)
{
	closep(&ix->fd);
	if (ix->text && !ix->lent)
		munmap((void *) ix->text, ix->len);
	*ix = INDEX_NONE;
}

static void header_format(char buf[static HEADER_LEN + 1], char state, size_t dead, size_t turn)
{
	/* The counters are bounded by INDEX_MAX, so that they fit their eight digits. */
	snprintf(buf, HEADER_LEN + 1, HEADER_NAME "%c dead %08u turn %08u\n", state,
		 (unsigned) (dead % (INDEX_MAX + 1)), (unsigned) (turn % (INDEX_MAX + 1)));
}

static int put_bytes(int fd, const char *text, size_t len, size_t at)
{
	ssize_t n = pwrite(fd, text, len, (off_t) at);

	return n < 0 ? -errno : (size_t) n == len ? 0 : -ENOSPC;
}

static int header_write(const struct index *ix, char state)
{
	char header[HEADER_LEN + 1];

	header_format(header, state, ix->dead, ix->turn);
	return put_bytes(ix->fd, header, HEADER_LEN, 0);
}

static int header_parse(struct index *ix)
{
	char expect[HEADER_LEN + 1];
	uint64_t dead, turn;

	/* With its newlines in place, no number runs off the end. */
	if (ix->text[ix->len - 1] != '\n' || ix->text[HEADER_LEN - 1] != '\n' ||
	    !number_parse(ix->text + DEAD_AT, 10, INDEX_MAX, &dead) ||
	    !number_parse(ix->text + TURN_AT, 10, INDEX_MAX, &turn))
		return -EBADMSG;
	header_format(expect, CLEAN, dead, turn);
	if (memcmp(ix->text, expect, HEADER_LEN) != 0)
		return -EBADMSG;
	ix->dead = dead;
	ix->turn = turn;
	return 0;
}

/* -EBADMSG: not to be relied on. */
static int index_try(struct ledger *l, struct index *ret)
{
	cleanup_with(index_done) struct index ix = INDEX_NONE;
	struct stat st;
	void *text;
	int r;

	ix.fd = openat(l->dir_fd, INDEX, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (ix.fd < 0)
		return errno == ENOENT || errno == ELOOP || errno == EISDIR ? -EBADMSG : -errno;
	if (fstat(ix.fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size > INDEX_MAX)
		return -EBADMSG;
	if (st.st_size < (off_t) HEADER_LEN)
		return -EBADMSG;
	/* Nobody shortens an index: it grows, or another one takes its name, so the mapping stays whole. */
	text = mmap(NULL, (size_t) st.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, ix.fd, 0);
	if (text == MAP_FAILED)
		return -errno;
	ix.text = text;
	ix.len = ix.end = (size_t) st.st_size;
	r = header_parse(&ix);
	if (r < 0)
		return r;
	*ret = ix;
	ix = INDEX_NONE;
	return 0;
}

/* ---- rebuilding ---- */

static int write_lines(struct ledger *l, FILE *out, char *const *files, size_t n, struct error *err)
{
	for (size_t i = 0; i < n; i++) {
		cleanup_entry struct entry *e = NULL;
		cleanup_free char *line = NULL;
		size_t len = 0;
		int r = ledger_read_entry(l, files[i], &e, err);

		if (r == -ENOENT)
			continue; /* damaged: moved aside */
		if (r < 0)
			return r;
		line = line_format(e, &len);
		if (!line || fwrite(line, len, 1, out) != 1)
			return -ENOMEM;
	}
	return 0;
}

static int rebuild_text(struct ledger *l, char **ret_text, size_t *ret_len, struct error *err)
{
	char header[HEADER_LEN + 1];
	char **files = NULL;
	size_t n = 0;
	FILE *out;
	int r = ledger_files(l, /* tidy_up= */ true, &files, &n, err);

	if (r < 0)
		return r;
	out = open_memstream(ret_text, ret_len);
	if (out) {
		header_format(header, CLEAN, 0, 0);
		r = fputs(header, out) < 0 ? -ENOMEM : write_lines(l, out, files, n, err);
		if (fclose(out) != 0 && r == 0)
			r = -ENOMEM;
	}
	ledger_ids_free(files, n);
	return out ? r : -ENOMEM;
}

static int index_rebuild(struct ledger *l, struct error *err)
{
	cleanup_free char *text = NULL;
	size_t len = 0;
	int r;

	index_done(&l->index);
	r = rebuild_text(l, &text, &len, err);
	if (r == 0)
		r = len > INDEX_MAX ? -EFBIG : file_replace(l->dir_fd, INDEX, text, len);
	return r < 0 ? error_set(err, -r, "%s/" INDEX ": cannot be rebuilt: %s", l->path, strerror(-r)) : 0;
}

void index_spoil(struct ledger *l)
{
	index_done(&l->index);
	if (unlinkat(l->dir_fd, INDEX, 0) < 0)
		return; /* none, or a read-only file system, on which nothing was moved aside either */
}

/* Bytes of the line at `at`, with its newline: the last byte of an index is one. */
static size_t line_length(const struct index *ix, size_t at)
{
	return (size_t) ((const char *) memchr(ix->text + at, '\n', ix->len - at) - (ix->text + at)) + 1;
}

static int compact(struct ledger *l, const struct index *ix)
{
	cleanup_free char *text = malloc(ix->len + 1);
	size_t len = HEADER_LEN;

	if (!text)
		return -ENOMEM;
	header_format(text, CLEAN, 0, ix->turn);
	for (size_t at = HEADER_LEN, n; at < ix->len; at += n) {
		n = line_length(ix, at);
		if (ix->text[at] == '+') {
			memcpy(text + len, ix->text + at, n);
			len += n;
		}
	}
	return file_replace(l->dir_fd, INDEX, text, len);
}

int index_open(struct ledger *l, struct error *err)
{
	cleanup_with(index_done) struct index ix = INDEX_NONE;
	int r;

	if (l->index.fd >= 0)
		return 0;
	r = index_try(l, &ix);
	if (r == -EBADMSG) {
		r = index_rebuild(l, err);
		if (r < 0)
			return r;
		r = index_try(l, &ix);
	}
	/* Where it cannot be written anew, the old one still serves. */
	if (r == 0 && ix.dead > ix.len / 2 && ix.len > COMPACT_MIN && compact(l, &ix) == 0) {
		index_done(&ix);
		r = index_try(l, &ix);
	}
	if (r < 0)
		return error_set(err, -r, "%s/" INDEX ": %s", l->path, strerror(-r));
	l->index = ix;
	ix = INDEX_NONE;
	return 0;
}

/* ---- changing it ---- */

/* Offset of the "+" of the line that counts for the id; 0: none. From the end, where what was written last stands. */
static size_t find_line(const struct index *ix, const char *id)
{
	const size_t len = strlen(id) + 1; /* with its NUL */

	for (size_t end = ix->len - 1; end >= HEADER_LEN;) {
		const char *before = memrchr(ix->text + HEADER_LEN - 1, '\n', end - (HEADER_LEN - 1));
		size_t at;

		if (!before)
			return 0;
		at = (size_t) (before - ix->text) + 1;
		if (ix->text[at] == '+' && end - at > len && memcmp(ix->text + at + 1, id, len) == 0)
			return at;
		end = at - 1;
	}
	return 0;
}

bool index_has(const struct index *ix, const char *id)
{
	return find_line(ix, id) != 0;
}

int index_begin(struct index *ix)
{
	return header_write(ix, DIRTY);
}

int index_set(struct index *ix, const char *id, const struct entry *e)
{
	size_t len = 0, at = find_line(ix, id);
	cleanup_free char *line = e ? line_format(e, &len) : NULL;

	if (e && !line)
		return -ENOMEM;
	if (len > INDEX_MAX - ix->end)
		return -EFBIG;
	if (at) {
		int r = put_bytes(ix->fd, "-", 1, at);

		if (r < 0)
			return r;
		ix->dead += line_length(ix, at);
	}
	if (line) {
		int r = put_bytes(ix->fd, line, len, ix->end);

		if (r < 0)
			return r;
		ix->end += len;
	}
	return 0;
}

int index_commit(struct index *ix)
{
	return header_write(ix, CLEAN);
}

/* ---- occupancy ---- */

#define LOOKS_PER_CALL 2

void occupancy_done(struct occupancy *o)
{
	arena_done(&o->arena);
	if (o->text)
		munmap((void *) o->text, o->len);
	free(o->items);
	free(o->stale);
	*o = (struct occupancy){ 0 };
}

static int add_stale(struct occupancy *o, const char *id)
{
	if (o->n_stale == o->stale_room) {
		size_t room = o->stale_room ? o->stale_room * 2 : 8;
		const char **stale = reallocarray(o->stale, room, sizeof(*stale));

		if (!stale)
			return -ENOMEM;
		o->stale = stale;
		o->stale_room = room;
	}
	o->stale[o->n_stale++] = id;
	return 0;
}

static bool is_stale(const struct sys *s, const struct index_row *row, bool look)
{
	/* While its actor lives, an intent or a leave is that actor's to finish or undo. */
	if (row->state == ENTRY_INTENT || row->state == ENTRY_LEAVING)
		return row->actor <= 0 || !proc_alive(s, row->actor, row->actor_start_time);
	return look && (row->pid <= 0 || !proc_alive(s, row->pid, row->start_time));
}

/* Steps through the lines that count. -EBADMSG: a line makes no sense; -ENOENT: there is no further one. */
struct rows {
	const char *at, *end;
	struct mask_cache *cache;
	struct arena *arena;
};

static int next_row(struct rows *rows, struct index_row *ret)
{
	while (rows->at < rows->end) {
		const char *line = rows->at, *newline = memchr(line, '\n', (size_t) (rows->end - line));

		rows->at = newline + 1;
		if (*line == '+')
			return line_parse(line + 1, newline, rows->cache, rows->arena, ret);
		if (*line != '-')
			return -EBADMSG;
	}
	return -ENOENT;
}

/* Lends the occupancy the index's text. ret_n: entries, whatever their state. */
static int read_rows(const struct sys *s, struct index *ix, bool all, struct occupancy *o, size_t *ret_n)
{
	struct mask_cache cache = { 0 };
	struct rows rows = { ix->text + HEADER_LEN, ix->text + ix->len, &cache, &o->arena };
	struct index_row row;
	size_t n = 0;
	int r;

	o->len = ix->len;
	o->text = ix->text;
	ix->lent = true;
	/* Room for more than there can be: pages that are not touched cost nothing. */
	o->items = reallocarray(NULL, o->len / LINE_MIN + 1, sizeof(*o->items));
	if (!o->items)
		return -ENOMEM;
	while ((r = next_row(&rows, &row)) == 0) {
		if (row.state != ENTRY_LEAVING)
			o->items[o->n++] = row.occupant;
		if (is_stale(s, &row, all || (n >= ix->turn && n < ix->turn + LOOKS_PER_CALL)))
			r = add_stale(o, row.occupant.id);
		if (r < 0)
			return r;
		n++;
	}
	*ret_n = n;
	return r == -ENOENT ? 0 : r;
}

static int try_occupancy(struct ledger *l, bool all, struct error *err)
{
	struct index *ix = &l->index;
	size_t n = 0;
	int r;

	if (ix->lent)
		index_done(ix);
	r = index_open(l, err);
	if (r < 0)
		return r;
	occupancy_done(&l->occupancy);
	r = read_rows(l->sys, ix, all, &l->occupancy, &n);
	if (r == 0 && !all && n > LOOKS_PER_CALL) {
		ix->turn = ix->turn + LOOKS_PER_CALL < n ? ix->turn + LOOKS_PER_CALL : 0;
		r = header_write(ix, CLEAN);
	}
	return r < 0 ? error_set(err, -r, "%s/" INDEX ": %s", l->path, strerror(-r)) : 0;
}

int ledger_occupancy(struct ledger *l, bool all, const struct occupant **ret, size_t *ret_n,
		     const char *const **ret_stale, size_t *ret_n_stale, struct error *err)
{
	int r = ledger_need_lock(l, err);

	if (r == 0)
		r = try_occupancy(l, all, err);
	if (r == -EBADMSG)
		r = index_rebuild(l, err) < 0 ? -EBADMSG : try_occupancy(l, all, err);
	if (r < 0)
		return r;
	*ret = l->occupancy.items;
	*ret_n = l->occupancy.n;
	*ret_stale = l->occupancy.stale;
	*ret_n_stale = l->occupancy.n_stale;
	return 0;
}

static int try_members(struct ledger *l, const char *group, size_t *ret_n, struct error *err)
{
	cleanup_arena struct arena arena = { 0 };
	struct mask_cache cache = { 0 };
	struct index_row row;
	struct rows rows;
	size_t members = 0;
	int r = index_open(l, err);

	if (r < 0)
		return r;
	rows = (struct rows){ l->index.text + HEADER_LEN, l->index.text + l->index.len, &cache, &arena };
	while ((r = next_row(&rows, &row)) == 0)
		members += row.state != ENTRY_LEAVING && str_eq(row.occupant.group, group);
	if (r != -ENOENT)
		return error_set(err, -r, "%s/" INDEX ": %s", l->path, strerror(-r));
	*ret_n = members;
	return 0;
}

int ledger_members(struct ledger *l, const char *group, size_t *ret_n, struct error *err)
{
	int r = ledger_need_lock(l, err);

	if (r == 0)
		r = try_members(l, group, ret_n, err);
	if (r == -EBADMSG)
		r = index_rebuild(l, err) < 0 ? -EBADMSG : try_members(l, group, ret_n, err);
	return r;
}
