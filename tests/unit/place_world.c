#include "place_world.h"
#include "../../policy/policy_keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

/* Two packages of one node, two caches of four cores each, two threads: node 0 is CPUs 0-7 and 16-23. Node 2 is CXL. */
static const struct machine two_sockets = {
	.packages = 2,
	.nodes = 1,
	.llcs = 2,
	.cores = 4,
	.smt = 2,
	.slow_nodes = 1,
	.memory = 64 * GIB,
};

void add_group(struct world *w, const char *id, const char *group, enum mechanism mechanism, const char *cpus,
	       unsigned mcpu)
{
	size_t n = w->facts.n_occupants++;

	w->sets[n] = cpus_of(cpus);
	w->occupants[n] = (struct occupant){
		.id = id,
		.group = group,
		.mechanism = mechanism,
		.mcpu = mcpu,
		.cpus = &w->sets[n],
		.wish = &w->sets[n],
	};
}

void add(struct world *w, const char *id, enum mechanism mechanism, const char *cpus, unsigned mcpu)
{
	add_group(w, id, id, mechanism, cpus, mcpu);
}

int world_setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	if (!w)
		return -1;
	w->topo = machine_topology(&two_sockets);
	w->class.name = "web";
	policy_key_defaults(SECTION_MODEL, SECTION_MODEL, &w->policy);
	w->facts = (struct place_facts){
		.topo = w->topo,
		.policy = &w->policy,
		.class = &w->class,
		.id = "new",
		.tenant = "acme",
		.group = "acme",
		.allowed_cpus = w->topo->online,
		.allowed_mems = 7,
		.can_cpuset = true,
		.can_weighted = true,
		.occupants = w->occupants,
		.mcpu = 2000,
	};
	*state = w;
	return 0;
}

static void forget(struct world *w)
{
	plan_free(w->plan);
	w->plan = NULL;
	error_done(&w->err);
}

int world_teardown(void **state)
{
	struct world *w = *state;

	forget(w);
	topology_free(w->topo);
	free(w);
	return 0;
}

static int place(struct world *w)
{
	forget(w);
	return plan_place(&w->facts, &w->plan, &w->err);
}

void placed(struct world *w)
{
	if (place(w) < 0)
		fail_msg("%s", error_text(&w->err));
}

void refused(struct world *w, int code, const char *words)
{
	int r = place(w);

	if (r != -code || !w->err.text || !strstr(w->err.text, words))
		fail_msg("%d, \"%s\"; expected %d with \"%s\"", r, error_text(&w->err), -code, words);
	assert_null(w->plan);
}

void has_cpus(const struct mask *m, const char *list)
{
	cleanup_free char *text = mask_format(m);

	assert_string_equal(text, list);
}

void has_reason(const struct world *w, const char *words)
{
	for (size_t i = 0; i < w->plan->n_reasons; i++)
		if (strstr(w->plan->reasons[i], words))
			return;
	fail_msg("no reason says \"%s\"", words);
}
