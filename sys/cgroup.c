#include "discover.h"

#include <errno.h>
#include <libcgroup.h>

#define MOUNTINFO_MAX (4u << 20)

static bool list_has(const char *list, const char *word, const char *separators)
{
	size_t len = strlen(word);

	while (*list) {
		size_t n = strcspn(list, separators);

		if (n == len && memcmp(list, word, len) == 0)
			return true;
		list += n + (list[n] != '\0');
	}
	return false;
}

/* Fields of one mountinfo line that matter here: proc_pid_mountinfo(5). */
struct mount {
	const char *root, *point, *type, *options;
};

/* Cuts the line into its fields. The optional ones end at a lone "-". */
static bool mount_parse(char *line, struct mount *ret)
{
	char *save = NULL, *word = strtok_r(line, " ", &save);
	unsigned field = 0, tail = 0;

	*ret = (struct mount){ 0 };
	for (; word; word = strtok_r(NULL, " ", &save)) {
		if (!tail && field == 3)
			ret->root = word;
		else if (!tail && field == 4)
			ret->point = word;
		else if (!tail && field > 5 && str_eq(word, "-"))
			tail = field;
		else if (tail && field == tail + 1)
			ret->type = word;
		else if (tail && field == tail + 3)
			ret->options = word;
		field++;
	}
	/* Other roots show a part of the hierarchy, in which the paths of /proc/PID/cgroup do not resolve. */
	return ret->options && str_eq(ret->root, "/");
}

static bool unified_has_cpuset(const struct sys *s, const char *mount)
{
	cleanup_free char *controllers = NULL;

	return file_readf(s, &controllers, "%s/cgroup.controllers", mount) == 0 &&
	       list_has(controllers, "cpuset", " \n");
}

static int take_mount(char **slot, const char *point)
{
	if (*slot)
		return 0;
	*slot = strdup(point);
	return *slot ? 0 : -ENOMEM;
}

static int from_mountinfo(const struct sys *s, struct cgroup_layout *c)
{
	cleanup_free char *text = NULL;
	char *line, *save = NULL;
	int r = file_read(s, "/proc/self/mountinfo", MOUNTINFO_MAX, &text, NULL);

	if (r < 0)
		return r;
	for (line = strtok_r(text, "\n", &save); line && r == 0; line = strtok_r(NULL, "\n", &save)) {
		struct mount m;

		if (!mount_parse(line, &m))
			continue;
		if (str_eq(m.type, "cgroup2"))
			r = take_mount(&c->unified_mount, m.point);
		else if (str_eq(m.type, "cgroup") && list_has(m.options, "cpuset", ","))
			r = take_mount(&c->cpuset_mount, m.point);
	}
	if (r == 0 && !c->cpuset_mount && c->unified_mount && unified_has_cpuset(s, c->unified_mount)) {
		r = take_mount(&c->cpuset_mount, c->unified_mount);
		c->cpuset_v2 = true;
	}
	return r;
}

/* libcgroup's word on the cpuset controller. Where it has none, what mountinfo says stands. */
static void from_libcgroup(struct cgroup_layout *c)
{
	char *mount = NULL;

	cgroup_set_logger(NULL, CGROUP_LOG_ERROR, NULL); /* the default one writes to stdout */
	if (cgroup_init() != 0 || cgroup_get_subsys_mount_point("cpuset", &mount) != 0)
		return;
	free(c->cpuset_mount);
	c->cpuset_mount = mount;
	c->cpuset_v2 = c->unified_mount && str_eq(mount, c->unified_mount);
}

/*
 * libcgroup knows controllers, not hierarchies: in the hybrid layout the unified mount has no controller and it cannot
 * name it, and it reads this machine only. Hence mountinfo beside it.
 */
int cgroup_discover(const struct sys *s, struct cgroup_layout *ret, struct error *err)
{
	cleanup_with(cgroup_layout_done) struct cgroup_layout c = { 0 };
	int r = from_mountinfo(s, &c);

	if (r == -ENOENT && !s->acting)
		r = 0;
	if (r < 0)
		return error_set(err, -r, "/proc/self/mountinfo: %s: the cgroup mounts cannot be found", strerror(-r));
	if (s->acting)
		from_libcgroup(&c);
	*ret = c;
	c = (struct cgroup_layout){ 0 };
	return 0;
}
