/*
 * Machines of many makes, and where the engine puts the same containers on each. What it says is compared with
 * tests/fixtures/plans/NAME.txt; UPDATE=1 writes those anew.
 */
#include "place_world.h"
#include "roots.h"
#include "topology_check.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define PLANS "tests/fixtures/plans"
#define MIB (UINT64_C(1) << 20)
#define ROOTS "tests/fixtures/roots"

static const char policy_text[] =
	"{ \"version\": 1,"
	"  \"classes\": {"
	"    \"web\": { \"isolation\": { \"mode\": \"cookie\" },"
	"      \"cpu\": { \"span\": \"node\", \"placement\": \"pack\" } },"
	"    \"batch\": { \"isolation\": { \"mode\": \"cookie\" },"
	"      \"cpu\": { \"placement\": \"spread\", \"level\": \"llc\" },"
	"      \"memory\": { \"policy\": \"weighted-interleave\", \"tiers\": [ \"dram\", \"cxl\" ] } },"
	"    \"db\": { \"isolation\": { \"mode\": \"cores\" }, \"cpu\": { \"exclusive\": true },"
	"      \"memory\": { \"policy\": \"bind\", \"tiers\": [ \"dram\" ] } },"
	"    \"vault\": { \"isolation\": { \"mode\": \"cores\" }, \"cpu\": { \"span\": \"llc\" } },"
	"    \"infra\": { \"isolation\": { \"mode\": \"none\" },"
	"      \"cpu\": { \"placement\": \"pack\", \"span\": \"llc\" } } },"
	"  \"rules\": [ { \"match\": {}, \"tenant\": \"${id}\", \"class\": \"web\" } ] }";

static const struct {
	const char *id, *tenant, *class;
	unsigned mcpu;
	uint64_t memory;
} containers[] = {
	{ "web-1", "acme", "web", 2000, 128 * MIB }, { "web-2", "beta", "web", 2000, 256 * MIB },
	{ "batch-1", "lab", "batch", 4000, 0 },      { "db-1", "bank", "db", 2000, 512 * MIB },
	{ "infra-1", "system", "infra", 500, 0 },    { "vault-1", "gamma", "vault", 1500, 64 * MIB },
	{ "web-3", "acme", "web", 6000, 1024 * MIB },
};

/* What a plan leaves behind for those that come after it. */
struct placed {
	struct occupant occupants[ARRAY_LEN(containers)];
	struct mask cpus[ARRAY_LEN(containers)], wishes[ARRAY_LEN(containers)];
	size_t n;
};

static const struct policy_class *class_of(const struct policy *p, const char *name)
{
	for (size_t i = 0; i < p->n_classes; i++)
		if (str_eq(p->classes[i]->name, name))
			return p->classes[i];
	fail_msg("no class %s", name);
	return NULL;
}

static void check_plan(const char *name, const struct topology *t, const struct plan *p, const struct placed *there,
		       const char *group)
{
	check(!p->set_cpus || !mask_empty(&p->cpus));
	check(mask_subset(&p->cpus, &t->online));
	check((p->mems & ~t->memory_nodes) == 0 && (p->memory_nodes & ~t->memory_nodes) == 0);
	for (size_t i = 0; i < there->n; i++) {
		struct mask theirs, mine;

		topology_whole_cores(t, &there->cpus[i], &theirs);
		topology_whole_cores(t, &p->cpus, &mine);
		if ((plan_owns(p) || occupant_owns(&there->occupants[i])) &&
		    (p->exclusive || there->occupants[i].exclusive || !str_eq(group, there->occupants[i].group)))
			check(!mask_intersects(&theirs, &mine));
	}
}

static void settle(struct placed *there, const struct plan *p)
{
	for (size_t i = 0; i < p->n_adjusts; i++)
		for (size_t k = 0; k < there->n; k++)
			if (str_eq(p->adjusts[i].id, there->occupants[k].id))
				there->cpus[k] = p->adjusts[i].cpus;
}

static void remember(struct placed *there, const struct plan *p, size_t i)
{
	const size_t at = there->n++;

	there->cpus[at] = p->cpus;
	there->wishes[at] = p->wish;
	there->occupants[at] = (struct occupant){
		.id = containers[i].id,
		.group = containers[i].tenant,
		.mechanism = p->mechanism,
		.exclusive = p->exclusive,
		.bound = p->bound,
		.weights = p->set_weights,
		.streams = p->streams,
		.mcpu = p->mcpu,
		.memory = p->memory,
		.mems = p->memory_nodes,
		.cpus = &there->cpus[at],
		.wish = &there->wishes[at],
	};
}

static void place_one(const char *name, const struct topology *t, const struct policy *policy, struct placed *there,
		      size_t i, FILE *out)
{
	const struct place_facts facts = {
		.topo = t,
		.policy = policy,
		.class = class_of(policy, containers[i].class),
		.id = containers[i].id,
		.tenant = containers[i].tenant,
		.group = containers[i].tenant,
		.allowed_cpus = t->online,
		.allowed_mems = t->memory_nodes,
		.mcpu = containers[i].mcpu,
		.memory = containers[i].memory,
		.can_cpuset = true,
		.can_weighted = true,
		.coresched = t->smt > 1 ? CORESCHED_SUPPORTED : CORESCHED_NO_SIBLINGS,
		.occupants = there->occupants,
		.n_occupants = there->n,
	};
	cleanup_plan struct plan *p = NULL;
	cleanup_error struct error err = { 0 };
	cleanup_free char *text = NULL;

	fprintf(out, "\n== %s: tenant %s, class %s, %u mCPU, %llu MiB\n", containers[i].id, containers[i].tenant,
		containers[i].class, containers[i].mcpu, (unsigned long long) (containers[i].memory / MIB));
	if (plan_place(&facts, &p, &err) < 0) {
		fprintf(out, "refused: %s\n", error_text(&err));
		return;
	}
	text = plan_explain(p, &facts);
	assert_non_null(text);
	fprintf(out, "%s", text);
	settle(there, p);
	check_plan(name, t, p, there, containers[i].tenant);
	remember(there, p, i);
}

static void describe(const struct topology *t, FILE *out)
{
	cleanup_free char *online = mask_format(&t->online);

	fprintf(out, "CPUs %s: %u packages, %u caches, %u cores of at most %u threads\n", online, t->n_packages,
		t->n_llcs, t->n_cores, t->smt);
	for (size_t i = 0; i < t->n_nodes; i++) {
		const struct topo_node *node = &t->nodes[i];
		cleanup_free char *initiators = nodemask_format(node->initiators), *cpus = NULL;
		struct mask own = { 0 };

		for (size_t k = 0; k < t->n_cpus; k++)
			if (t->cpus[k].node == node->id)
				mask_set(&own, t->cpus[k].id);
		cpus = mask_format(&own);
		fprintf(out, "node %u: %s, package %u, %llu MiB, %u MB/s, %u ns, initiators \"%s\", CPUs \"%s\", "
			     "distances", node->id, memory_tier_name(node->tier), node->package,
			(unsigned long long) (node->memory >> 20), node->read_bandwidth, node->read_latency, initiators,
			cpus);
		for (size_t k = 0; k < t->n_nodes; k++)
			fprintf(out, " %u", topology_distance(t, node->id, t->nodes[k].id));
		fputc('\n', out);
	}
}

static char *plans_for(const char *name, const struct topology *t)
{
	const struct policy_source source = { "policy.json", policy_text, strlen(policy_text) };
	cleanup_policy struct policy *policy = NULL;
	cleanup_error struct error err = { 0 };
	struct placed there = { .n = 0 };
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	if (policy_parse(&source, 1, &policy, &err) < 0)
		fail_msg("%s", error_text(&err));
	describe(t, out);
	for (size_t i = 0; i < ARRAY_LEN(containers); i++)
		place_one(name, t, policy, &there, i, out);
	assert_int_equal(fclose(out), 0);
	return text;
}

/* ---- golden plans ---- */

static void show_difference(const char *path, const char *text)
{
	char *root = tree_new();
	cleanup_free char *command = NULL, *line = NULL;
	size_t room = 0;
	FILE *diff;

	tree_file(root, "/plans", text);
	assert_true(asprintf(&command, "diff -u '%s' '%s/plans'", path, root) > 0);
	diff = popen(command, "re");
	assert_non_null(diff);
	while (getline(&line, &room, diff) > 0)
		print_message("# %s", line);
	pclose(diff);
	tree_free(root);
}

static bool same_plans(const char *name, const struct topology *t)
{
	cleanup_free char *path = NULL, *text = plans_for(name, t), *golden = NULL;
	const char *update = getenv("UPDATE");

	assert_true(asprintf(&path, "/%s.txt", name) > 0);
	if (update && str_eq(update, "1")) {
		tree_file(PLANS, path, text);
		return true;
	}
	free(TAKE_PTR(path));
	assert_true(asprintf(&path, PLANS "/%s.txt", name) > 0);
	if (access(path, R_OK) < 0) {
		print_message("# %s: is missing; UPDATE=1 writes it\n", path);
		return false;
	}
	golden = tree_read("", path);
	if (str_eq(golden, text))
		return true;
	show_difference(path, text);
	return false;
}

/* ---- machines ---- */

/* Numbered as x86 firmware does: first threads of all cores, then the second ones. */
static const struct {
	const char *name, *description;
} seeds[] = {
	{ "s1-nps1", "pack:2 [numa(memory=256GiB)] l3:8 core:8 pu:2(indexes=2*128:1*2)" },
	{ "s1-nps2", "pack:2 numa:2(memory=128GiB) l3:4 core:8 pu:2(indexes=2*128:1*2)" },
	{ "s1-nps4", "pack:2 numa:4(memory=64GiB) l3:2 core:8 pu:2(indexes=2*128:1*2)" },
	{ "s2-80-cpus", "pack:2 [numa(memory=128GiB)] l3:1 core:20 pu:2(indexes=2*40:1*2)" },
	{ "s2-eight-nodes", "pack:2 numa:4(memory=16GiB) l3:2 core:2 pu:2(indexes=2*32:1*2)" },
	{ "s3-cxl", "pack:1 [numa(memory=128GiB)] [numa(memory=96GiB)] l3:1 core:28 pu:2(indexes=2*28:1*2)" },
	{ "s4-four-nodes", "pack:2 numa:2(memory=96GiB) l3:1 core:24 pu:2(indexes=2*96:1*2)" },
	{ "s5-two-by-six", "pack:2 [numa(memory=16GiB)] l3:1 core:6 pu:2(indexes=2*12:1*2)" },
	{ "one-cpu", "pack:1 [numa(memory=2GiB)] pu:1" },
	{ "smt8", "pack:2 [numa(memory=128GiB)] l3:4 core:2 pu:8" },
};

static void test_seeds(void **state)
{
	size_t differ = 0;

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(seeds); i++) {
		cleanup_topology struct topology *t = NULL;
		cleanup_error struct error err = { 0 };

		if (topology_from_synthetic(seeds[i].description, &t, &err) < 0)
			fail_msg("%s: %s", seeds[i].name, error_text(&err));
		topology_check(seeds[i].name, t);
		differ += !same_plans(seeds[i].name, t);
	}
	assert_int_equal(differ, 0);
}

static int has_suffix(const struct dirent *entry, const char *suffix)
{
	const size_t len = strlen(entry->d_name), end = strlen(suffix);

	return len > end && str_eq(entry->d_name + len - end, suffix);
}

static int is_xml(const struct dirent *entry)
{
	return has_suffix(entry, ".xml");
}

static int is_root(const struct dirent *entry)
{
	return has_suffix(entry, ".root");
}

static bool test_file(const char *dir, const char *file, bool root)
{
	cleanup_topology struct topology *t = NULL;
	cleanup_free char *path = NULL, *name = strndup(file, (size_t) (strrchr(file, '.') - file));
	cleanup_error struct error err = { 0 };

	assert_non_null(name);
	assert_true(asprintf(&path, "%s/%s", dir, file) > 0);
	if (root) {
		char *tree = tree_new();

		root_unpack(tree, path);
		t = root_topology(tree);
		tree_free(tree);
	} else if (topology_from_file(path, &t, &err) < 0) {
		/* Larger than our masks. */
		print_message("# %s\n", error_text(&err));
		assert_non_null(strstr(error_text(&err), "cotenant knows"));
		return true;
	}
	topology_check(name, t);
	return same_plans(name, t);
}

/* How many there are. */
static size_t test_directory(const char *dir, bool roots)
{
	struct dirent **found = NULL;
	int n = scandir(dir, &found, roots ? is_root : is_xml, alphasort);
	size_t differ = 0;

	for (int i = 0; i < n; i++) {
		differ += !test_file(dir, found[i]->d_name, roots);
		free(found[i]);
	}
	free(found);
	assert_int_equal(differ, 0);
	return n > 0 ? (size_t) n : 0;
}

static void test_roots(void **state)
{
	(void) state;
	assert_true(test_directory(ROOTS, true) > 0);
}

static void test_files(void **state)
{
	const char *dir = getenv("COTENANT_TOPOLOGIES");

	(void) state;
	dir = dir ? dir : "../shared/topologies";
	/* They are no part of this tree. */
	if (!test_directory(dir, false))
		print_message("# no lstopo files in %s (COTENANT_TOPOLOGIES names their directory)\n", dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_seeds),
		cmocka_unit_test(test_roots),
		cmocka_unit_test(test_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
