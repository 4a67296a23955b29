/*
 * The machine's facts as a file: two JSON documents, one a line. The first is the cgroup layout, the second the
 * topology with the key that tells for which machine state both hold.
 */
#include "sys.h"

#include "json.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define CACHE "topology" /* file in the state directory */
#define CACHE_MAX (4u << 20)
#define LIST_MAX (64u << 10)

void cgroup_layout_done(struct cgroup_layout *c)
{
	free(c->cpuset_mount);
	free(c->unified_mount);
	*c = (struct cgroup_layout){ 0 };
}

void facts_done(struct facts *f)
{
	topology_free(f->topo);
	cgroup_layout_done(&f->cgroup);
	f->topo = NULL;
}

/* ---- text ---- */

static const struct json_limits layout_limits = { .max_bytes = 32u << 10, .max_values = 16, .max_depth = 2 };

static int format_layout(const struct cgroup_layout *c, char **ret_text, size_t *ret_len)
{
	cleanup_json_writer struct json_writer *w = json_writer_new(false);

	if (!w)
		return -ENOMEM;
	json_open_object(w, NULL);
	json_string(w, "cpuset_mount", c->cpuset_mount);
	json_bool(w, "cpuset_v2", c->cpuset_v2);
	json_string(w, "unified_mount", c->unified_mount);
	json_close(w);
	return json_writer_take(w, ret_text, ret_len);
}

int facts_format(const struct facts *f, char **ret_text, size_t *ret_len)
{
	cleanup_free char *layout = NULL, *topology = NULL, *text = NULL;
	size_t layout_len = 0, topology_len = 0;
	int r = format_layout(&f->cgroup, &layout, &layout_len);

	if (r == 0)
		r = topology_format(f->topo, &topology, &topology_len);
	if (r < 0)
		return r;
	text = malloc(layout_len + topology_len + 1);
	if (!text)
		return -ENOMEM;
	memcpy(text, layout, layout_len);
	memcpy(text + layout_len, topology, topology_len + 1);
	*ret_text = TAKE_PTR(text);
	*ret_len = layout_len + topology_len;
	return 0;
}

static int parse_mount(const char *name, const struct json *object, const char *key, char **ret, struct error *err)
{
	const struct json *value = json_get(object, key);

	if (!value)
		return 0;
	if (value->type != JSON_STRING || value->string[0] != '/')
		return error_set(err, EINVAL, "%s:%u:%u: \"%s\" must be an absolute path", name, value->line,
				 value->column, key);
	*ret = strdup(value->string);
	return *ret ? 0 : error_no_memory(err);
}

static int parse_layout(const char *name, const char *text, size_t len, struct cgroup_layout *ret, struct error *err)
{
	cleanup_arena struct arena arena = { 0 };
	const struct json *root, *v2;
	int r = json_parse(&arena, name, text, len, 0, &layout_limits, &root, err);

	if (r < 0)
		return r;
	v2 = json_get(root, "cpuset_v2");
	if (!v2 || v2->type != JSON_BOOL)
		return error_set(err, EINVAL, "%s: \"cpuset_v2\" must be true or false", name);
	ret->cpuset_v2 = v2->boolean;
	r = parse_mount(name, root, "cpuset_mount", &ret->cpuset_mount, err);
	return r < 0 ? r : parse_mount(name, root, "unified_mount", &ret->unified_mount, err);
}

int facts_parse(const char *name, const char *text, size_t len, struct facts *ret_facts, struct error *err)
{
	cleanup_facts struct facts f = { 0 };
	const char *end = memchr(text, '\n', len);
	int r;

	if (!end)
		return error_set(err, EINVAL, "%s: two lines are needed, the cgroup layout and the topology", name);
	r = parse_layout(name, text, (size_t) (end - text), &f.cgroup, err);
	if (r < 0)
		return r;
	end++;
	r = topology_parse(name, end, len - (size_t) (end - text), &f.topo, err);
	if (r < 0)
		return r;
	*ret_facts = f;
	f = (struct facts){ 0 };
	return 0;
}

/* ---- key ---- */

static int read_line(const struct sys *s, const char *path, char **ret)
{
	int r = file_read(s, path, LIST_MAX, ret, NULL);

	if (r == 0)
		(*ret)[strcspn(*ret, "\n")] = '\0';
	return r;
}

int facts_key(const struct sys *s, char **ret_key)
{
	cleanup_free char *boot = NULL, *online = NULL, *nodes = NULL;
	int r = read_line(s, "/proc/sys/kernel/random/boot_id", &boot);

	/* SMT switched on or off shows in the online CPUs. */
	if (r == 0)
		r = read_line(s, "/sys/devices/system/cpu/online", &online);
	if (r == 0)
		r = read_line(s, "/sys/devices/system/node/has_memory", &nodes);
	if (r == -ENOENT && online)
		r = 0; /* CONFIG_NUMA is off */
	if (r < 0)
		return r;
	return asprintf(ret_key, "boot %s cpus %s nodes %s", boot, online, nodes ? nodes : "-") < 0 ? -ENOMEM : 0;
}

/* Never equal to a machine's own key, so that a foreign root's facts are never taken for this machine's. */
static int expected_key(const struct sys *s, const char *root, char **ret_key)
{
	if (s->acting)
		return facts_key(s, ret_key);
	return asprintf(ret_key, "root %s", root) < 0 ? -ENOMEM : 0;
}

/* ---- cache ---- */

/* -ESTALE when it is another machine state's, -EPERM when others could have written it. */
static int load_cache(const char *state_dir, const char *key, struct facts *ret_facts, struct error *err)
{
	cleanup_facts struct facts f = { 0 };
	cleanup_free char *path = NULL, *text = NULL;
	cleanup_fd int fd = -1;
	struct stat st;
	size_t len;
	int r;

	if (asprintf(&path, "%s/%s", state_dir, CACHE) < 0) {
		path = NULL;
		return error_no_memory(err);
	}
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set(err, errno, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return error_set(err, EPERM, "%s: others could have written it", path);
	r = file_read_fd(fd, CACHE_MAX, &text, &len);
	if (r < 0)
		return error_set(err, -r, "%s: %s", path, strerror(-r));
	r = facts_parse(path, text, len, &f, err);
	if (r < 0)
		return r;
	if (!f.topo->key || !str_eq(f.topo->key, key))
		return error_set(err, ESTALE, "%s: CPUs or memory came or went while it was made", path);
	*ret_facts = f;
	f = (struct facts){ 0 };
	return 0;
}

static int run_discovery(const struct sys *s, const char *root, const char *state_dir, struct error *err)
{
	cleanup_free char *program = NULL;
	int r = helper_path("cotenant-topology", &program);

	if (r < 0)
		return error_set(err, -r, "cotenant-topology cannot be found: %s", strerror(-r));
	return helper_run(s,
			  (const char *const[]){ program, "--state-dir", state_dir, "--root", s->acting ? "/" : root,
						 "--refresh", NULL },
			  err);
}

/*
 * One hook discovers and the others wait for what it finds: after a boot, containers are started by the dozen. -1 where
 * that cannot be had, and then each looks for itself.
 */
static int lock_discovery(const struct sys *s, const char *state_dir)
{
	const struct timespec pause = { .tv_nsec = 2000000 };
	cleanup_free char *path = NULL;
	cleanup_fd int fd = -1;

	if (asprintf(&path, "%s/" CACHE ".lock", state_dir) < 0) {
		path = NULL;
		return -1;
	}
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if ((errno != EWOULDBLOCK && errno != EINTR) || sys_left_ms(s) == 0)
			return -1;
		ppoll(NULL, 0, &pause, NULL);
	}
	return TAKE_FD(fd);
}

int facts_load(const struct sys *s, const char *root, const char *state_dir, struct facts *ret_facts,
	       struct error *err)
{
	cleanup_free char *key = NULL;
	cleanup_fd int lock = -1;
	int r = expected_key(s, root, &key);

	if (r < 0)
		return error_set(err, -r, "boot id and online CPUs cannot be read: %s", strerror(-r));
	/* Whatever is wrong with the cache, making it anew is the answer. */
	if (s->acting && load_cache(state_dir, key, ret_facts, NULL) == 0)
		return 0;
	if (s->acting)
		lock = lock_discovery(s, state_dir);
	if (lock >= 0 && load_cache(state_dir, key, ret_facts, NULL) == 0)
		return 0;
	r = run_discovery(s, root, state_dir, err);
	if (r == 0 && s->acting) {
		free(TAKE_PTR(key));
		r = facts_key(s, &key);
	}
	if (r == 0)
		r = load_cache(state_dir, key, ret_facts, err);
	return r < 0 ? error_prefix(err, r, "the machine's topology cannot be found out") : 0;
}

void facts_source_done(struct facts_source *source)
{
	facts_done(&source->facts);
}

int facts_get(const struct sys *s, struct facts_source *source, const struct facts **ret_facts, struct error *err)
{
	int r = source->facts.topo ? 0 : facts_load(s, source->root, source->state_dir, &source->facts, err);

	if (r == 0)
		*ret_facts = &source->facts;
	return r;
}
