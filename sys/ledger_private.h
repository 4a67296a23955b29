/* What the ledger's files share: the open directories, the index, and the JSON forms of what is kept. */
#pragma once

#include "ledger.h"

#define RECORD_MAX (4u << 20) /* bytes of one JSON file; a plan names its neighbours, so it grows with the node */
#define RECORDS_MAX (1u << 17) /* files in containers/ */

/* What ledger_occupancy() hands out. */
struct occupancy {
	struct arena arena;      /* masks */
	const char *text;        /* the index, mapped; ids and groups point into it */
	size_t len;
	struct occupant *items;
	size_t n;
	const char **stale;
	size_t n_stale, stale_room;
};
void occupancy_done(struct occupancy *o);

/* The index as it was found under the lock. */
struct index {
	int fd;
	const char *text; /* the whole file, mapped */
	size_t len;
	size_t end;  /* where the next line goes: beyond len once something was written */
	bool lent;   /* the mapping is the occupancy's, which outlives this */
	size_t dead; /* bytes of lines that no longer count */
	size_t turn; /* the entry at which the next round of looking for dead processes begins */
};
#define INDEX_NONE ((struct index){ .fd = -1 })

struct ledger {
	struct sys *sys;
	char *path; /* for messages */
	int dir_fd, containers_fd, groups_fd, lock_fd;
	bool locked;
	char *put_id; /* whose entry was put last, and that file: see ledger_has_last_put() */
	int put_fd;
	struct index index; /* open from its first use under the lock until it is changed or the lock is given up */
	struct occupancy occupancy;
};

/* -ENOLCK when it is not held. */
int ledger_need_lock(const struct ledger *l, struct error *err) must_check;

/* FNV-1a, 64 bits. */
uint64_t ledger_hash(const char *s);

/* ---- a line of the index (sys/ledger_line.c) ---- */

struct index_row {
	enum entry_state state;
	struct occupant occupant;
	pid_t pid, actor;
	uint64_t start_time, actor_start_time;
};

/* Masks by their text: containers have few distinct sets. When it is full the rest get masks of their own. */
#define MASK_SLOTS 512
struct mask_cache {
	struct {
		const char *text;
		const struct mask *mask;
	} slot[MASK_SLOTS];
};

/* No line is shorter: "+", 12 fields, of which 10 hold something, their NULs, letters, newline. */
#define LINE_MIN 29
/* With its newline; NULL when out of memory. */
char *line_format(const struct entry *e, size_t *ret_len) must_check;
/* `line` begins behind its "+", `end` is its newline; *ret points into it. -EBADMSG, -ENOMEM. */
int line_parse(const char *line, const char *end, struct mask_cache *cache, struct arena *a,
	       struct index_row *ret) must_check;
/* Plain digits; returns where they end, or NULL when there are none or they say more than `max`. */
const char *number_parse(const char *s, unsigned base, uint64_t max, uint64_t *ret) must_check;

/* ---- index (sys/ledger_index.c) ---- */

/*
 * Maps it into l->index, unless it is open. An index that is missing, damaged, of another version or left dirty is
 * rebuilt first, and one that is more than half outdated is written anew. Needs the lock.
 */
int index_open(struct ledger *l, struct error *err) must_check;
void index_done(struct index *ix);
bool index_has(const struct index *ix, const char *id);
/* From here to index_commit() the index is dirty: who dies in between has the next one rebuild it. */
int index_begin(struct index *ix) must_check;
/*
 * Replaces the line of e->id; e NULL: only removes that of `id`. Once for an id, and when all is written the mapping is
 * outdated: index_done().
 */
int index_set(struct index *ix, const char *id, const struct entry *e) must_check;
int index_commit(struct index *ix) must_check;
/* Has the next reader rebuild it. Needs the lock. */
void index_spoil(struct ledger *l);

/* ---- records (sys/entry.c) ---- */

int entry_format(const struct entry *e, char **ret_text, size_t *ret_len) must_check;
/* -EINVAL, -E2BIG: not an entry, or one of another version. */
int entry_parse(const char *name, const char *text, size_t len, struct entry **ret_entry, struct error *err) must_check;
int anchor_format(const char *group, const struct anchor_ref *ref, char **ret_text, size_t *ret_len) must_check;
/* -ENOENT: the record is another group's. */
int anchor_parse(const char *name, const char *text, size_t len, const char *group, struct anchor_ref *ret,
		 struct error *err) must_check;
int weights_format(const struct saved_weights *w, char **ret_text, size_t *ret_len) must_check;
int weights_parse(const char *name, const char *text, size_t len, struct saved_weights *ret,
		  struct error *err) must_check;

/* ---- files (sys/ledger.c) ---- */

/*
 * An entry by the name of its file. -ENOENT when there is none, and also when it is damaged: then err says so, and
 * under the lock it is moved aside.
 */
int ledger_read_entry(struct ledger *l, const char *file, struct entry **ret_entry, struct error *err) must_check;
/*
 * Names of the files in containers/, sorted. tidy_up (needs the lock): removes what writers that died left behind, in all
 * of the state directory.
 */
int ledger_files(struct ledger *l, bool tidy_up, char ***ret_files, size_t *ret_n, struct error *err) must_check;
