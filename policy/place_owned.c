/* CPUs of a plan that owns its cores: isolation by cores, or an exclusive container. */
#include "place.h"

#include <errno.h>

/*
 * Neighbours move aside for an owner, but each must keep a CPU of its wish. Puts a core of every one that would not
 * into *keep; returns whether there was any. `cores` are whole.
 */
static bool starves(const struct board *b, const struct fences *fences, const struct mask *cores, struct mask *keep)
{
	bool any = false;

	for (size_t i = 0; i < b->facts->n_occupants; i++) {
		const struct occupant *o = &b->facts->occupants[i];
		struct mask target, core = { 0 };

		if (occupant_owns(o) || !must_part(b->facts, b->plan->exclusive, o))
			continue;
		fences_target(fences, o, &target);
		/* Already empty when its CPUs went offline: nothing to spare it. */
		if (mask_empty(&target) || !mask_subset(&target, cores) || mask_intersects(&target, keep))
			continue;
		mask_set(&core, mask_next(&target, 0));
		topology_whole_cores(b->topo, &core, &core);
		mask_or(keep, &core);
		any = true;
	}
	return any;
}

/* Levels from narrow to wide, and where each span starts and ends among them. */
static const enum cpu_span widening[] = { SPAN_LLC, SPAN_NODE, SPAN_PACKAGE, SPAN_MACHINE };
static const struct {
	unsigned char first, last;
} levels_of_span[] = {
	[SPAN_LLC] = { 0, 0 },
	[SPAN_NODE] = { 1, 1 },
	[SPAN_PACKAGE] = { 1, 2 },
	[SPAN_MACHINE] = { 1, 3 },
	/* As many cores as needed, as near to one another as they are to be had. */
	[SPAN_CORES] = { 1, 3 },
};

/* Unless the class spreads, one last-level cache is better than several. */
static int narrow_to_llc(const struct board *b, struct mask *takable)
{
	cleanup_candidates struct candidates c = { 0 };
	const struct candidate *best;
	struct mask cpus;
	int r;

	if (b->facts->class->cpu.placement == PLACEMENT_SPREAD)
		return 0;
	r = candidates_add(b, SPAN_LLC, takable, &c);
	if (r < 0)
		return r;
	best = candidates_best(b, &c, true);
	if (!best)
		return 0;
	domain_cpus(b->topo, SPAN_LLC, best->domain, &cpus);
	mask_and(takable, &cpus);
	return 0;
}

struct choice {
	struct candidates candidates;
	const struct candidate *best;
	struct mask cpus;
};

/* Picks in the narrowest level that has room. -ENOSPC: *c holds the widest level, without a best one. */
static int pick_in_span(const struct board *b, const struct mask *takable, struct choice *c)
{
	enum cpu_span span = b->facts->class->cpu.span;
	struct mask domain;
	int r;

	c->best = NULL;
	for (unsigned i = levels_of_span[span].first; !c->best && i <= levels_of_span[span].last; i++) {
		candidates_done(&c->candidates);
		r = candidates_add(b, widening[i], takable, &c->candidates);
		if (r < 0)
			return r;
		c->best = candidates_best(b, &c->candidates, true);
	}
	if (!c->best)
		return -ENOSPC;
	domain_cpus(b->topo, c->best->level, c->best->domain, &domain);
	mask_and(&domain, takable);
	r = narrow_to_llc(b, &domain);
	if (r < 0)
		return r;
	return cores_pick(b, &domain, &c->cpus);
}

/* What may be taken, from what disturbs nobody to what is better than not to start. As rank_of() in cores.c. */
enum stage { STAGE_FREE, STAGE_BUSY, STAGE_SHAPED, STAGE_FAMILY };

/* The same, such that no neighbour starves. Every round protects at least one more core, so it ends. */
static int pick_fairly(const struct board *b, const struct fences *fences, enum stage stage, struct choice *c)
{
	struct mask keep = { 0 };

	for (;;) {
		struct mask takable = b->usable, cores;
		int r;

		mask_andnot(&takable, &b->pinned);
		mask_andnot(&takable, &keep);
		if (stage < STAGE_FAMILY)
			mask_andnot(&takable, &b->family);
		if (stage < STAGE_SHAPED)
			mask_andnot(&takable, &b->shaped);
		if (stage < STAGE_BUSY)
			mask_andnot(&takable, &b->busy);
		r = pick_in_span(b, &takable, c);
		if (r < 0)
			return r;
		topology_whole_cores(b->topo, &c->cpus, &cores);
		if (!starves(b, fences, &cores, &keep))
			return 0;
	}
}

static int no_room(const struct board *b, const struct choice *c, struct error *err)
{
	const struct candidate *most = NULL;
	cleanup_free char *name = NULL;

	for (size_t i = 0; i < c->candidates.n; i++)
		if (c->candidates.list[i].present && (!most || c->candidates.list[i].whole > most->whole))
			most = &c->candidates.list[i];
	name = most ? domain_name(most->level, most->domain) : NULL;
	return error_set(err, ENOSPC,
			 "no room for container %s: class \"%s\" wants whole cores for %" CPUS_FMT " CPUs within %s, "
			 "and the most to be had is %" CPUS_FMT " (%s); the rest is reserved, owned by others, or the "
			 "last that a neighbour may run on. Stop a container, ask for fewer CPUs, or widen cpu.span",
			 b->facts->id, b->facts->class->name, CPUS_ARG(b->plan->mcpu),
			 cpu_span_name(b->facts->class->cpu.span), CPUS_ARG(most ? most->whole : 0),
			 name ? name : "the machine");
}

int place_owned(struct board *b, struct error *err)
{
	cleanup_fences struct fences *fences = NULL;
	struct choice c = { 0 };
	bool may_share = b->plan->mechanism == MECHANISM_CORES && !b->plan->exclusive;
	enum stage stage, last = may_share ? STAGE_FAMILY : STAGE_SHAPED;
	int r = fences_new(b->topo, b->facts->occupants, b->facts->n_occupants, NULL, &fences);

	if (r < 0)
		return r;
	r = -ENOSPC;
	for (stage = STAGE_FREE; r == -ENOSPC && stage <= last; stage++)
		r = pick_fairly(b, fences, stage, &c);
	if (r == 0) {
		if (mask_intersects(&c.cpus, &b->family))
			plan_reason(b->plan, "too few free cores: it shares cores with containers of its own group");
		b->plan->cpus = b->plan->wish = c.cpus;
		candidates_report(b, &c.candidates, c.best, true);
		plan_reason(b->plan, "%u %s on whole cores that no other %s gets", mask_weight(&c.cpus),
			    mask_weight(&c.cpus) == 1 ? "CPU" : "CPUs", b->plan->exclusive ? "container" : "tenant");
	} else if (r == -ENOSPC) {
		r = no_room(b, &c, err);
	}
	candidates_done(&c.candidates);
	return r;
}

/* ---- exactly where the OCI spec puts it ---- */

/* Who is on the core of this CPU and cannot be moved; NULL when nobody is. */
static const char *holder_of(const struct board *b, unsigned cpu)
{
	struct mask core = { 0 };

	mask_set(&core, cpu);
	topology_whole_cores(b->topo, &core, &core);
	for (size_t i = 0; i < b->facts->n_occupants; i++) {
		const struct occupant *o = &b->facts->occupants[i];
		bool stays = o->bound || occupant_owns(o);

		if ((must_part(b->facts, b->plan->exclusive || o->exclusive, o)) && stays &&
		    mask_intersects(o->cpus, &core))
			return o->id;
	}
	return NULL;
}

static int check_given_core(const struct board *b, unsigned core, struct error *err)
{
	bool siblings_idle = b->facts->class->cpu.smt == SMT_LEAVE_IDLE;
	unsigned given = CPU_MAX, missing = CPU_MAX;

	CORE_FOR_EACH(cpu, b, core) {
		if (mask_test(&b->facts->allowed_cpus, cpu->id))
			given = cpu->id;
		else
			missing = cpu->id;
	}
	if (given == CPU_MAX)
		return 0;
	if (missing < CPU_MAX && !siblings_idle)
		return error_set(err, EINVAL,
				 "container %s: class \"%s\" wants whole cores, but the OCI spec gives it CPU %u and "
				 "not CPU %u of the same core; name both in linux.resources.cpu.cpus, or neither",
				 b->facts->id, b->facts->class->name, given, missing);
	if (mask_test(&b->owned, given) || mask_test(&b->pinned, given)) {
		const char *holder = holder_of(b, given);

		return error_set(err, EINVAL,
				 "container %s: class \"%s\" wants whole cores, but the core of CPU %u, which the OCI "
				 "spec gives it, is held by container %s; give one of them other CPUs",
				 b->facts->id, b->facts->class->name, given, holder ? holder : "(unknown)");
	}
	return 0;
}

int place_owned_given(struct board *b, struct error *err)
{
	cleanup_fences struct fences *fences = NULL;
	struct mask reserved = b->facts->policy->node.reserved, cpus = b->open, keep = { 0 }, cores;
	int r = fences_new(b->topo, b->facts->occupants, b->facts->n_occupants, NULL, &fences);

	if (r < 0)
		return r;
	for (unsigned core = 0; core < b->topo->n_cores; core++) {
		r = check_given_core(b, core, err);
		if (r < 0)
			return r;
	}
	topology_whole_cores(b->topo, &reserved, &reserved);
	mask_andnot(&cpus, &reserved);
	if (mask_empty(&cpus))
		return error_set(err, EINVAL,
				 "container %s: every core that the OCI spec gives it has a reserved CPU "
				 "(node.reserved_cpus)",
				 b->facts->id);
	topology_whole_cores(b->topo, &cpus, &cores);
	if (starves(b, fences, &cores, &keep))
		return error_set(err, EINVAL,
				 "container %s: the OCI spec gives it cores that are the last for another container, "
				 "the one of CPU %u among them; give one of them other CPUs",
				 b->facts->id, mask_next(&keep, 0));
	b->plan->cpus = b->plan->wish = cpus;
	plan_reason(b->plan, "the OCI spec names its CPUs; they are whole cores that no other %s gets",
		    b->plan->exclusive ? "container" : "tenant");
	return 0;
}
