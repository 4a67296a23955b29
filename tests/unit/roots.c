#include "roots.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define CPUS "/sys/devices/system/cpu"
#define NODES "/sys/devices/system/node"

static void put(const char *root, const char *text, const char *fmt, ...) printf_like(3, 4);
static void put(const char *root, const char *text, const char *fmt, ...)
{
	cleanup_free char *path = NULL;
	va_list args;

	va_start(args, fmt);
	assert_true(vasprintf(&path, fmt, args) > 0);
	va_end(args);
	tree_file(root, path, text);
}

static char *number(long long n)
{
	char *text = NULL;

	assert_true(asprintf(&text, "%lld\n", n) > 0);
	return text;
}

/* "ffffffff,0000000f": the kernel's other format, of which hwloc reads some. */
static char *hex(const struct mask *m)
{
	unsigned words = 1;
	char *text = NULL;

	for (unsigned cpu = mask_next(m, 0); cpu < CPU_MAX; cpu = mask_next(m, cpu + 1))
		words = cpu / 32 + 1;
	for (unsigned i = words; i-- > 0;) {
		cleanup_free char *before = text;

		assert_true(asprintf(&text, "%s%s%08x", before ? before : "", before ? "," : "",
				     (unsigned) (m->w[i / 2] >> (i % 2 * 32))) > 0);
	}
	return text;
}

static char *list(const struct mask *m)
{
	cleanup_free char *text = mask_format(m);
	char *line = NULL;

	assert_non_null(text);
	assert_true(asprintf(&line, "%s\n", text) > 0);
	return line;
}

enum sharing { BY_PACKAGE, BY_CORE, BY_L3 };

static int shared_thing(const struct root_cpu *cpu, enum sharing by)
{
	return by == BY_PACKAGE ? cpu->package : by == BY_CORE ? cpu->core : cpu->l3;
}

static char *sharing(const struct root_cpu *cpus, size_t n, const struct root_cpu *with, enum sharing by)
{
	struct mask shared = { 0 };

	for (size_t i = 0; i < n; i++)
		if (!cpus[i].offline && shared_thing(&cpus[i], by) == shared_thing(with, by))
			mask_set(&shared, cpus[i].id);
	return hex(&shared);
}

static void build_cpu(const char *root, const struct root_cpu *cpus, size_t n, const struct root_cpu *cpu)
{
	cleanup_free char *package = number(cpu->package), *core = number(cpu->core), *khz = number(cpu->mhz * 1000LL);
	cleanup_free char *in_package = sharing(cpus, n, cpu, BY_PACKAGE), *in_core = sharing(cpus, n, cpu, BY_CORE);
	cleanup_free char *in_l3 = sharing(cpus, n, cpu, BY_L3);

	put(root, cpu->offline ? "0\n" : "1\n", CPUS "/cpu%u/online", cpu->id);
	if (cpu->offline)
		return;
	put(root, package, CPUS "/cpu%u/topology/physical_package_id", cpu->id);
	put(root, in_package, CPUS "/cpu%u/topology/package_cpus", cpu->id);
	put(root, core, CPUS "/cpu%u/topology/core_id", cpu->id);
	put(root, in_core, CPUS "/cpu%u/topology/core_cpus", cpu->id);
	if (cpu->mhz)
		put(root, khz, CPUS "/cpu%u/cpufreq/cpuinfo_max_freq", cpu->id);
	if (cpu->l3 < 0)
		return;
	put(root, "3\n", CPUS "/cpu%u/cache/index0/level", cpu->id);
	put(root, "Unified\n", CPUS "/cpu%u/cache/index0/type", cpu->id);
	put(root, "32768K\n", CPUS "/cpu%u/cache/index0/size", cpu->id);
	put(root, in_l3, CPUS "/cpu%u/cache/index0/shared_cpu_map", cpu->id);
}

static void build_node(const char *root, const struct root_cpu *cpus, size_t n, const struct root_node *node)
{
	cleanup_free char *map = NULL, *text = NULL, *meminfo = NULL;
	struct mask mine = { 0 };

	for (size_t i = 0; i < n; i++) {
		if (cpus[i].node != (int) node->id)
			continue;
		if (!cpus[i].offline)
			mask_set(&mine, cpus[i].id);
		/* A link to the CPU's directory, offline or not. */
		cleanup_free char *link = NULL, *target = NULL;

		assert_true(asprintf(&link, NODES "/node%u/cpu%u", node->id, cpus[i].id) > 0);
		assert_true(asprintf(&target, "../../cpu/cpu%u", cpus[i].id) > 0);
		tree_link(root, link, target);
	}
	map = hex(&mine);
	text = list(&mine);
	assert_true(asprintf(&meminfo, "Node %u MemTotal:       %llu kB\n", node->id,
			     (unsigned long long) node->mib * 1024) > 0);
	put(root, map, NODES "/node%u/cpumap", node->id);
	put(root, text, NODES "/node%u/cpulist", node->id);
	put(root, meminfo, NODES "/node%u/meminfo", node->id);
	put(root, node->distances, NODES "/node%u/distance", node->id);
}

void root_build(const char *root, const struct root_cpu *cpus, size_t n_cpus, const struct root_node *nodes,
		size_t n_nodes)
{
	struct mask online = { 0 }, present = { 0 };
	nodemask listed = 0;

	for (size_t i = 0; i < n_cpus; i++) {
		mask_set(&present, cpus[i].id);
		if (!cpus[i].offline)
			mask_set(&online, cpus[i].id);
		build_cpu(root, cpus, n_cpus, &cpus[i]);
	}
	cleanup_free char *online_list = list(&online), *present_list = list(&present), *node_list = NULL;

	put(root, online_list, CPUS "/online");
	put(root, present_list, CPUS "/present");
	put(root, present_list, CPUS "/possible");
	for (size_t i = 0; i < n_nodes; i++) {
		listed |= node_bit(nodes[i].id);
		build_node(root, cpus, n_cpus, &nodes[i]);
	}
	node_list = nodemask_format(listed);
	assert_non_null(node_list);
	if (n_nodes)
		put(root, node_list, NODES "/online");
	else
		put(root, "MemTotal:       1048576 kB\n", "/proc/meminfo");
}

/* ---- captured ones ---- */

static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++)
		if (from[0] == '\\' && from[1] == 'n') {
			*to++ = '\n';
			from++;
		} else {
			*to++ = *from;
		}
	*to = '\0';
}

/* "NAME VALUE" or "NAME -> TARGET" */
static void unpack_line(const char *root, const char *directory, char *line)
{
	cleanup_free char *path = NULL, *text = NULL;
	char *value = strchr(line, ' ');

	assert_non_null(value);
	*value++ = '\0';
	assert_true(asprintf(&path, "%s/%s", directory, line) > 0);
	if (str_starts(value, "-> ")) {
		tree_link(root, path, value + 3);
		return;
	}
	unescape(value);
	assert_true(asprintf(&text, "%s\n", value) > 0);
	tree_file(root, path, text);
}

void root_unpack(const char *root, const char *path)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	cleanup_free char *text = NULL;
	const char *directory = "";
	char *rest = NULL;

	assert_true(fd >= 0);
	assert_int_equal(file_read_fd(fd, 1 << 20, &text, NULL), 0);
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (*line == '#')
			continue;
		if (*line == '\t') {
			unpack_line(root, directory, line + 1);
			continue;
		}
		directory = line;
		tree_dir(root, directory);
	}
}

struct topology *root_topology(const char *root)
{
	cleanup_sys struct sys s = { .root_fd = -1 };
	cleanup_facts struct facts facts = { 0 };
	cleanup_error struct error err = { 0 };

	assert_int_equal(sys_open(root, &s, NULL), 0);
	if (facts_discover(&s, root, &facts, &err) < 0)
		fail_msg("%s", error_text(&err));
	return TAKE_PTR(facts.topo);
}
