/*
 * Before the container's first instruction: facts → decision → intent under the lock → act → result.
 * Nothing is decided here (policy/ does) and nothing is changed here (sys/apply.c does).
 */
#include "hook.h"

#include <errno.h>
#include <stdio.h>

struct create {
	struct hook *h;
	struct sys *s;
	struct arena arena;
	struct proc_ref init;
	struct oci_config config;
	const struct oci_annotations *annotations;
	struct policy *policy;
	struct policy_match match; /* class NULL until a rule matched */
	struct facts_source source;
	const struct facts *facts; /* the source's, once they were loaded */
	struct cpuset cpuset;
	struct ledger *ledger;
	struct place_facts place;
	struct entry *entry;
	bool has_id;          /* holds LOCK_ID, and the id is no other container's */
	bool set_cpus, owned; /* as planned, whatever came of it */
	bool in_ledger; /* the entry is, or may be, in the ledger: to be released on failure */
	const char *stage_of_failure; /* for the message */
};

static void create_done(struct create *c)
{
	entry_free(c->entry);
	ledger_close(c->ledger);
	cpuset_done(&c->cpuset);
	facts_source_done(&c->source);
	policy_free(c->policy);
	proc_ref_done(&c->init);
	arena_done(&c->arena);
}

/* ---- facts ---- */

static int load_config(struct create *c, struct error *err)
{
	cleanup_free char *text = NULL;
	const char *path = arena_printf(&c->arena, "%s/config.json", c->h->state.bundle);
	size_t len;
	int r = path ? file_read(c->s, path, OCI_CONFIG_MAX, &text, &len) : -ENOMEM;

	if (r == -EFBIG)
		return error_set(err, EFBIG, "%s: larger than %u MiB", path, OCI_CONFIG_MAX >> 20);
	if (r < 0)
		return error_set(err, -r, "%s: %s", path ? path : c->h->state.bundle, strerror(-r));
	r = oci_config_parse(&c->arena, text, len, &c->config, err);
	if (r < 0)
		return error_prefix(err, r, "%s", c->h->state.bundle);
	c->annotations = c->h->state.annotations.n ? &c->h->state.annotations : &c->config.annotations;
	return 0;
}

static int open_init(struct create *c, struct error *err)
{
	pid_t pid = c->h->state.pid;
	int r = proc_open(c->s, pid, &c->init);

	if (r == -ESRCH)
		return error_set(err, ESRCH, "process %d: gone: the container ended before it could be placed", pid);
	return r < 0 ? error_set(err, -r, "process %d: %s", pid, strerror(-r)) : 0;
}

static int open_cpuset(struct create *c, struct error *err)
{
	int r = cpuset_open(c->s, &c->facts->cgroup, c->init.pid, &c->cpuset, err);

	if (r != -ENOTSUP)
		return r;
	c->cpuset = CPUSET_NONE; /* the plan says what follows from that */
	error_done(err);
	return 0;
}

static int match(struct create *c, struct error *err)
{
	static const char *const image_keys[] = { "io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName" };
	struct match_facts facts = {
		.id = c->h->state.id,
		.stage = c->h->options->stage,
		.cgroup_path = c->cpuset.path ? c->cpuset.path : c->config.cgroups_path,
		.annotations = c->annotations,
		.has_host_uid = true,
		.host_uid = c->config.has_uid_mapping ? c->config.host_uid : (uint32_t) geteuid(),
	};

	for (size_t i = 0; i < ARRAY_LEN(image_keys) && !facts.image; i++)
		facts.image = oci_annotation(c->annotations, image_keys[i]);
	return policy_match(c->policy, &facts, &c->arena, &c->match, err);
}

/* What the container may use: its quota is a hard demand, its shares (Kubernetes: the request) a soft one. */
static void demand(const struct oci_config *config, struct place_facts *place)
{
	int64_t period = config->cpu_period > 0 ? config->cpu_period : 100000;

	if (config->cpu_quota > 0) {
		/* Whole CPUs and the rest apart: either alone fits, whatever the spec says. */
		place->mcpu = (unsigned) (config->cpu_quota / period >= CPU_MAX ?
						  CPU_MAX * 1000 :
						  config->cpu_quota / period * 1000 +
							  (int64_t) ((__int128) (config->cpu_quota % period) * 1000 / period));
		place->mcpu_is_limit = true;
	} else if (config->cpu_shares > 2) { /* 2 is the kernel's least, and what "no request" becomes */
		place->mcpu = (unsigned) (config->cpu_shares >= CPU_MAX * UINT64_C(1024) ?
						  CPU_MAX * 1000u :
						  config->cpu_shares * 1000 / 1024);
	}
	place->memory = config->memory_limit > 0 ? (uint64_t) config->memory_limit : 0;
}

static int place_facts(struct create *c, struct error *err)
{
	struct place_facts *place = &c->place;
	const struct topology *topo = c->facts->topo;

	*place = (struct place_facts){
		.topo = topo,
		.policy = c->policy,
		.class = c->match.class,
		.id = c->h->state.id,
		.tenant = c->match.tenant,
		.group = c->match.group,
		.allowed_cpus = topo->online,
		.allowed_mems = topo->memory_nodes,
		.cpus_given = c->config.cpus,
		.mems_given = c->config.mems,
		.spec_memory_policy = c->config.memory_policy,
		.can_cpuset = c->cpuset.dir_fd >= 0 && c->cpuset.writable,
		.can_weighted = c->match.class->memory.policy == MEMORY_WEIGHTED && mempolicy_has_weighted(c->s),
		.coresched = CORESCHED_SUPPORTED,
	};
	demand(&c->config, place);
	if (c->match.class->isolation.mode == ISOLATION_COOKIE || c->match.class->isolation.mode == ISOLATION_AUTO)
		place->coresched = coresched_probe(c->s, NULL);
	if (c->cpuset.dir_fd >= 0) {
		int r = cpuset_read(&c->cpuset, &c->entry->old_cpus, &c->entry->old_mems, &place->allowed_cpus,
				    &place->allowed_mems);

		if (r < 0)
			return error_set(err, -r, "cgroup %s: its cpuset cannot be read: %s", c->cpuset.path,
					 strerror(-r));
	}
	return policy_check_machine(c->policy, topo, err);
}

static int copy_string(char **to, const char *from, struct error *err)
{
	if (from && !(*to = strdup(from)))
		return error_no_memory(err);
	return 0;
}

static int new_entry(struct create *c, struct error *err)
{
	cleanup_entry struct entry *e = calloc(1, sizeof(*e));
	int r;

	if (!e)
		return error_no_memory(err);
	e->pid = c->init.pid;
	e->start_time = c->init.start_time;
	e->actor = getpid();
	e->state = ENTRY_INTENT;
	r = proc_start_time(c->s, e->actor, &e->actor_start_time);
	if (r < 0)
		return error_set(err, -r, "process %d (cotenant-hook itself): %s", e->actor, strerror(-r));
	r = copy_string(&e->id, c->h->state.id, err);
	r = r < 0 ? r : copy_string(&e->bundle, c->h->state.bundle, err);
	r = r < 0 ? r : copy_string(&e->tenant, c->match.tenant ? c->match.tenant : c->h->state.id, err);
	r = r < 0 ? r : copy_string(&e->group, c->match.group ? c->match.group : c->h->state.id, err);
	r = r < 0 ? r : copy_string(&e->class, c->match.class ? c->match.class->name : "", err);
	r = r < 0 ? r : copy_string(&e->cgroup, c->cpuset.path ? c->cpuset.path : "", err);
	r = r < 0 ? r : copy_string(&e->policy_digest, c->policy ? c->policy->digest : "", err);
	if (r == 0)
		c->entry = TAKE_PTR(e);
	return r;
}

/* prestart and createRuntime may both be wired: the second finds the work done. Needs the id's lock. */
static int already_placed(struct create *c, bool *ret_done, struct error *err)
{
	cleanup_entry struct entry *old = NULL;
	int r = ledger_get(c->ledger, c->h->state.id, &old, err);
	bool same;

	*ret_done = false;
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	same = old->pid == c->init.pid && old->start_time == c->init.start_time;
	if (same && (old->state == ENTRY_DONE || old->state == ENTRY_DEGRADED)) {
		*ret_done = true;
		return 0;
	}
	/* Ids are unique within one runtime's root, and there may be two. */
	if (!same && proc_alive(c->s, old->pid, old->start_time))
		return error_set(err, EEXIST,
				 "another container of this id runs (process %d): give this one another id, or the "
				 "runtimes' hooks different state directories (--state-dir)",
				 old->pid);
	return sys_release(c->s, c->ledger, &c->source, c->h->state.id, err);
}

/* From here to the end the id is this hook's alone; the lock goes with the ledger. */
static int take_id(struct create *c, bool *ret_done, struct error *err)
{
	int r = ledger_open(c->s, c->h->options->state_dir, &c->ledger, err);

	r = r < 0 ? r : ledger_lock_name(c->ledger, LOCK_ID, c->h->state.id, err);
	r = r < 0 ? r : already_placed(c, ret_done, err);
	c->has_id = r == 0;
	return r;
}

static int gather(struct create *c, bool *ret_done, struct error *err)
{
	int r;

	c->stage_of_failure = "facts";
	r = open_init(c, err);
	r = r < 0 ? r : load_config(c, err);
	if (r < 0)
		return r;
	c->stage_of_failure = "policy";
	r = policy_load(c->s, c->h->options->policy_path, &c->policy, err);
	if (r < 0)
		return r;
	c->stage_of_failure = "ledger";
	r = take_id(c, ret_done, err);
	if (r < 0 || *ret_done)
		return r;
	c->stage_of_failure = "facts";
	r = facts_get(c->s, &c->source, &c->facts, err);
	r = r < 0 ? r : open_cpuset(c, err);
	if (r < 0)
		return r;
	c->stage_of_failure = "policy";
	r = match(c, err);
	r = r < 0 ? r : new_entry(c, err);
	return r < 0 ? r : place_facts(c, err);
}

/* ---- decision and intent ---- */

static int sweep(struct create *c, const char *const *stale, size_t n, struct error *err)
{
	/* The list lives only until the ledger is read again, which releasing does. */
	const char **ids = arena_new(&c->arena, const char *, n);

	for (size_t i = 0; ids && i < n; i++)
		if (!(ids[i] = arena_strdup(&c->arena, stale[i])))
			ids = NULL;
	return ids ? sys_sweep(c->s, c->ledger, &c->source, ids, n, err) : error_no_memory(err);
}

/* Takes the lock and reads who is there. Entries that turn out stale are cleaned up first, without the lock. */
static int lock_and_look(struct create *c, bool all, struct error *err)
{
	const char *const *stale;
	size_t n_stale;

	for (int round = 0;; round++) {
		int r = ledger_lock(c->ledger, err);

		if (r < 0)
			return r;
		r = ledger_occupancy(c->ledger, all && round == 0, &c->place.occupants, &c->place.n_occupants, &stale,
				     &n_stale, err);
		if (r == 0 && (n_stale == 0 || round > 0))
			return 0;
		ledger_unlock(c->ledger);
		if (r < 0)
			return r;
		/* What others left behind and cannot be cleaned up is not this container's fault. */
		if (sweep(c, stale, n_stale, err) < 0)
			hook_say(c->h, error_text(err));
		error_done(err);
	}
}

/* The own entry first: where neighbours are made to move, somebody must be on record for whom. */
static int write_intent(struct create *c, struct error *err)
{
	const struct plan *p = c->entry->plan;
	int r;

	c->in_ledger = true;
	c->set_cpus = p->set_cpus;
	c->owned = plan_owns(p);
	r = ledger_put(c->ledger, c->entry, err);
	return r < 0 ? r : sys_put_adjusts(c->ledger, p->adjusts, p->n_adjusts, err);
}

static int decide(struct create *c, struct error *err)
{
	int r = -ENOSPC;

	/* Only when there is no room is it worth looking at every entry for one whose container is long gone. */
	for (int all = 0; all < 2 && r == -ENOSPC; all++) {
		c->stage_of_failure = "ledger";
		r = lock_and_look(c, all, err);
		if (r < 0)
			return r;
		c->stage_of_failure = "placement";
		r = plan_place(&c->place, &c->entry->plan, err);
		if (r == 0) {
			c->stage_of_failure = "ledger";
			r = write_intent(c, err);
			ledger_unlock(c->ledger);
			return r; /* a full disk is ENOSPC too, and no reason to look again */
		}
		ledger_unlock(c->ledger);
	}
	return r;
}

/* ---- act and result ---- */

/* Another hook may have moved this container meanwhile, or be about to: the ledger's word on that stands. */
static int merge_result(struct create *c, struct error *err)
{
	cleanup_entry struct entry *now = NULL;
	struct plan *p = c->entry->plan;
	const bool gave_up = c->set_cpus && !p->set_cpus; /* its cpuset cannot be written */
	int r;

	if (!p->set_cpus)
		p->cpus = c->place.allowed_cpus;
	if (gave_up || ledger_has_last_put(c->ledger, c->entry->id))
		return 0;
	r = ledger_get(c->ledger, c->entry->id, &now, err);
	if (r < 0 || !now->plan->set_cpus)
		return r;
	p->set_cpus = true;
	p->cpus = now->plan->cpus;
	c->entry->unsynced = now->unsynced;
	return 0;
}

static int write_result(void *arg, struct error *err)
{
	struct create *c = arg;
	struct entry *e = c->entry;
	int r;

	c->stage_of_failure = "ledger";
	r = ledger_lock(c->ledger, err);
	if (r < 0)
		return r;
	r = merge_result(c, err);
	if (r == 0) {
		e->state = e->plan->degraded ? ENTRY_DEGRADED : ENTRY_DONE;
		if (!e->why)
			e->why = plan_lacks(e->plan);
		r = ledger_put(c->ledger, e, err);
	}
	ledger_unlock(c->ledger);
	return r;
}

static int act(struct create *c, struct error *err)
{
	struct apply_target target = {
		.init = &c->init,
		.layout = &c->facts->cgroup,
		.cpuset = &c->cpuset,
		.ledger = c->ledger,
		.entry = c->entry,
		.record = write_result,
		.record_arg = c,
		.keep_going = c->match.class->on_error == ON_ERROR_ADMIT,
	};
	enum step step;
	int r = sys_apply(c->s, &target, &step, err);

	if (r < 0 && step < STEP_COUNT)
		c->stage_of_failure = step_name(step);
	return r;
}

/* Admitted without the cores it was to own: those who moved aside for it go back. */
static void disown(struct create *c)
{
	cleanup_error struct error err = { 0 };

	if (c->owned && !plan_owns(c->entry->plan) && sys_settle(c->s, c->ledger, c->facts, &err) < 0)
		hook_say(c->h, error_text(&err));
}

static int place(struct create *c, struct error *err)
{
	bool done = false;
	int r;

	r = gather(c, &done, err);
	if (r < 0 || done)
		return r;
	r = decide(c, err);
	if (r < 0)
		return r;
	sys_fault_point(c->s, "intent");
	r = act(c, err);
	sys_fault_point(c->s, "result");
	if (r == 0)
		disown(c);
	return r;
}

/* ---- failure ---- */

static bool admits(const struct create *c, int r)
{
	/* What this machine cannot do is for isolation.on_unsupported to decide: "refuse" there is no accident. */
	if (r == -EOPNOTSUPP || !c->policy)
		return false;
	if (r == -ENOTRECOVERABLE) /* sys_apply(): the init must not run on */
		return false;
	if (c->ledger && !c->has_id) /* the ledger knows a container by its id: another one's entry would be lost */
		return false;
	if (c->match.class)
		return c->match.class->on_error == ON_ERROR_ADMIT;
	/* It failed before the class was known: then no class may ask for more. */
	for (size_t i = 0; i < c->policy->n_classes; i++)
		if (c->policy->classes[i]->on_error != ON_ERROR_ADMIT)
			return false;
	return c->policy->on_error == ON_ERROR_ADMIT;
}

/* What is known of it when it failed before it could be placed: it runs anywhere, and nobody can move it. */
static int unplaced(const struct create *c, struct plan **ret_plan, struct error *err)
{
	cleanup_plan struct plan *p = calloc(1, sizeof(*p));

	if (!p)
		return error_no_memory(err);
	for (size_t i = 0; i < c->place.n_occupants; i++)
		if (occupant_owns(&c->place.occupants[i]))
			return error_set(err, EOPNOTSUPP,
					 "on_error \"admit\" cannot be followed: container %s owns its cores, and this "
					 "one could not be kept off them",
					 c->place.occupants[i].id);
	p->degraded = p->bound = true;
	p->mcpu = 1000;
	memset(&p->cpus, 0xff, sizeof(p->cpus));
	p->wish = p->cpus;
	*ret_plan = TAKE_PTR(p);
	return 0;
}

/* Needs the lock. */
static int plan_without_protection(struct create *c, const char *why, struct error *err)
{
	const char *const *stale;
	size_t n_stale;
	struct plan *plan = NULL;
	int r = ledger_occupancy(c->ledger, false, &c->place.occupants, &c->place.n_occupants, &stale, &n_stale, err);

	if (r == 0)
		r = c->place.topo ? plan_unprotected(&c->place, &plan, err) : unplaced(c, &plan, err);
	if (r < 0)
		return r;
	/* Weights that were written before it failed are still to be put back when it ends. */
	plan->set_weights = c->entry->plan && c->entry->plan->set_weights;
	plan_free(c->entry->plan);
	c->entry->plan = plan;
	c->entry->state = ENTRY_DEGRADED;
	free(c->entry->why);
	c->entry->why = strdup(why);
	c->in_ledger = true;
	return ledger_put(c->ledger, c->entry, err);
}

/*
 * The container starts all the same, and the ledger tells everybody that it is not protected. What others were promised
 * stands: it keeps off the cores that they own, or it does not start.
 */
static int start_unprotected(struct create *c, const char *why, struct error *err)
{
	int r;

	if (!c->ledger)
		return 0;
	r = c->entry ? 0 : new_entry(c, err);
	r = r < 0 ? r : ledger_lock(c->ledger, err);
	if (r < 0)
		return r;
	r = plan_without_protection(c, why, err);
	ledger_unlock(c->ledger);
	if (r == 0 && c->entry->plan->set_cpus)
		r = sys_sync_own(c->s, c->ledger, &c->cpuset, c->entry, err);
	if (r == 0)
		disown(c);
	return r;
}

static int on_failure(struct create *c, int r, struct error *err)
{
	cleanup_error struct error second = { 0 };

	error_prefix(err, r, "%s", c->stage_of_failure);
	if (admits(c, r)) {
		hook_say(c->h, error_text(err));
		r = start_unprotected(c, error_text(err), &second);
		if (r == 0) {
			hook_say(c->h, "started all the same, without protection (on_error: admit)");
			return 0;
		}
		error_set(err, -r, "%s", error_text(&second));
	}
	if (c->in_ledger && sys_release(c->s, c->ledger, &c->source, c->entry->id, &second) < 0)
		hook_say(c->h, error_text(&second));
	return r;
}

int stage_create(struct hook *h, struct error *err)
{
	cleanup_with(create_done) struct create c = {
		.h = h,
		.s = h->sys,
		.init = PROC_REF_NONE,
		.cpuset = CPUSET_NONE,
		.source = { .root = h->options->root, .state_dir = h->options->state_dir },
	};
	int r = place(&c, err);

	return r < 0 ? on_failure(&c, r, err) : 0;
}
