#include "ledger_private.h"

#include <errno.h>
#include <limits.h>

#define RECORD_VERSION 1

static const struct json_limits record_limits = { .max_bytes = RECORD_MAX, .max_values = 1u << 17, .max_depth = 8 };

static const char *const state_names[] = {
	[ENTRY_INTENT] = "intent",
	[ENTRY_DONE] = "done",
	[ENTRY_DEGRADED] = "degraded",
	[ENTRY_LEAVING] = "leaving",
};

const char *entry_state_name(enum entry_state s)
{
	return (unsigned) s < ARRAY_LEN(state_names) ? state_names[s] : NULL;
}

/* ---- tables: each drives writing, reading and freeing ---- */

enum kind { TEXT, TEXT_OR_NONE, PID, TICKS, FLAG, STATE };

struct field {
	const char *name;
	enum kind kind;
	size_t offset;
};

static const struct field entry_fields[] = {
	{ "id", TEXT, offsetof(struct entry, id) },
	{ "tenant", TEXT, offsetof(struct entry, tenant) },
	{ "group", TEXT, offsetof(struct entry, group) },
	{ "class", TEXT, offsetof(struct entry, class) },
	{ "bundle", TEXT_OR_NONE, offsetof(struct entry, bundle) },
	{ "cgroup", TEXT, offsetof(struct entry, cgroup) },
	{ "pid", PID, offsetof(struct entry, pid) },
	{ "start_time", TICKS, offsetof(struct entry, start_time) },
	{ "actor", PID, offsetof(struct entry, actor) },
	{ "actor_start_time", TICKS, offsetof(struct entry, actor_start_time) },
	{ "state", STATE, offsetof(struct entry, state) },
	{ "step", TEXT_OR_NONE, offsetof(struct entry, step) },
	{ "why", TEXT_OR_NONE, offsetof(struct entry, why) },
	{ "started", FLAG, offsetof(struct entry, started) },
	{ "unsynced", FLAG, offsetof(struct entry, unsynced) },
	{ "old_cpus", TEXT_OR_NONE, offsetof(struct entry, old_cpus) },
	{ "old_mems", TEXT_OR_NONE, offsetof(struct entry, old_mems) },
	{ "policy_digest", TEXT_OR_NONE, offsetof(struct entry, policy_digest) },
};

struct anchor_record {
	char *group;
	pid_t pid;
	uint64_t start_time;
};

static const struct field anchor_fields[] = {
	{ "group", TEXT, offsetof(struct anchor_record, group) },
	{ "pid", PID, offsetof(struct anchor_record, pid) },
	{ "start_time", TICKS, offsetof(struct anchor_record, start_time) },
};

static void fields_free(void *record, const struct field *fields, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (fields[i].kind == TEXT || fields[i].kind == TEXT_OR_NONE)
			freep((char *) record + fields[i].offset);
}

/* Without it the record could not be read back. */
static void write_needed(struct json_writer *w, const char *name, const char *text)
{
	if (!text)
		json_writer_fail(w, -EINVAL);
	json_string(w, name, text);
}

static void field_write(struct json_writer *w, const void *record, const struct field *f)
{
	const void *at = (const char *) record + f->offset;

	switch (f->kind) {
	case TEXT:
		write_needed(w, f->name, *(char *const *) at);
		break;
	case TEXT_OR_NONE:
		json_string(w, f->name, *(char *const *) at);
		break;
	case PID:
		json_int(w, f->name, *(const pid_t *) at);
		break;
	case TICKS:
		json_int(w, f->name, (int64_t) * (const uint64_t *) at);
		break;
	case FLAG:
		json_bool(w, f->name, *(const bool *) at);
		break;
	case STATE:
		write_needed(w, f->name, entry_state_name(*(const enum entry_state *) at));
		break;
	}
}

static bool state_from_name(const char *name, enum entry_state *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(state_names); i++) {
		if (str_eq(name, state_names[i])) {
			*ret = (enum entry_state) i;
			return true;
		}
	}
	return false;
}

/* 0, -EINVAL for a value that does not fit, -ENOMEM. */
static int field_read(const struct json *value, void *record, const struct field *f)
{
	void *at = (char *) record + f->offset;

	switch (f->kind) {
	case TEXT:
	case TEXT_OR_NONE:
		if (value->type != JSON_STRING)
			return -EINVAL;
		*(char **) at = strdup(value->string);
		return *(char **) at ? 0 : -ENOMEM;
	case PID:
		if (value->type != JSON_INT || value->integer < 0 || value->integer > INT_MAX)
			return -EINVAL;
		*(pid_t *) at = (pid_t) value->integer;
		return 0;
	case TICKS:
		if (value->type != JSON_INT || value->integer < 0)
			return -EINVAL;
		*(uint64_t *) at = (uint64_t) value->integer;
		return 0;
	case FLAG:
		if (value->type != JSON_BOOL)
			return -EINVAL;
		*(bool *) at = value->boolean;
		return 0;
	case STATE:
		return value->type == JSON_STRING && state_from_name(value->string, at) ? 0 : -EINVAL;
	}
	return -EINVAL;
}

/* Every member must be known and every field but the optional ones there; `other` is one more member that may be. */
static int fields_read(const char *name, const struct json *root, void *record, const struct field *fields, size_t n,
		       const char *other, struct error *err)
{
	size_t known = json_get(root, "version") != NULL;

	for (size_t i = 0; i < n; i++) {
		const struct json *value = json_get(root, fields[i].name);
		int r;

		if (!value && (fields[i].kind == TEXT_OR_NONE || fields[i].kind == FLAG))
			continue;
		r = value ? field_read(value, record, &fields[i]) : -EINVAL;
		if (r < 0)
			return error_set(err, -r, "%s: %s: %s", name, fields[i].name,
					 r == -ENOMEM ? "no memory"
					 : value      ? "not a value that cotenant writes there"
						      : "missing");
		known++;
	}
	known += other && json_get(root, other);
	return known == root->len ? 0 : error_set(err, EINVAL, "%s: holds a member that is not known", name);
}

/* Parses and checks the version. */
static int record_parse(struct arena *a, const char *name, const char *text, size_t len, const struct json **ret_root,
			struct error *err)
{
	const struct json *root, *version;
	int r = json_parse(a, name, text, len, 0, &record_limits, &root, err);

	if (r < 0)
		return r;
	version = json_get(root, "version");
	if (!version || version->type != JSON_INT || version->integer != RECORD_VERSION)
		return error_set(err, EINVAL, "%s: not of version %d", name, RECORD_VERSION);
	*ret_root = root;
	return 0;
}

static struct json_writer *record_open(void)
{
	struct json_writer *w = json_writer_new(/* pretty= */ true);

	if (w) {
		json_open_object(w, NULL);
		json_int(w, "version", RECORD_VERSION);
	}
	return w;
}

static int record_take(struct json_writer *w, char **ret_text, size_t *ret_len)
{
	cleanup_free char *text = NULL;
	size_t len;
	int r;

	json_close(w);
	r = json_writer_take(w, &text, &len);
	if (r < 0)
		return r;
	if (len > RECORD_MAX)
		return -EFBIG;
	*ret_text = TAKE_PTR(text);
	*ret_len = len;
	return 0;
}

/* ---- entries ---- */

void entry_free(struct entry *e)
{
	if (!e)
		return;
	fields_free(e, entry_fields, ARRAY_LEN(entry_fields));
	plan_free(e->plan);
	free(e);
}

void entry_freep(struct entry **e)
{
	entry_free(*e);
	*e = NULL;
}

int entry_format(const struct entry *e, char **ret_text, size_t *ret_len)
{
	cleanup_json_writer struct json_writer *w = record_open();

	if (!w)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_LEN(entry_fields); i++)
		field_write(w, e, &entry_fields[i]);
	json_open_object(w, "plan");
	plan_write(w, e->plan);
	json_close(w);
	return record_take(w, ret_text, ret_len);
}

int entry_parse(const char *name, const char *text, size_t len, struct entry **ret_entry, struct error *err)
{
	cleanup_arena struct arena a = { 0 };
	cleanup_entry struct entry *e = calloc(1, sizeof(*e));
	const struct json *root;
	int r;

	if (!e)
		return error_set(err, ENOMEM, "%s: no memory", name);
	r = record_parse(&a, name, text, len, &root, err);
	if (r < 0)
		return r;
	r = fields_read(name, root, e, entry_fields, ARRAY_LEN(entry_fields), "plan", err);
	if (r < 0)
		return r;
	r = json_get(root, "plan") ? plan_read(json_get(root, "plan"), &e->plan, err)
				   : error_set(err, EINVAL, "plan: missing");
	if (r < 0)
		return error_prefix(err, r, "%s", name);
	*ret_entry = TAKE_PTR(e);
	return 0;
}

/* ---- anchors ---- */

int anchor_format(const char *group, const struct anchor_ref *ref, char **ret_text, size_t *ret_len)
{
	cleanup_free char *copy = strdup(group);
	struct anchor_record record = { .group = copy, .pid = ref->pid, .start_time = ref->start_time };
	cleanup_json_writer struct json_writer *w = record_open();

	if (!copy || !w)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_LEN(anchor_fields); i++)
		field_write(w, &record, &anchor_fields[i]);
	return record_take(w, ret_text, ret_len);
}

int anchor_parse(const char *name, const char *text, size_t len, const char *group, struct anchor_ref *ret,
		 struct error *err)
{
	cleanup_arena struct arena a = { 0 };
	struct anchor_record record = { 0 };
	const struct json *root;
	int r = record_parse(&a, name, text, len, &root, err);

	if (r < 0)
		return r;
	r = fields_read(name, root, &record, anchor_fields, ARRAY_LEN(anchor_fields), NULL, err);
	if (r == 0 && !str_eq(record.group, group))
		r = error_set(err, ENOENT, "%s: is another group's", name);
	if (r == 0)
		*ret = (struct anchor_ref){ .pid = record.pid, .start_time = record.start_time };
	fields_free(&record, anchor_fields, ARRAY_LEN(anchor_fields));
	return r;
}

/* ---- weights ---- */

int weights_format(const struct saved_weights *weights, char **ret_text, size_t *ret_len)
{
	cleanup_json_writer struct json_writer *w = record_open();

	if (!w)
		return -ENOMEM;
	json_bool(w, "was_auto", weights->was_auto);
	json_open_array(w, "node");
	for (unsigned i = 0; i < NODE_MAX; i++)
		json_int(w, NULL, weights->node[i]);
	json_close(w);
	return record_take(w, ret_text, ret_len);
}

int weights_parse(const char *name, const char *text, size_t len, struct saved_weights *ret, struct error *err)
{
	cleanup_arena struct arena a = { 0 };
	struct saved_weights weights = { 0 };
	const struct json *root, *was_auto, *node;
	unsigned n = 0;
	int r = record_parse(&a, name, text, len, &root, err);

	if (r < 0)
		return r;
	was_auto = json_get(root, "was_auto");
	node = json_get(root, "node");
	if (!was_auto || was_auto->type != JSON_BOOL || !node || node->type != JSON_ARRAY || node->len != NODE_MAX)
		return error_set(err, EINVAL, "%s: not saved weights", name);
	for (const struct json *v = node->first; v; v = v->next) {
		if (v->type != JSON_INT || v->integer < 0 || v->integer > UINT8_MAX)
			return error_set(err, EINVAL, "%s: a weight is no number from 0 to 255", name);
		weights.node[n++] = (uint8_t) v->integer;
	}
	weights.was_auto = was_auto->boolean;
	*ret = weights;
	return 0;
}
