/* The plan as the ledger keeps it. What is read back may be damaged, so everything is checked. */
#include "plan.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#define ITEMS_MAX 65536 /* reasons, rejects, adjusts */

#define MILLION 1000000 /* a share is written in millionths: the form has no fractions */

/* How a member is spelt. One table writes and reads the plain ones. */
enum kind { KIND_BOOL, KIND_UINT, KIND_BYTES, KIND_CPUS, KIND_NODES, KIND_SHARE };

#define FIELD(member, k, lo, hi) \
	{ .name = #member, .kind = (k), .offset = offsetof(struct plan, member), .min = (lo), .max = (hi) }
static const struct field {
	const char *name;
	size_t offset;
	int64_t min, max;
	enum kind kind;
	bool optional; /* entries of older versions lack it */
} fields[] = {
	FIELD(set_cpus, KIND_BOOL, 0, 1),
	FIELD(set_mems, KIND_BOOL, 0, 1),
	FIELD(cpus, KIND_CPUS, 1, CPU_MAX), /* number of members */
	FIELD(wish, KIND_CPUS, 1, CPU_MAX),
	FIELD(mems, KIND_NODES, 0, 0),
	FIELD(bound, KIND_BOOL, 0, 1),
	FIELD(exclusive, KIND_BOOL, 0, 1),
	{ .name = "streams", .kind = KIND_BOOL, .offset = offsetof(struct plan, streams), .max = 1, .optional = true },
	FIELD(mcpu, KIND_UINT, 1, UINT_MAX),
	FIELD(memory, KIND_BYTES, 0, INT64_MAX),
	FIELD(memory_nodes, KIND_NODES, 0, 0),
	FIELD(set_weights, KIND_BOOL, 0, 1),
	FIELD(guard, KIND_UINT, 0, GUARD_COOKIE | GUARD_MEMORY | GUARD_AFFINITY),
	FIELD(migrate, KIND_BOOL, 0, 1),
	FIELD(rebalance.enabled, KIND_BOOL, 0, 1),
	FIELD(rebalance.min_dwell_s, KIND_UINT, 0, UINT_MAX),
	FIELD(rebalance.max_moves_per_minute, KIND_UINT, 0, UINT_MAX),
	FIELD(rebalance.min_gain, KIND_SHARE, 0, MILLION),
	FIELD(confine_unmanaged, KIND_BOOL, 0, 1),
	FIELD(degraded, KIND_BOOL, 0, 1),
};

/* ---- writing ---- */

/* Takes the text; NULL: memory ran out for it. */
static void write_text(struct json_writer *w, const char *key, char *text)
{
	if (!text)
		json_writer_fail(w, -ENOMEM);
	json_string(w, key, text);
	free(text);
}

static void write_name(struct json_writer *w, const char *key, const char *name)
{
	if (!name)
		json_writer_fail(w, -EINVAL);
	json_string(w, key, name);
}

static void write_field(struct json_writer *w, const struct field *f, const struct plan *p)
{
	const void *at = (const char *) p + f->offset;

	switch (f->kind) {
	case KIND_BOOL:
		json_bool(w, f->name, *(const bool *) at);
		break;
	case KIND_UINT:
		json_int(w, f->name, *(const unsigned *) at);
		break;
	case KIND_BYTES: {
		uint64_t bytes = *(const uint64_t *) at;

		json_int(w, f->name, bytes > INT64_MAX ? INT64_MAX : (int64_t) bytes);
		break;
	}
	case KIND_CPUS:
		write_text(w, f->name, mask_format(at));
		break;
	case KIND_NODES:
		write_text(w, f->name, nodemask_format(*(const nodemask *) at));
		break;
	case KIND_SHARE:
		json_int(w, f->name, (int64_t) (*(const double *) at * MILLION + 0.5));
		break;
	}
}

static void write_weights(struct json_writer *w, const char *name, const uint8_t weights[NODE_MAX])
{
	json_open_object(w, name);
	for (unsigned node = 0; node < NODE_MAX; node++) {
		char key[sizeof("4294967295")];

		if (!weights[node])
			continue;
		snprintf(key, sizeof(key), "%u", node);
		json_int(w, key, weights[node]);
	}
	json_close(w);
}

static void write_lists(struct json_writer *w, const struct plan *p)
{
	json_open_array(w, "reasons");
	for (size_t i = 0; i < p->n_reasons; i++)
		json_string(w, NULL, p->reasons[i]);
	json_close(w);
	json_open_array(w, "rejects");
	for (size_t i = 0; i < p->n_rejects; i++) {
		json_open_object(w, NULL);
		json_string(w, "candidate", p->rejects[i].candidate);
		json_string(w, "why", p->rejects[i].why);
		json_close(w);
	}
	json_close(w);
	json_open_array(w, "adjusts");
	for (size_t i = 0; i < p->n_adjusts; i++) {
		json_open_object(w, NULL);
		json_string(w, "id", p->adjusts[i].id);
		write_text(w, "cpus", mask_format(&p->adjusts[i].cpus));
		json_close(w);
	}
	json_close(w);
}

void plan_write(struct json_writer *w, const struct plan *p)
{
	write_name(w, "mechanism", mechanism_name(p->mechanism));
	write_name(w, "memory_policy", memory_policy_name(p->memory_policy));
	write_name(w, "exec", exec_cover_name(p->exec));
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		write_field(w, &fields[i], p);
	write_weights(w, "weights", p->weights);
	write_weights(w, "ratio", p->ratio);
	write_lists(w, p);
}

/* ---- reading ---- */

static int bad(struct error *err, const struct json *object, const char *key)
{
	return error_set(err, EINVAL, "line %u: the plan's \"%s\" is missing or out of range", object->line, key);
}

static const char *get_string(const struct json *object, const char *key)
{
	const struct json *value = json_get(object, key);

	return value && value->type == JSON_STRING ? value->string : NULL;
}

/* NULL when the member is missing, no array or too long; so is an element of another type. */
static const struct json *get_list(const struct json *object, const char *key, enum json_type type)
{
	const struct json *list = json_get(object, key);

	if (!list || list->type != JSON_ARRAY || list->len > ITEMS_MAX)
		return NULL;
	for (const struct json *item = list->first; item; item = item->next)
		if (item->type != type)
			return NULL;
	return list;
}

static int read_int(const struct json *value, const struct field *f, void *at)
{
	if (value->type != JSON_INT || value->integer < f->min || value->integer > f->max)
		return -EINVAL;
	if (f->kind == KIND_UINT)
		*(unsigned *) at = (unsigned) value->integer;
	else if (f->kind == KIND_SHARE)
		*(double *) at = (double) value->integer / MILLION;
	else
		*(uint64_t *) at = (uint64_t) value->integer;
	return 0;
}

static int read_field(const struct json *object, const struct field *f, struct plan *p)
{
	const struct json *value = json_get(object, f->name);
	void *at = (char *) p + f->offset;

	if (!value)
		return f->optional ? 0 : -EINVAL;
	switch (f->kind) {
	case KIND_BOOL:
		if (value->type != JSON_BOOL)
			return -EINVAL;
		*(bool *) at = value->boolean;
		return 0;
	case KIND_UINT:
	case KIND_BYTES:
	case KIND_SHARE:
		return read_int(value, f, at);
	case KIND_CPUS:
		if (value->type != JSON_STRING || mask_parse(value->string, at) < 0)
			return -EINVAL;
		return mask_empty(at) ? -EINVAL : 0;
	case KIND_NODES:
		return value->type == JSON_STRING ? nodemask_parse(value->string, at) : -EINVAL;
	}
	return -EINVAL;
}

static int read_weights(const struct json *weights, uint8_t *at)
{
	if (!weights || weights->type != JSON_OBJECT)
		return -EINVAL;
	for (const struct json *value = weights->first; value; value = value->next) {
		nodemask node;

		if (nodemask_parse(value->key, &node) < 0 || !node || node & (node - 1))
			return -EINVAL;
		if (value->type != JSON_INT || value->integer < 1 || value->integer > UINT8_MAX)
			return -EINVAL;
		at[__builtin_ctzll(node)] = (uint8_t) value->integer;
	}
	return 0;
}

static int read_node_weights(const struct json *object, struct plan *p)
{
	return read_weights(json_get(object, "weights"), p->weights);
}

static int read_ratio(const struct json *object, struct plan *p)
{
	return read_weights(json_get(object, "ratio"), p->ratio);
}

static int read_reasons(const struct json *object, struct plan *p)
{
	const struct json *list = get_list(object, "reasons", JSON_STRING);

	if (!list)
		return -EINVAL;
	p->reasons = calloc(list->len + 1, sizeof(*p->reasons));
	if (!p->reasons)
		return -ENOMEM;
	for (const struct json *item = list->first; item; item = item->next) {
		p->reasons[p->n_reasons] = strdup(item->string);
		if (!p->reasons[p->n_reasons++])
			return -ENOMEM;
	}
	return 0;
}

static int read_rejects(const struct json *object, struct plan *p)
{
	const struct json *list = get_list(object, "rejects", JSON_OBJECT);

	if (!list)
		return -EINVAL;
	p->rejects = calloc(list->len + 1, sizeof(*p->rejects));
	if (!p->rejects)
		return -ENOMEM;
	for (const struct json *item = list->first; item; item = item->next) {
		const char *candidate = get_string(item, "candidate"), *why = get_string(item, "why");
		struct plan_reject *reject = &p->rejects[p->n_rejects];

		if (!candidate || !why)
			return -EINVAL;
		reject->candidate = strdup(candidate);
		reject->why = strdup(why);
		p->n_rejects++;
		if (!reject->candidate || !reject->why)
			return -ENOMEM;
	}
	return 0;
}

static int read_adjusts(const struct json *object, struct plan *p)
{
	const struct json *list = get_list(object, "adjusts", JSON_OBJECT);

	if (!list)
		return -EINVAL;
	p->adjusts = calloc(list->len + 1, sizeof(*p->adjusts));
	if (!p->adjusts)
		return -ENOMEM;
	for (const struct json *item = list->first; item; item = item->next) {
		const char *id = get_string(item, "id"), *cpus = get_string(item, "cpus");
		struct plan_adjust *adjust = &p->adjusts[p->n_adjusts];

		/* The id becomes a file name. */
		if (!id || oci_id_check(id, strlen(id), NULL) < 0)
			return -EINVAL;
		if (!cpus || mask_parse(cpus, &adjust->cpus) < 0 || mask_empty(&adjust->cpus))
			return -EINVAL;
		adjust->id = strdup(id);
		if (!adjust->id)
			return -ENOMEM;
		p->n_adjusts++;
	}
	return 0;
}

static int read_names(const struct json *object, struct plan *p, struct error *err)
{
	const char *mechanism = get_string(object, "mechanism"), *exec = get_string(object, "exec");
	const char *policy = get_string(object, "memory_policy");

	if (!mechanism || mechanism_from_name(mechanism, &p->mechanism) < 0)
		return bad(err, object, "mechanism");
	if (!policy || memory_policy_from_name(policy, &p->memory_policy) < 0)
		return bad(err, object, "memory_policy");
	if (!exec || exec_cover_from_name(exec, &p->exec) < 0)
		return bad(err, object, "exec");
	return 0;
}

int plan_read(const struct json *object, struct plan **ret_plan, struct error *err)
{
	static const struct {
		const char *name;
		int (*read)(const struct json *object, struct plan *p);
	} others[] = {
		{ "weights", read_node_weights },
		{ "ratio", read_ratio },
		{ "reasons", read_reasons },
		{ "rejects", read_rejects },
		{ "adjusts", read_adjusts },
	};
	cleanup_plan struct plan *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return error_no_memory(err);
	if (!object || object->type != JSON_OBJECT)
		return error_set(err, EINVAL, "a plan is an object, and this is %s",
				 object ? json_type_name(object->type) : "nothing");
	r = read_names(object, p, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		if (read_field(object, &fields[i], p) < 0)
			return bad(err, object, fields[i].name);
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		r = others[i].read(object, p);
		if (r < 0)
			return r == -ENOMEM ? error_no_memory(err) : bad(err, object, others[i].name);
	}
	*ret_plan = TAKE_PTR(p);
	return 0;
}
