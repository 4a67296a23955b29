/*
 * Random machines, random containers coming and going. What must hold whatever the engine finds best is checked here
 * by the plainest means, pair by pair, and not by the engine's own sets.
 */
#include "machine.h"
#include "plan.h"
#include "../../policy/policy_keys.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#define MACHINES 150
#define STEPS 60
#define RESIDENTS 24
#define GROUPS 6

static const char *const groups[GROUPS] = { "a", "b", "c", "d", "e", "f" };

struct resident {
	char id[16];
	const char *group;
	struct mask cpus, wish, whole;
	struct occupant view; /* points into this */
};

struct world {
	uint64_t random;
	struct topology *topo;
	struct policy policy;
	struct resident *residents[RESIDENTS];
	size_t n;
	unsigned born;
	/* so that the test is known to have seen what it is for */
	unsigned placed, refused, owners, pushed, regained;
};

static void new_machine(struct world *w)
{
	const struct machine m = {
		.packages = 1 + (unsigned) draw(&w->random, 2),
		.nodes = 1 + (unsigned) draw(&w->random, 2),
		.llcs = 1 + (unsigned) draw(&w->random, 3),
		.cores = 1 + (unsigned) draw(&w->random, 4),
		.smt = 1 + (unsigned) draw(&w->random, 3),
		.slow_nodes = (unsigned) draw(&w->random, 3),
		.memory = UINT64_C(16) << 30,
	};
	struct mask offline;

	w->topo = machine_topology(&m);
	if (draw(&w->random, 3) == 0) {
		offline = draw_cpus(&w->random, w->topo, 10);
		mask_clear(&offline, 0);
		machine_offline(w->topo, &offline);
	}
	w->policy = (struct policy){ 0 };
	policy_key_defaults(SECTION_MODEL, SECTION_MODEL, &w->policy);
	if (draw(&w->random, 2) == 0)
		w->policy.node.reserved = draw_cpus(&w->random, w->topo, 12);
	w->policy.node.weights_mode = (enum weights_mode) draw(&w->random, 3);
	w->policy.node.weights.tier[TIER_DRAM] = 3;
	if (draw(&w->random, 4) == 0 && w->topo->n_nodes > 1) {
		w->topo->nodes[0].memory = 0;
		w->topo->memory_nodes &= ~UINT64_C(1);
	}
}

static struct policy_class draw_class(struct world *w)
{
	static const enum isolation_mode modes[] = { ISOLATION_NONE, ISOLATION_COOKIE, ISOLATION_COOKIE,
						     ISOLATION_CORES, ISOLATION_AUTO };
	struct policy_class c = { .name = "class" };

	c.isolation.mode = modes[draw(&w->random, ARRAY_LEN(modes))];
	c.isolation.on_unsupported = (enum on_unsupported) draw(&w->random, 3);
	c.isolation.guard = (unsigned) draw(&w->random, 8);
	c.cpu.span = (enum cpu_span) draw(&w->random, 5);
	c.cpu.placement = (enum cpu_placement) draw(&w->random, 3);
	c.cpu.level = (enum cpu_level) draw(&w->random, 4);
	c.cpu.exclusive = draw(&w->random, 6) == 0;
	c.cpu.smt = draw(&w->random, 4) ? SMT_USE : SMT_LEAVE_IDLE;
	c.cpu.count_mcpu = (unsigned) draw(&w->random, 3) * 1500;
	c.memory.policy = (enum memory_policy) draw(&w->random, 6);
	c.memory.n_tiers = draw(&w->random, 3);
	c.memory.tiers[0] = TIER_CXL;
	c.memory.tiers[1] = TIER_DRAM;
	c.memory.nodes = draw(&w->random, 4) ? 0 : 1 + draw(&w->random, 15);
	c.memory.has_weights = draw(&w->random, 2);
	return c;
}

static struct place_facts draw_facts(struct world *w, const struct policy_class *class, const char *id,
				     const char *group)
{
	struct place_facts f = { .topo = w->topo,
				 .policy = &w->policy,
				 .class = class,
				 .id = id,
				 .tenant = group,
				 .group = group,
				 .allowed_cpus = w->topo->online,
				 .allowed_mems = w->topo->memory_nodes };

	if (draw(&w->random, 4) == 0) {
		f.allowed_cpus = draw_cpus(&w->random, w->topo, 2);
		/* Mostly whole cores, or `cores` could never be had. */
		if (draw(&w->random, 3))
			topology_whole_cores(w->topo, &f.allowed_cpus, &f.allowed_cpus);
		f.cpus_given = draw(&w->random, 2);
	}
	if (draw(&w->random, 6) == 0) {
		f.allowed_mems &= 1 + draw(&w->random, 15);
		f.mems_given = draw(&w->random, 2);
	}
	f.mcpu = (unsigned) draw(&w->random, 8) * 750;
	f.mcpu_is_limit = draw(&w->random, 2);
	f.memory = draw(&w->random, 3) * (UINT64_C(5) << 30);
	f.spec_memory_policy = draw(&w->random, 8) == 0;
	f.can_cpuset = draw(&w->random, 12) != 0;
	f.can_weighted = draw(&w->random, 2);
	f.coresched = draw(&w->random, 2) ? CORESCHED_SUPPORTED : (enum coresched_support) draw(&w->random, 5);
	return f;
}

static size_t views(const struct world *w, struct occupant *ret)
{
	for (size_t i = 0; i < w->n; i++)
		ret[i] = w->residents[i]->view;
	return w->n;
}

static struct resident *find(struct world *w, const char *id)
{
	for (size_t i = 0; i < w->n; i++)
		if (str_eq(w->residents[i]->id, id))
			return w->residents[i];
	fail_msg("adjusts unknown container %s", id);
	abort();
}

static bool owns(const struct resident *r)
{
	return r->view.mechanism == MECHANISM_CORES || r->view.exclusive;
}

static void apply_adjusts(struct world *w, const struct plan_adjust *adjusts, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct resident *r = find(w, adjusts[i].id);

		assert_false(owns(r));
		assert_false(mask_empty(&adjusts[i].cpus));
		assert_true(mask_subset(&adjusts[i].cpus, &r->wish));
		if (r->view.bound)
			assert_true(mask_subset(&r->cpus, &adjusts[i].cpus));
		if (mask_subset(&r->cpus, &adjusts[i].cpus))
			w->regained++;
		else
			w->pushed++;
		r->cpus = adjusts[i].cpus;
		topology_whole_cores(w->topo, &r->cpus, &r->whole);
	}
}

/* Whether the first owns cores that the second must keep off. */
static bool parts(const struct resident *owner, const struct resident *other)
{
	return owner != other && (owner->view.exclusive ||
				  (owner->view.mechanism == MECHANISM_CORES && !str_eq(owner->group, other->group)));
}

static void check_everybody(struct world *w)
{
	for (size_t i = 0; i < w->n; i++) {
		struct resident *r = w->residents[i];
		struct mask expected = r->wish;

		mask_and(&expected, &w->topo->online);
		for (size_t k = 0; k < w->n; k++) {
			if (!parts(w->residents[k], r))
				continue;
			if (mask_intersects(&r->whole, &w->residents[k]->whole))
				fail_msg("%s shares a core with %s, which owns it", r->id, w->residents[k]->id);
			mask_andnot(&expected, &w->residents[k]->whole);
		}
		/* Nobody has less than the owners' presence explains, and nobody more than its wish. */
		if (!mask_equal(&expected, &r->cpus)) {
			cleanup_free char *want = mask_format(&expected), *have = mask_format(&r->cpus);

			fail_msg("%s has CPUs %s in place of %s", r->id, have, want);
		}
	}
}

static char *plan_text(const struct plan *p)
{
	cleanup_json_writer struct json_writer *w = json_writer_new(true);
	char *text;
	size_t len;

	json_open_object(w, NULL);
	plan_write(w, p);
	json_close(w);
	assert_int_equal(json_writer_take(w, &text, &len), 0);
	return text;
}

static struct plan *reread(const char *text)
{
	static const struct json_limits limits = { .max_bytes = 1 << 20, .max_values = 1 << 16, .max_depth = 8 };
	cleanup_arena struct arena arena = { 0 };
	cleanup_error struct error err = { 0 };
	const struct json *root;
	struct plan *p;

	assert_int_equal(json_parse(&arena, "plan", text, strlen(text), 0, &limits, &root, &err), 0);
	if (plan_read(root, &p, &err) < 0)
		fail_msg("%s\n%s", error_text(&err), text);
	return p;
}

/* The same facts give the same plan, and a plan is the same after it was written and read. */
static void check_stable(const struct place_facts *f, const struct plan *p)
{
	cleanup_free char *text = plan_text(p), *again = NULL, *back = NULL;
	cleanup_plan struct plan *second = NULL, *read = reread(text);

	assert_int_equal(plan_place(f, &second, NULL), 0);
	again = plan_text(second);
	assert_string_equal(text, again);
	back = plan_text(read);
	assert_string_equal(text, back);
}

static void check_plan(const struct place_facts *f, const struct plan *p)
{
	assert_false(mask_empty(&p->cpus));
	assert_true(mask_subset(&p->cpus, &f->topo->online));
	assert_true(mask_subset(&p->cpus, &f->allowed_cpus));
	assert_true(mask_subset(&p->cpus, &p->wish));
	if (f->can_cpuset)
		assert_false(mask_intersects(&p->cpus, &f->policy->node.reserved));
	assert_true((p->mems & ~f->topo->memory_nodes) == 0);
	assert_true((p->memory_nodes & ~f->topo->memory_nodes) == 0);
	if (f->allowed_mems)
		assert_true(((p->mems | p->memory_nodes) & ~f->allowed_mems) == 0);
	assert_true((p->memory_nodes & ~p->mems) == 0);
	assert_true(p->memory_policy == MEMORY_INHERIT || p->memory_policy == MEMORY_LOCAL || p->memory_nodes);
	if (!f->can_cpuset)
		assert_false(p->set_cpus || p->set_mems || p->mechanism == MECHANISM_CORES || p->exclusive);
	if (f->class->isolation.mode != ISOLATION_NONE && p->mechanism == MECHANISM_NONE)
		assert_true(p->degraded);
	if (p->degraded)
		assert_true(p->n_reasons > 0);
}

static void settle(struct world *w, const struct place_facts *f, const struct plan *p)
{
	struct resident *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	snprintf(r->id, sizeof(r->id), "%s", f->id);
	r->group = f->group;
	r->cpus = p->cpus;
	r->wish = p->wish;
	topology_whole_cores(w->topo, &r->cpus, &r->whole);
	r->view = (struct occupant){
		.id = r->id,
		.group = r->group,
		.mechanism = p->mechanism,
		.exclusive = p->exclusive,
		.bound = p->bound,
		.mcpu = p->mcpu,
		.memory = p->memory,
		.mems = p->memory_nodes,
		.cpus = &r->cpus,
		.wish = &r->wish,
	};
	w->residents[w->n++] = r;
	w->owners += owns(r);
}

static void arrive(struct world *w)
{
	struct policy_class class = draw_class(w);
	struct occupant occupants[RESIDENTS];
	cleanup_error struct error err = { 0 };
	cleanup_plan struct plan *p = NULL;
	struct place_facts f;
	char id[16];
	int r;

	snprintf(id, sizeof(id), "c%u", w->born++);
	f = draw_facts(w, &class, id, groups[draw(&w->random, GROUPS)]);
	f.occupants = occupants;
	f.n_occupants = views(w, occupants);
	r = plan_place(&f, &p, &err);
	if (r < 0) {
		assert_null(p);
		assert_true(r == -EOPNOTSUPP || r == -ENOSPC || r == -EINVAL);
		assert_non_null(err.text);
		w->refused++;
		return;
	}
	w->placed++;
	check_plan(&f, p);
	check_stable(&f, p);
	cleanup_free char *text = plan_explain(p, &f);

	assert_non_null(text);
	apply_adjusts(w, p->adjusts, p->n_adjusts);
	settle(w, &f, p);
}

static void depart(struct world *w, size_t who)
{
	struct occupant occupants[RESIDENTS];
	struct plan_adjust *adjusts;
	size_t n, n_adjusts;

	free(w->residents[who]);
	w->residents[who] = w->residents[--w->n];
	n = views(w, occupants);
	assert_int_equal(plan_neighbours(w->topo, occupants, n, &adjusts, &n_adjusts), 0);
	apply_adjusts(w, adjusts, n_adjusts);
	plan_adjusts_free(adjusts, n_adjusts);
}

static void live(struct world *w)
{
	new_machine(w);
	for (unsigned step = 0; step < STEPS; step++) {
		if (w->n == RESIDENTS || (w->n && draw(&w->random, 3) == 0))
			depart(w, draw(&w->random, w->n));
		else
			arrive(w);
		check_everybody(w);
	}
	while (w->n) {
		depart(w, draw(&w->random, w->n));
		check_everybody(w);
	}
	topology_free(w->topo);
	w->topo = NULL;
}

static void test_invariants(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	(void) state;
	assert_non_null(w);
	for (uint64_t seed = 1; seed <= MACHINES; seed++) {
		w->random = seed * UINT64_C(0x9e3779b97f4a7c15);
		live(w);
	}
	print_message("placed %u (%u owners), refused %u, pushed aside %u, regained %u\n", w->placed, w->owners,
		      w->refused, w->pushed, w->regained);
	assert_true(w->placed > 1000 && w->owners > 100 && w->pushed > 100 && w->regained > 100);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_invariants) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
