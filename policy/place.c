/* Placing one container: how it is kept apart, on which CPUs, with which memory, and who moves aside for it. */
#include "place.h"

#include <errno.h>

/* ---- isolation ---- */

static const char *remedy(enum coresched_support support)
{
	switch (support) {
	case CORESCHED_NO_KERNEL_OPTION:
		return "boot a kernel with CONFIG_SCHED_CORE=y";
	case CORESCHED_DENIED:
		return "run cotenant as root with CAP_SYS_PTRACE and without a seccomp filter on prctl";
	case CORESCHED_KNOWN_BAD:
		return "unload the scheduler or change the kernel";
	case CORESCHED_SUPPORTED:
	case CORESCHED_NO_SIBLINGS:
		break;
	}
	return "see cotenant support";
}

static int isolate_by_cores(const struct place_facts *f, struct plan *p, struct error *err)
{
	if (f->can_cpuset) {
		p->mechanism = MECHANISM_CORES;
		return 0;
	}
	if (f->class->isolation.on_unsupported != UNSUPPORTED_DEGRADE)
		return error_set(err, EOPNOTSUPP,
				 "container %s: class \"%s\" wants cores of its own, but the container's cpuset cannot "
				 "be written; give it the cpuset controller, or set isolation.on_unsupported to "
				 "degrade",
				 f->id, f->class->name);
	plan_lack(p, "not isolated: class \"%s\" wants cores of its own, and the container's cpuset cannot be written",
		  f->class->name);
	return 0;
}

static int isolate_by_cookie(const struct place_facts *f, struct plan *p, struct error *err)
{
	const char *why = coresched_support_text(f->coresched);

	if (f->coresched == CORESCHED_SUPPORTED) {
		p->mechanism = MECHANISM_COOKIE;
		return 0;
	}
	if (f->coresched == CORESCHED_NO_SIBLINGS) {
		p->mechanism = MECHANISM_NO_SIBLINGS;
		plan_reason(p, "isolated without a cookie: no core has two threads, until SMT is switched on");
		return 0;
	}
	switch (f->class->isolation.on_unsupported) {
	case UNSUPPORTED_REFUSE:
		break;
	case UNSUPPORTED_CORES:
		plan_reason(p, "whole cores in place of a cookie: %s", why);
		return isolate_by_cores(f, p, err);
	case UNSUPPORTED_DEGRADE:
		plan_lack(p, "not isolated: %s", why);
		return 0;
	}
	return error_set(err, EOPNOTSUPP,
			 "container %s: class \"%s\" wants a core-scheduling cookie: %s (%s); %s, or set "
			 "isolation.on_unsupported to cores or degrade",
			 f->id, f->class->name, why, coresched_support_name(f->coresched), remedy(f->coresched));
}

static int choose_mechanism(const struct place_facts *f, struct plan *p, struct error *err)
{
	p->mechanism = MECHANISM_NONE;
	switch (f->class->isolation.mode) {
	case ISOLATION_NONE:
		return 0;
	case ISOLATION_CORES:
		return isolate_by_cores(f, p, err);
	case ISOLATION_COOKIE:
	case ISOLATION_AUTO:
		break;
	}
	return isolate_by_cookie(f, p, err);
}

static int choose_exclusive(const struct place_facts *f, struct plan *p, struct error *err)
{
	if (!f->class->cpu.exclusive)
		return 0;
	if (f->can_cpuset) {
		p->exclusive = true;
		return 0;
	}
	if (f->class->isolation.on_unsupported != UNSUPPORTED_DEGRADE)
		return error_set(err, EOPNOTSUPP,
				 "container %s: class \"%s\" wants exclusive cores, but the container's cpuset cannot "
				 "be written; give it the cpuset controller, or set isolation.on_unsupported to "
				 "degrade",
				 f->id, f->class->name);
	plan_lack(p, "not exclusive: the container's cpuset cannot be written");
	return 0;
}

static void choose_guard(const struct place_facts *f, struct plan *p)
{
	p->guard = f->class->isolation.guard;
	p->exec = f->class->isolation.exec;
	p->migrate = f->class->memory.migrate;
	p->rebalance = f->class->rebalance;
	p->confine_unmanaged = f->policy->node.confine_unmanaged;
	/* A class of mode none has a guard only when it names one. */
	if (p->mechanism == MECHANISM_NONE && f->class->isolation.mode != ISOLATION_NONE && p->guard & GUARD_COOKIE) {
		p->guard &= ~(unsigned) GUARD_COOKIE;
		plan_reason(p, "no guard over cookies: the container has none to keep");
	}
	if (f->spec_memory_policy && p->guard & GUARD_MEMORY) {
		p->guard &= ~(unsigned) GUARD_MEMORY;
		plan_reason(p, "memory policy is not guarded: the runtime sets the OCI spec's linux.memoryPolicy from "
			       "inside the container, after the hook");
	}
}

/* ---- CPUs ---- */

/* The container has nowhere to run: say what took it all. */
static int nowhere(const struct board *b, struct error *err)
{
	cleanup_free char *allowed = mask_format(&b->facts->allowed_cpus);
	struct mask online = b->facts->allowed_cpus;
	const char *list = allowed ? allowed : "?";

	mask_and(&online, &b->topo->online);
	if (mask_empty(&online))
		return error_set(err, EINVAL, "container %s: none of the CPUs that it may use (%s) is online",
				 b->facts->id, list);
	if (mask_empty(&b->open))
		return error_set(err, EINVAL,
				 "container %s: all CPUs that it may use (%s) are reserved by node.reserved_cpus",
				 b->facts->id, list);
	return error_set(err, ENOSPC,
			 "no room for container %s: all CPUs that it may use (%s) belong to containers that own their "
			 "cores",
			 b->facts->id, list);
}

/* A hard quota cannot use more than its cores, so giving it exactly those costs nothing and keeps cookies apart. */
static int shape(struct board *b, const struct mask *domain)
{
	const struct place_facts *f = b->facts;
	bool asked = f->class->cpu.span == SPAN_CORES;
	struct mask takable = *domain, cpus;
	int r;

	if (!asked && (!f->mcpu_is_limit || f->class->cpu.span == SPAN_MACHINE))
		return 0;
	mask_andnot(&takable, &b->shaped);
	r = cores_pick(b, &takable, &cpus);
	if (r == -ENOSPC) {
		plan_reason(b->plan,
			    "not on cores of its own: too few whole cores are left that no other tenant was given");
		return 0;
	}
	if (r < 0)
		return r;
	b->plan->cpus = b->plan->wish = cpus;
	plan_reason(b->plan,
		    asked ? "%u %s on whole cores that no other tenant was given" :
			    "%u %s on whole cores that no other tenant was given; its quota allows no more anyway",
		    mask_weight(&cpus), mask_weight(&cpus) == 1 ? "CPU" : "CPUs");
	return 0;
}

/* A class that packs may do better on a part of its span: there it loses room, and gains nearness. */
static int shared_candidates(const struct board *b, struct candidates *c)
{
	static const enum cpu_span narrowing[] = { SPAN_MACHINE, SPAN_PACKAGE, SPAN_NODE, SPAN_LLC };
	enum cpu_span span = b->facts->class->cpu.span == SPAN_CORES ? SPAN_NODE : b->facts->class->cpu.span;
	bool inside = false;
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(narrowing); i++) {
		if (narrowing[i] == span || (inside && b->facts->class->cpu.placement == PLACEMENT_PACK))
			r = candidates_add(b, narrowing[i], &b->usable, c);
		inside = inside || narrowing[i] == span;
	}
	return r;
}

/* Not an owner: all of the domain of its span that costs least. */
static int place_shared(struct board *b, struct error *err)
{
	cleanup_candidates struct candidates c = { 0 };
	const struct candidate *best;
	struct mask domain;
	int r = shared_candidates(b, &c);

	if (r < 0)
		return r;
	best = candidates_best(b, &c, false);
	if (!best)
		return nowhere(b, err);
	domain_cpus(b->topo, best->level, best->domain, &domain);
	b->plan->cpus = b->usable;
	mask_and(&b->plan->cpus, &domain);
	b->plan->wish = b->open;
	mask_and(&b->plan->wish, &domain);
	if (b->facts->class->cpu.smt == SMT_LEAVE_IDLE) {
		one_thread_per_core(b, &b->plan->cpus);
		one_thread_per_core(b, &b->plan->wish);
	}
	candidates_report(b, &c, best, false);
	mask_and(&domain, &b->usable);
	return shape(b, &domain);
}

/* The OCI spec names the CPUs: all of them, but for those that are promised to others. */
static int place_given(struct board *b, struct error *err)
{
	cleanup_free char *left = NULL;

	if (mask_empty(&b->usable))
		return nowhere(b, err);
	b->plan->cpus = b->usable;
	b->plan->wish = b->open;
	if (mask_equal(&b->usable, &b->facts->allowed_cpus)) {
		plan_reason(b->plan, "the OCI spec names its CPUs, so they are left as they are");
		return 0;
	}
	left = mask_format(&b->usable);
	plan_reason(b->plan,
		    "of the CPUs that the OCI spec names, %s are left: the others are offline, reserved, or belong "
		    "to containers that own their cores",
		    left ? left : "?");
	return 0;
}

/* Nobody can move this container, so it either disturbs no one where it is, or it must not start. */
static int place_unwritable(struct board *b, struct error *err)
{
	struct mask cpus = b->facts->allowed_cpus, reserved;
	cleanup_free char *list = NULL;

	mask_and(&cpus, &b->topo->online);
	if (mask_empty(&cpus))
		return nowhere(b, err);
	if (mask_intersects(&cpus, &b->owned)) {
		struct mask taken = cpus;

		mask_and(&taken, &b->owned);
		list = mask_format(&taken);
		return error_set(err, EOPNOTSUPP,
				 "container %s: its cpuset cannot be written, and it would run on CPUs %s, which "
				 "belong to containers that own their cores; give it the cpuset controller or other "
				 "CPUs",
				 b->facts->id, list ? list : "?");
	}
	b->plan->cpus = b->plan->wish = cpus;
	list = mask_format(&cpus);
	plan_reason(b->plan, "its cpuset cannot be written, so it stays on CPUs %s", list ? list : "?");
	reserved = cpus;
	mask_and(&reserved, &b->facts->policy->node.reserved);
	if (!mask_empty(&reserved))
		plan_reason(b->plan, "reserved CPUs are among them");
	return 0;
}

static int place_cpus(struct board *b, struct error *err)
{
	const struct place_facts *f = b->facts;
	struct mask now = f->allowed_cpus;
	int r;

	if (!f->can_cpuset)
		return place_unwritable(b, err);
	if (b->owner)
		r = f->cpus_given ? place_owned_given(b, err) : place_owned(b, err);
	else
		r = f->cpus_given ? place_given(b, err) : place_shared(b, err);
	if (r < 0)
		return r;
	/* What it has already need not be written, and then follows CPUs that come online. Owned cores always are. */
	mask_and(&now, &b->topo->online);
	b->plan->set_cpus = !mask_equal(&b->plan->cpus, &now) || (b->owner && !f->cpus_given);
	cost_of_cpus(b, b->all_cores, b->n_cores, &b->plan->cpus, &b->plan->cost);
	b->plan->confined = mask_intersects(&now, &b->owned);
	return 0;
}

/* ---- the whole ---- */

static int place_neighbours(const struct place_facts *f, struct plan *p)
{
	const struct occupant self = {
		.id = f->id,
		.group = f->group,
		.mechanism = p->mechanism,
		.exclusive = p->exclusive,
		.bound = p->bound,
		.streams = p->streams,
		.mcpu = p->mcpu,
		.cpus = &p->cpus,
		.wish = &p->wish,
	};

	return neighbours_with(f->topo, f->occupants, f->n_occupants, &self, &p->adjusts, &p->n_adjusts);
}

int plan_place(const struct place_facts *facts, struct plan **ret_plan, struct error *err)
{
	cleanup_plan struct plan *p = calloc(1, sizeof(*p));
	cleanup_board struct board *b = NULL;
	unsigned demand = facts->mcpu ? facts->mcpu : facts->class->cpu.count_mcpu;
	int r;

	if (!p)
		return -ENOMEM;
	p->mcpu = demand ? demand : 1000;
	p->memory = facts->memory;
	p->streams = facts->class->cpu.placement == PLACEMENT_SPREAD;
	p->bound = facts->cpus_given || !facts->can_cpuset;
	if ((r = choose_mechanism(facts, p, err)) < 0 || (r = choose_exclusive(facts, p, err)) < 0 ||
	    (r = board_new(facts, p, &b)) < 0 || (r = place_cpus(b, err)) < 0 || (r = place_memory(b, err)) < 0)
		return r;
	choose_guard(facts, p);
	r = place_neighbours(facts, p);
	if (r < 0)
		return r;
	*ret_plan = TAKE_PTR(p);
	return 0;
}

int plan_unprotected(const struct place_facts *facts, struct plan **ret_plan, struct error *err)
{
	char name[] = "none";
	const struct policy_class bare = {
		.name = name,
		.isolation = { .mode = ISOLATION_NONE },
		.cpu = { .span = SPAN_MACHINE },
	};
	struct place_facts without = *facts;
	struct plan *p;
	int r;

	without.class = &bare;
	r = plan_place(&without, &p, err);
	if (r < 0)
		return r;
	p->degraded = true;
	*ret_plan = p;
	return 0;
}
