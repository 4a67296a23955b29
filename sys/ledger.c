#include "dir.h"
#include "ledger_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define DAMAGED_MAX 16 /* files kept aside */
#define WEIGHTS "weights.json"

/* ---- names ---- */

/*
 * A file name for any text: bytes that are not plain become %XX, and what would be too long for NAME_MAX is cut and
 * told apart by a hash ("~" stands for nothing else). Two long texts made to collide share a file: the record in it
 * names its owner, so one of them has no record then, and no text can pass for another.
 */
static char *record_name(const char *text)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
	enum { LONGEST = 200, KEPT = 180 };
	size_t len = strlen(text), at = 0;
	cleanup_free char *name = malloc(len * 3 + 1);
	char *whole;

	if (!name)
		return NULL;
	for (size_t i = 0; i < len; i++) {
		if (strchr(plain, text[i]) && !(i == 0 && text[i] == '.'))
			name[at++] = text[i];
		else
			at += (size_t) snprintf(name + at, 4, "%%%02X", (unsigned char) text[i]);
	}
	name[at] = '\0';
	if (at <= LONGEST ? asprintf(&whole, "%s.json", name) < 0
			  : asprintf(&whole, "%.*s~%016" PRIx64 ".json", KEPT, name, ledger_hash(text)) < 0)
		return NULL;
	return whole;
}

static bool name_is_cut(const char *name)
{
	return strchr(name, '~') != NULL;
}

static bool name_is_record(const char *name)
{
	size_t len = strlen(name);

	return name[0] != '.' && len > strlen(".json") && str_eq(name + len - strlen(".json"), ".json");
}

/* ---- one record ---- */

/* Whether it is the file that is wrong, and not the machine that is short of something. */
static bool is_damage(int r)
{
	return r == -EINVAL || r == -E2BIG || r == -EFBIG || r == -ELOOP || r == -EISDIR || r == -ENXIO;
}

/* A handful of damaged files is kept for whoever looks into it; each takes the place of an older one. */
static int move_aside(struct ledger *l, const char *file, struct error *err)
{
	cleanup_free char *aside = NULL;

	if (!l->locked)
		return error_prefix(err, -ENOENT, "%s/containers/%s cannot be read", l->path, file);
	if (asprintf(&aside, "damaged-%u.bad", (unsigned) (ledger_hash(file) % DAMAGED_MAX)) < 0) {
		aside = NULL;
		return error_no_memory(err);
	}
	if (renameat(l->containers_fd, file, l->containers_fd, aside) < 0)
		return error_set(err, errno, "%s/containers/%s: is damaged and cannot be moved aside: %s", l->path,
				 file, strerror(errno));
	index_spoil(l);
	return error_prefix(err, -ENOENT, "%s/containers/%s was moved to %s", l->path, file, aside);
}

/* What could not be put must not be believed either. */
static int check_entry(const struct entry *e, struct error *err)
{
	int r = oci_id_check(e->id, strlen(e->id), err);

	if (r < 0)
		return r;
	/* The index is cut at these; policy_match() lets none through. */
	for (const char *s = e->group; *s; s++)
		if ((unsigned char) *s < 0x20 || *s == 0x7f)
			return error_set(err, EINVAL, "container %s: its group's name holds a control character",
					 e->id);
	if (!*e->group || !e->plan)
		return error_set(err, EINVAL, "container %s: has no %s", e->id, *e->group ? "plan" : "group");
	return 0;
}

int ledger_read_entry(struct ledger *l, const char *file, struct entry **ret_entry, struct error *err)
{
	cleanup_entry struct entry *e = NULL;
	cleanup_free char *text = NULL;
	size_t len = 0;
	int r = file_read_at(l->containers_fd, file, RECORD_MAX, &text, &len);

	if (r == -ENOENT)
		return error_set(err, ENOENT, "%s/containers/%s: there is none", l->path, file);
	if (r < 0)
		error_set(err, -r, "%s", strerror(-r));
	else
		r = entry_parse("entry", text, len, &e, err);
	if (r == 0)
		r = check_entry(e, err);
	if (r == 0)
		*ret_entry = TAKE_PTR(e);
	if (is_damage(r))
		return move_aside(l, file, err);
	return r < 0 ? error_prefix(err, r, "%s/containers/%s", l->path, file) : 0;
}

/* ---- entries ---- */

static int put_file(struct ledger *l, const struct entry *e, const char *name, const char *text, size_t len)
{
	/* Another id whose name was cut to the same file: its entry must not be lost. */
	if (name_is_cut(name) && !index_has(&l->index, e->id) &&
	    faccessat(l->containers_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return file_replace(l->containers_fd, name, text, len);
}

/* The index must be open and begun. */
static int put_one(struct ledger *l, const struct entry *e, struct error *err)
{
	cleanup_free char *name = NULL, *text = NULL;
	size_t len = 0;
	int r = check_entry(e, err);

	if (r < 0)
		return r;
	name = record_name(e->id);
	r = name ? entry_format(e, &text, &len) : -ENOMEM;
	if (r < 0)
		return error_set(err, -r, "container %s: its entry cannot be written down: %s", e->id, strerror(-r));
	r = put_file(l, e, name, text, len);
	if (r == 0)
		r = index_set(&l->index, e->id, e);
	return r < 0 ? error_set(err, -r, "%s/containers/%s: cannot be written: %s", l->path, name, strerror(-r)) : 0;
}

int ledger_put_many(struct ledger *l, struct entry *const *entries, size_t n, struct error *err)
{
	int first, r = ledger_need_lock(l, err);

	if (r < 0 || n == 0)
		return r;
	r = index_open(l, err);
	if (r < 0)
		return r;
	first = index_begin(&l->index);
	for (size_t i = 0; first == 0 && i < n; i++)
		r = r < 0 ? r : put_one(l, entries[i], err);
	if (first == 0 && r == 0)
		first = index_commit(&l->index);
	index_done(&l->index);
	return first < 0 ? error_set(err, -first, "%s/index: %s", l->path, strerror(-first)) : r;
}

int ledger_put(struct ledger *l, const struct entry *e, struct error *err)
{
	cleanup_free char *name = NULL;
	int r = ledger_put_many(l, (struct entry *const[]){ (struct entry *) e }, 1, err);

	closep(&l->put_fd);
	l->put_fd = -1;
	free(TAKE_PTR(l->put_id));
	if (r < 0)
		return r;
	/* Only to spare a reading: without memory or descriptors it is read again. */
	name = record_name(e->id);
	l->put_id = strdup(e->id);
	if (name && l->put_id)
		l->put_fd = openat(l->containers_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return 0;
}

bool ledger_has_last_put(const struct ledger *l, const char *id)
{
	struct stat st;

	/* Whoever puts or drops an entry takes the file's last name away. */
	return l->put_fd >= 0 && str_eq(l->put_id, id) && fstat(l->put_fd, &st) == 0 && st.st_nlink > 0;
}

static int drop_locked(struct ledger *l, const char *id, const char *name)
{
	struct index *ix = &l->index;
	int r;

	if (name_is_cut(name) && !index_has(ix, id))
		return 0; /* whose file this is, is not known */
	r = index_begin(ix);
	if (r == 0 && unlinkat(l->containers_fd, name, 0) < 0 && errno != ENOENT)
		r = -errno;
	if (r == 0)
		r = index_set(ix, id, NULL);
	if (r == 0)
		r = index_commit(ix);
	index_done(ix);
	return r;
}

int ledger_drop(struct ledger *l, const char *id, struct error *err)
{
	cleanup_free char *name = record_name(id);
	int r = ledger_need_lock(l, err);

	if (r == 0)
		r = oci_id_check(id, strlen(id), err);
	if (r < 0)
		return r;
	if (!name)
		return error_no_memory(err);
	r = index_open(l, err);
	if (r < 0)
		return r;
	r = drop_locked(l, id, name);
	return r < 0 ? error_set(err, -r, "%s/containers/%s: cannot be dropped: %s", l->path, name, strerror(-r)) : 0;
}

int ledger_get(struct ledger *l, const char *id, struct entry **ret_entry, struct error *err)
{
	cleanup_entry struct entry *e = NULL;
	cleanup_free char *name = record_name(id);
	int r = oci_id_check(id, strlen(id), err);

	if (r < 0)
		return r;
	if (!name)
		return error_no_memory(err);
	r = ledger_read_entry(l, name, &e, err);
	if (r < 0)
		return r;
	if (!str_eq(e->id, id))
		return error_set(err, ENOENT, "%s/containers/%s: is container %s", l->path, name, e->id);
	*ret_entry = TAKE_PTR(e);
	return 0;
}

/* ---- lists ---- */

struct names {
	char **items;
	size_t n, room;
};

static int add_name(struct names *names, const char *name)
{
	if (names->n == RECORDS_MAX)
		return -E2BIG;
	if (names->n == names->room) {
		size_t room = names->room ? names->room * 2 : 64;
		char **items = reallocarray(names->items, room, sizeof(*items));

		if (!items)
			return -ENOMEM;
		names->items = items;
		names->room = room;
	}
	names->items[names->n] = strdup(name);
	return names->items[names->n] ? (int) (names->n++, 0) : -ENOMEM;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/* ".PID.tmp", as file_replace() names what it is about to rename, of a process that is gone. */
static bool is_left_behind(const struct ledger *l, const char *name)
{
	uint64_t pid, start_time;
	const char *end = name[0] == '.' ? number_parse(name + 1, 10, INT_MAX, &pid) : NULL;

	return end && str_eq(end, ".tmp") && proc_start_time(l->sys, (pid_t) pid, &start_time) == -ESRCH;
}

/* Here others write than who holds the ledger's lock: hooks under a group's, cotenant-topology under none. */
static void tidy(const struct ledger *l, int dir_fd)
{
	cleanup_dir DIR *dir = dir_open(dir_fd, ".");
	const struct dirent *d;

	while (dir && (d = readdir(dir)))
		if (is_left_behind(l, d->d_name) && unlinkat(dir_fd, d->d_name, 0) < 0)
			return; /* it is in nobody's way */
}

static int read_names(struct ledger *l, bool tidy_up, struct names *names)
{
	cleanup_dir DIR *dir = dir_open(l->containers_fd, ".");
	const struct dirent *d;

	if (!dir)
		return -errno;
	while ((errno = 0, d = readdir(dir))) {
		int r = name_is_record(d->d_name) ? add_name(names, d->d_name) : 0;

		if (r < 0)
			return r;
		/* Whoever writes here holds the lock, so a temporary file is nobody's any more. */
		if (tidy_up && d->d_name[0] == '.' && d->d_type == DT_REG &&
		    unlinkat(l->containers_fd, d->d_name, 0) < 0)
			return -errno;
	}
	return -errno;
}

int ledger_files(struct ledger *l, bool tidy_up, char ***ret_files, size_t *ret_n, struct error *err)
{
	struct names names = { 0 };
	int r = read_names(l, tidy_up, &names);

	if (r < 0) {
		ledger_ids_free(names.items, names.n);
		return error_set(err, -r, "%s/containers: %s", l->path, strerror(-r));
	}
	if (tidy_up) {
		tidy(l, l->dir_fd);
		tidy(l, l->groups_fd);
	}
	if (names.n)
		qsort(names.items, names.n, sizeof(*names.items), by_name);
	*ret_files = names.items;
	*ret_n = names.n;
	return 0;
}

/* A plain name is the id; of one that had to be encoded only the file knows. NULL in *ret_id: no entry after all. */
static int file_to_id(struct ledger *l, const char *file, char **ret_id, struct error *err)
{
	cleanup_entry struct entry *e = NULL;
	int r;

	if (!strpbrk(file, "%~")) {
		*ret_id = strndup(file, strlen(file) - strlen(".json"));
		return *ret_id ? 0 : error_no_memory(err);
	}
	r = ledger_read_entry(l, file, &e, err);
	*ret_id = r == 0 ? TAKE_PTR(e->id) : NULL;
	return r == -ENOENT ? 0 : r;
}

int ledger_ids(struct ledger *l, char ***ret_ids, size_t *ret_n, struct error *err)
{
	char **ids = NULL;
	size_t n = 0, kept = 0;
	int r = ledger_files(l, /* tidy_up= */ false, &ids, &n, err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		char *id = NULL;

		if (r == 0)
			r = file_to_id(l, ids[i], &id, err);
		free(ids[i]);
		if (id)
			ids[kept++] = id;
	}
	if (r < 0) {
		ledger_ids_free(ids, kept);
		return r;
	}
	if (kept)
		qsort(ids, kept, sizeof(*ids), by_name);
	*ret_ids = ids;
	*ret_n = kept;
	return 0;
}

void ledger_ids_free(char **ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(ids[i]);
	free(ids);
}

/* ---- anchors and weights: each one record in a file of its own ---- */

static int put_record(struct ledger *l, int dir_fd, const char *name, const char *text, size_t len, struct error *err)
{
	int r = file_replace(dir_fd, name, text, len);

	return r < 0 ? error_set(err, -r, "%s: %s cannot be written: %s", l->path, name, strerror(-r)) : 0;
}

static int get_record(struct ledger *l, int dir_fd, const char *name, char **ret_text, size_t *ret_len,
		      struct error *err)
{
	int r = file_read_at(dir_fd, name, RECORD_MAX, ret_text, ret_len);

	return r < 0 ? error_set(err, is_damage(r) ? ENOENT : -r, "%s: %s: %s", l->path, name, strerror(-r)) : 0;
}

static int drop_record(struct ledger *l, int dir_fd, const char *name, struct error *err)
{
	if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
		return error_set(err, errno, "%s: %s cannot be removed: %s", l->path, name, strerror(errno));
	return 0;
}

/* A damaged record counts as none: the next put replaces it. */
int ledger_get_anchor(struct ledger *l, const char *group, struct anchor_ref *ret, struct error *err)
{
	cleanup_free char *name = record_name(group), *text = NULL;
	size_t len = 0;
	int r = name ? get_record(l, l->groups_fd, name, &text, &len, err) : error_no_memory(err);

	if (r == 0)
		r = anchor_parse(name, text, len, group, ret, err);
	return is_damage(r) ? -ENOENT : r;
}

int ledger_put_anchor(struct ledger *l, const char *group, const struct anchor_ref *ref, struct error *err)
{
	cleanup_free char *name = record_name(group), *text = NULL;
	size_t len = 0;

	if (!name || anchor_format(group, ref, &text, &len) < 0)
		return error_no_memory(err);
	return put_record(l, l->groups_fd, name, text, len, err);
}

int ledger_drop_anchor(struct ledger *l, const char *group, struct error *err)
{
	cleanup_free char *name = record_name(group);

	return name ? drop_record(l, l->groups_fd, name, err) : error_no_memory(err);
}

int ledger_get_weights(struct ledger *l, struct saved_weights *ret, struct error *err)
{
	cleanup_free char *text = NULL;
	size_t len = 0;
	int r = get_record(l, l->dir_fd, WEIGHTS, &text, &len, err);

	if (r == 0)
		r = weights_parse(WEIGHTS, text, len, ret, err);
	return is_damage(r) ? -ENOENT : r;
}

int ledger_put_weights(struct ledger *l, const struct saved_weights *w, struct error *err)
{
	cleanup_free char *text = NULL;
	size_t len = 0;
	int r = ledger_need_lock(l, err);

	if (r < 0)
		return r;
	if (weights_format(w, &text, &len) < 0)
		return error_no_memory(err);
	return put_record(l, l->dir_fd, WEIGHTS, text, len, err);
}

int ledger_drop_weights(struct ledger *l, struct error *err)
{
	int r = ledger_need_lock(l, err);

	return r < 0 ? r : drop_record(l, l->dir_fd, WEIGHTS, err);
}
