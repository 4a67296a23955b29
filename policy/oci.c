#include "oci.h"
#include "json.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>

/* Real documents stay far below: seccomp profiles are the biggest part of a config, some 10,000 values, 6 deep. */
static const struct json_limits state_limits = { .max_bytes = OCI_STATE_MAX, .max_values = 1 << 16, .max_depth = 64 };
static const struct json_limits config_limits = { .max_bytes = OCI_CONFIG_MAX, .max_values = 1 << 18, .max_depth = 64 };

#define ID_SHOWN 64 /* characters of a bad id that a message shows */

struct document {
	struct arena *arena;
	const char *name;
	const struct json *root;
	struct error *err;
};

static int open_document(struct document *doc, const char *text, size_t len, const struct json_limits *limits)
{
	int r = json_parse(doc->arena, doc->name, text, len, JSON_BIG_INTEGERS, limits, &doc->root, doc->err);

	if (r < 0)
		return r;
	if (doc->root->type != JSON_OBJECT)
		return error_set(doc->err, EINVAL, "%s:%u:%u: an object expected, found %s", doc->name, doc->root->line,
				 doc->root->column, json_type_name(doc->root->type));
	return 0;
}

/* Returns -EINVAL and tells the place and the path of the value. */
static int wrong_type(const struct document *doc, const struct json *value, enum json_type wanted)
{
	const char *path = json_path(doc->arena, value);

	return error_set(doc->err, EINVAL, "%s:%u:%u: %s: %s expected, found %s", doc->name, value->line, value->column,
			 path ? path : "", json_type_name(wanted), json_type_name(value->type));
}

/*
 * Follows "a.b.c" from an object and checks the types on the way. Absent: 0 and NULL. null counts as absent, as it does
 * for the runtimes written in Go.
 */
static int find(const struct document *doc, const struct json *from, const char *path, enum json_type type,
		const struct json **ret)
{
	const struct json *value = from;

	while (value) {
		size_t n = strcspn(path, ".");
		char *key = arena_strndup(doc->arena, path, n);

		if (!key)
			return error_set(doc->err, ENOMEM, "%s: out of memory", doc->name);
		value = json_get(value, key);
		if (value && value->type == JSON_NULL)
			value = NULL;
		if (!path[n])
			break;
		if (value && value->type != JSON_OBJECT)
			return wrong_type(doc, value, JSON_OBJECT);
		path += n + 1;
	}
	if (value && value->type != type)
		return wrong_type(doc, value, type);
	*ret = value;
	return 0;
}

/*
 * A member of a document and where it goes in a structure: JSON_STRING to a const char *, JSON_INT to an int64_t. Left
 * as it is when the member is absent or an empty string.
 */
struct field {
	const char *path;
	enum json_type type;
	size_t offset;
	int64_t min, max; /* of an integer */
};

static int read_field(const struct document *doc, const struct json *from, const struct field *field, void *into)
{
	const struct json *value;
	void *at = (char *) into + field->offset;
	int r = find(doc, from, field->path, field->type, &value);

	if (r < 0 || !value)
		return r;
	if (field->type == JSON_STRING) {
		if (value->len)
			memcpy(at, &value->string, sizeof(value->string));
		return 0;
	}
	if (value->integer < field->min || value->integer > field->max) {
		const char *path = json_path(doc->arena, value);

		return error_set(doc->err, EINVAL, "%s:%u:%u: %s: %lld is out of range (%lld to %lld)", doc->name,
				 value->line, value->column, path ? path : "", (long long) value->integer,
				 (long long) field->min, (long long) field->max);
	}
	memcpy(at, &value->integer, sizeof(value->integer));
	return 0;
}

static int read_fields(const struct document *doc, const struct json *from, const struct field *fields, size_t n,
		       void *into)
{
	for (size_t i = 0; i < n; i++) {
		int r = read_field(doc, from, &fields[i], into);

		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- annotations ---- */

static int by_key(const void *a, const void *b)
{
	const struct oci_annotation *x = a, *y = b;

	return strcmp(x->key, y->key);
}

void oci_annotations_sort(struct oci_annotations *a)
{
	qsort(a->items, a->n, sizeof(*a->items), by_key);
}

const char *oci_annotation(const struct oci_annotations *a, const char *key)
{
	const struct oci_annotation wanted = { .key = key }, *found;

	if (!a->n)
		return NULL;
	found = bsearch(&wanted, a->items, a->n, sizeof(*a->items), by_key);
	return found ? found->value : NULL;
}

static int read_annotations(const struct document *doc, struct oci_annotations *ret)
{
	const struct json *object;
	struct oci_annotations read = { 0 };
	int r = find(doc, doc->root, "annotations", JSON_OBJECT, &object);

	if (r < 0)
		return r;
	if (!object || !object->len) {
		*ret = read;
		return 0;
	}
	if (object->len > OCI_ANNOTATIONS_MAX)
		return error_set(doc->err, E2BIG,
				 "%s:%u:%u: annotations: %zu entries, more than the %d that are allowed", doc->name,
				 object->line, object->column, object->len, OCI_ANNOTATIONS_MAX);
	read.items = arena_new(doc->arena, struct oci_annotation, object->len);
	if (!read.items)
		return error_set(doc->err, ENOMEM, "%s: out of memory", doc->name);
	for (const struct json *m = object->first; m; m = m->next) {
		if (m->type != JSON_STRING)
			return wrong_type(doc, m, JSON_STRING);
		read.items[read.n++] = (struct oci_annotation){ .key = m->key, .value = m->string };
	}
	oci_annotations_sort(&read);
	*ret = read;
	return 0;
}

/* ---- state ---- */

int oci_id_check(const char *id, size_t len, struct error *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-.";
	cleanup_free char *shown = printable(id, len, ID_SHOWN);
	const char *text = shown ? shown : "";

	if (!len)
		return error_set(err, EINVAL, "id: empty");
	if (len > OCI_ID_MAX)
		return error_set(err, EINVAL, "id \"%s\": %zu bytes, more than the %d that are allowed", text, len,
				 OCI_ID_MAX);
	for (size_t i = 0; i < len; i++) {
		cleanup_free char *bad = NULL;

		if (memchr(allowed, id[i], sizeof(allowed) - 1))
			continue;
		bad = printable(id + i, 1, 1);
		return error_set(err, EINVAL, "id \"%s\": '%s' is not allowed, only letters, digits and _+-. are", text,
				 bad ? bad : "");
	}
	if (id[0] == '.' && (len == 1 || (len == 2 && id[1] == '.')))
		return error_set(err, EINVAL, "id \"%s\" names a directory, not a container", text);
	return 0;
}

static int read_id(const struct document *doc, const char **ret)
{
	const struct json *id;
	int r = find(doc, doc->root, "id", JSON_STRING, &id);

	if (r < 0)
		return r;
	if (!id)
		return error_set(doc->err, EINVAL, "%s: no \"id\"", doc->name);
	r = oci_id_check(id->string, id->len, doc->err);
	if (r < 0)
		return error_prefix(doc->err, r, "%s:%u:%u", doc->name, id->line, id->column);
	*ret = id->string;
	return 0;
}

static int read_pid(const struct document *doc, bool needed, pid_t *ret)
{
	static const struct field field = { "pid", JSON_INT, 0, 0, INT_MAX };
	int64_t pid = 0;
	int r = read_field(doc, doc->root, &field, &pid);

	if (r < 0)
		return r;
	if (needed && !pid)
		return error_set(doc->err, EINVAL,
				 "%s: no \"pid\" (or 0), but this stage acts on the container's process", doc->name);
	*ret = (pid_t) pid;
	return 0;
}

int oci_state_parse(struct arena *a, const char *text, size_t len, bool need_pid, bool need_bundle,
		    struct oci_state *ret_state, struct error *err)
{
	static const struct field fields[] = {
		{ "bundle", JSON_STRING, offsetof(struct oci_state, bundle), 0, 0 },
		{ "status", JSON_STRING, offsetof(struct oci_state, status), 0, 0 },
	};
	struct document doc = { .arena = a, .name = "container state", .err = err };
	struct oci_state state = { .status = "" };
	int r;

	if (!len)
		return error_set(err, EINVAL, "container state: empty: the runtime gave nothing on standard input");
	r = open_document(&doc, text, len, &state_limits);
	if (r < 0)
		return r;
	r = read_id(&doc, &state.id);
	if (r < 0)
		return r;
	r = read_pid(&doc, need_pid, &state.pid);
	if (r < 0)
		return r;
	r = read_fields(&doc, doc.root, fields, ARRAY_LEN(fields), &state);
	if (r < 0)
		return r;
	if (need_bundle && !state.bundle)
		return error_set(err, EINVAL, "container state: no \"bundle\", but this stage reads its config.json");
	if (need_bundle && state.bundle[0] != '/')
		return error_set(err, EINVAL, "container state: \"bundle\" is not an absolute path");
	r = read_annotations(&doc, &state.annotations);
	if (r < 0)
		return r;
	*ret_state = state;
	return 0;
}

/* ---- config ---- */

/* Fails unless every element is an object. Absent: 0 and NULL. */
static int find_objects(const struct document *doc, const char *path, const struct json **ret_first)
{
	const struct json *array;
	int r = find(doc, doc->root, path, JSON_ARRAY, &array);

	if (r < 0)
		return r;
	for (const struct json *e = array ? array->first : NULL; e; e = e->next) {
		if (e->type != JSON_OBJECT)
			return wrong_type(doc, e, JSON_OBJECT);
	}
	*ret_first = array ? array->first : NULL;
	return 0;
}

static int read_namespaces(const struct document *doc, struct oci_config *config)
{
	const struct json *element, *type;
	int r = find_objects(doc, "linux.namespaces", &element);

	if (r < 0)
		return r;
	for (; element; element = element->next) {
		r = find(doc, element, "type", JSON_STRING, &type);
		if (r < 0)
			return r;
		if (!type)
			continue;
		config->user_namespace |= str_eq(type->string, "user");
		config->pid_namespace |= str_eq(type->string, "pid");
	}
	return 0;
}

static int read_uid_mappings(const struct document *doc, struct oci_config *config)
{
	struct mapping {
		int64_t container, host, size;
	};
	static const struct field fields[] = {
		{ "containerID", JSON_INT, offsetof(struct mapping, container), 0, UINT32_MAX },
		{ "hostID", JSON_INT, offsetof(struct mapping, host), 0, UINT32_MAX },
		{ "size", JSON_INT, offsetof(struct mapping, size), 0, UINT32_MAX },
	};
	const struct json *element;
	int r = find_objects(doc, "linux.uidMappings", &element);

	if (r < 0)
		return r;
	for (; element; element = element->next) {
		struct mapping mapping = { 0 };

		r = read_fields(doc, element, fields, ARRAY_LEN(fields), &mapping);
		if (r < 0)
			return r;
		if (mapping.container == 0 && mapping.size > 0 && !config->has_uid_mapping) {
			config->has_uid_mapping = true;
			config->host_uid = (uint32_t) mapping.host;
		}
	}
	return 0;
}

int oci_config_parse(struct arena *a, const char *text, size_t len, struct oci_config *ret_config, struct error *err)
{
#define AT(member) offsetof(struct oci_config, member)
	static const struct field fields[] = {
		{ "linux.cgroupsPath", JSON_STRING, AT(cgroups_path), 0, 0 },
		{ "linux.resources.cpu.cpus", JSON_STRING, AT(cpus), 0, 0 },
		{ "linux.resources.cpu.mems", JSON_STRING, AT(mems), 0, 0 },
		{ "linux.resources.cpu.quota", JSON_INT, AT(cpu_quota), INT64_MIN, INT64_MAX },
		{ "linux.resources.cpu.period", JSON_INT, AT(cpu_period), 0, INT64_MAX },
		{ "linux.resources.cpu.shares", JSON_INT, AT(cpu_shares), 0, INT64_MAX },
		{ "linux.resources.memory.limit", JSON_INT, AT(memory_limit), INT64_MIN, INT64_MAX },
		{ "linux.memoryPolicy.mode", JSON_STRING, AT(memory_policy), 0, 0 },
		{ "linux.memoryPolicy.nodes", JSON_STRING, AT(memory_policy_nodes), 0, 0 },
	};
#undef AT
	struct document doc = { .arena = a, .name = "config.json", .err = err };
	struct oci_config config = { 0 };
	int r = open_document(&doc, text, len, &config_limits);

	if (r < 0)
		return r;
	r = read_fields(&doc, doc.root, fields, ARRAY_LEN(fields), &config);
	if (r < 0)
		return r;
	r = read_namespaces(&doc, &config);
	if (r < 0)
		return r;
	r = read_uid_mappings(&doc, &config);
	if (r < 0)
		return r;
	r = read_annotations(&doc, &config.annotations);
	if (r < 0)
		return r;
	*ret_config = config;
	return 0;
}
