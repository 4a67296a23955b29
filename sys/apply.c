#include "apply.h"

#include <errno.h>
#include <stdio.h>

static const char *const step_names[STEP_COUNT] = {
	[STEP_CPUSET] = "cpuset",   [STEP_NEIGHBOURS] = "neighbours", [STEP_COOKIE] = "cookie",
	[STEP_WEIGHTS] = "weights", [STEP_MEMORY] = "memory policy",  [STEP_GUARD] = "guard",
};

const char *step_name(enum step s)
{
	return (unsigned) s < STEP_COUNT ? step_names[s] : NULL;
}

/* What the steps share while they run. */
struct run {
	struct sys *s;
	struct apply_target *t;
	struct plan *plan;
	struct held *held; /* opened by the first step that injects, so that threads are stopped once */
	struct mempolicy old_policy;
};

/* ---- cpuset ---- */

static bool cpuset_wanted(const struct plan *p)
{
	return p->set_cpus || p->set_mems;
}

static int do_cpuset(struct run *run, struct error *err)
{
	struct apply_target *t = run->t;

	return sys_sync_own(run->s, t->ledger, t->cpuset, t->entry, err);
}

static void undo_cpuset(struct run *run)
{
	const struct entry *e = run->t->entry;

	if (cpuset_write(run->s, run->t->cpuset, e->old_cpus, e->old_mems, NULL) < 0)
		return; /* the container is being refused: its cgroup goes with it */
}

/* ---- neighbours ---- */

static bool neighbours_wanted(const struct plan *p)
{
	return p->n_adjusts > 0;
}

static int do_neighbours(struct run *run, struct error *err)
{
	int r = sys_sync_adjusts(run->s, run->t->ledger, run->t->layout, run->plan->adjusts, run->plan->n_adjusts, err);

	return r < 0 ? error_prefix(err, r, "must leave the cores that %s takes", run->t->entry->id) : 0;
}

/* ---- cookie ---- */

static bool cookie_wanted(const struct plan *p)
{
	return p->mechanism == MECHANISM_COOKIE;
}

static int do_cookie(struct run *run, struct error *err)
{
	struct apply_target *t = run->t;
	cleanup_proc struct proc_ref anchor = PROC_REF_NONE;
	pid_t tid = 0;
	int r = anchor_ensure(run->s, t->ledger, t->layout, t->entry->group, &anchor, err);

	if (r < 0)
		return r;
	sys_fault_point(run->s, "anchor");
	r = run->s->ops->cookie_share(anchor.pid, t->init->pid);
	if (r < 0)
		return error_set(err, -r,
				 "process %d cannot be given the cookie of anchor %d (prctl PR_SCHED_CORE): %s%s",
				 t->init->pid, anchor.pid, strerror(-r),
				 r == -EPERM ? ": ptrace access is missing; give cotenant CAP_SYS_PTRACE in the "
					       "process's user namespace" :
					       "");
	r = cookie_verify(run->s, t->init->pid, anchor.pid, &tid);
	/* Had it died before, the cookie would be whoever's has its number now. */
	if (r == 0 && proc_ref_ended(&anchor))
		return error_set(err, ESRCH, "anchor %d has ended meanwhile", anchor.pid);
	if (r == -EBADE)
		return error_set(err, EBADE, "thread %d of process %d does not carry the cookie of anchor %d", tid,
				 t->init->pid, anchor.pid);
	return r < 0 ? error_set(err, -r, "cookies of process %d cannot be read back: %s", t->init->pid, strerror(-r)) :
		       0;
}

static void undo_cookie(struct run *run)
{
	/* The anchor ends in sys_release(). When the hook itself carries a cookie, 0 is out of reach: the process dies. */
	if (run->s->ops->cookie_share(0, run->t->init->pid) < 0)
		return;
}

/* ---- weights ---- */

static bool weights_wanted(const struct plan *p)
{
	return p->set_weights;
}

/* Those that were saved for a change that did not come about. */
static int forget_weights(struct ledger *l)
{
	int r = ledger_lock(l, NULL);

	if (r < 0)
		return r;
	r = ledger_drop_weights(l, NULL);
	ledger_unlock(l);
	return r;
}

static int do_weights(struct run *run, struct error *err)
{
	struct ledger *l = run->t->ledger;
	struct saved_weights now, saved;
	bool first = false;
	int r = weights_read(run->s, &now);

	if (r < 0)
		return error_set(err, -r, "interleave weights cannot be read: %s (Linux 6.9 has them)", strerror(-r));
	r = ledger_lock(l, err);
	if (r < 0)
		return r;
	r = ledger_get_weights(l, &saved, err);
	if (r == -ENOENT) {
		r = ledger_put_weights(l, &now, err);
		first = r == 0;
	}
	ledger_unlock(l);
	if (r == 0)
		r = weights_write(run->s, run->plan->weights, err);
	if (r < 0 && (weights_restore(run->s, &now, NULL) < 0 || (first && forget_weights(l) < 0)))
		error_prefix(err, r, "half changed, and the old ones cannot be put back");
	return r;
}

/* ---- memory policy and guard: injected ---- */

static int hold(struct run *run, struct error *err)
{
	return run->held ? 0 : held_open(run->s, run->t->init->pid, &run->held, err);
}

static bool memory_wanted(const struct plan *p)
{
	return p->memory_policy != MEMORY_INHERIT;
}

static int do_memory(struct run *run, struct error *err)
{
	int r = hold(run, err);

	return r < 0 ? r : mempolicy_inject(run->held, run->plan->memory_policy, run->plan->memory_nodes,
						&run->old_policy, err);
}

static void undo_memory(struct run *run)
{
	if (run->held && mempolicy_restore(run->held, &run->old_policy, NULL) < 0)
		return;
}

static bool guard_wanted(const struct plan *p)
{
	return p->guard != 0;
}

static int do_guard(struct run *run, struct error *err)
{
	int r = hold(run, err);

	return r < 0 ? r : guard_inject(run->held, run->plan->guard, err);
}

/* ---- the sequence ---- */

static const struct {
	bool (*wanted)(const struct plan *p);
	int (*act)(struct run *run, struct error *err);
	void (*undo)(struct run *run); /* NULL: nothing to undo, or sys_release() does */
	bool by_pid;                   /* it goes by the process's number, which may be another's once that has ended */
} steps[STEP_COUNT] = {
	[STEP_CPUSET] = { cpuset_wanted, do_cpuset, undo_cpuset, false },
	[STEP_NEIGHBOURS] = { neighbours_wanted, do_neighbours, NULL, false },
	[STEP_COOKIE] = { cookie_wanted, do_cookie, undo_cookie, true },
	[STEP_WEIGHTS] = { weights_wanted, do_weights, NULL, false },
	[STEP_MEMORY] = { memory_wanted, do_memory, undo_memory, true },
	[STEP_GUARD] = { guard_wanted, do_guard, NULL, true },
};

static int take_step(struct run *run, enum step step, struct error *err)
{
	int r = sys_left_ms(run->s) == 0 ? error_set(err, ETIMEDOUT, "no time left") : steps[step].act(run, err);

	if (r == 0 && steps[step].by_pid && proc_ref_ended(run->t->init))
		r = error_set(err, ESRCH, "process %d has ended meanwhile", run->t->init->pid);
	return r;
}

/* The plan must not go on claiming what a failed step was to bring. */
static void give_up(struct plan *p, enum step step, const char *why)
{
	plan_lack(p, "%s: not applied: %s", step_name(step), why);
	if (step == STEP_CPUSET)
		p->set_cpus = p->set_mems = false;
	if (step == STEP_GUARD)
		p->guard = 0;
	if (step == STEP_MEMORY)
		p->memory_policy = MEMORY_INHERIT;
	if (step == STEP_WEIGHTS)
		p->set_weights = false;
	if (step == STEP_CPUSET || step == STEP_NEIGHBOURS)
		p->exclusive = false; /* it would keep others off cores that it does not have */
	if ((step == STEP_COOKIE && p->mechanism == MECHANISM_COOKIE) ||
	    ((step == STEP_CPUSET || step == STEP_NEIGHBOURS) && p->mechanism == MECHANISM_CORES))
		p->mechanism = MECHANISM_NONE;
}

/*
 * Whether a failure is the container's own loss. Where the others' cores are at stake it is not: it would run on them,
 * whatever its own class thinks of that.
 */
static bool can_do_without(const struct run *run, enum step step)
{
	return run->t->keep_going && !(step == STEP_CPUSET && run->plan->confined);
}

/* Those before it, the last one first. */
static void undo_before(struct run *run, unsigned step)
{
	while (step-- > 0)
		if (steps[step].wanted(run->plan) && steps[step].undo)
			steps[step].undo(run);
}

static int run_steps(struct run *run, enum step *ret_step, struct error *err)
{
	int r;

	for (unsigned i = 0; i < STEP_COUNT; i++) {
		if (!steps[i].wanted(run->plan))
			continue;
		r = take_step(run, (enum step) i, err);
		if (r < 0 && can_do_without(run, (enum step) i)) {
			give_up(run->plan, (enum step) i, error_text(err));
			continue;
		}
		if (r < 0) {
			undo_before(run, i);
			*ret_step = (enum step) i;
			return run->t->keep_going ?
				       error_prefix(err, -ENOTRECOVERABLE, "it would run on cores that others own") :
				       r;
		}
		sys_fault_point(run->s, step_name((enum step) i));
	}
	r = run->t->record ? run->t->record(run->t->record_arg, err) : 0;
	if (r < 0) {
		undo_before(run, STEP_COUNT);
		*ret_step = STEP_COUNT;
	}
	return r;
}

int sys_apply(struct sys *s, struct apply_target *t, enum step *ret_step, struct error *err)
{
	struct run run = { .s = s, .t = t, .plan = t->entry->plan };
	int r;

	if (!s->acting) {
		*ret_step = STEP_CPUSET;
		return error_set(err, EROFS, "the root directory is not this machine's: nothing is changed");
	}
	r = run_steps(&run, ret_step, err);
	if (held_close(run.held) == 0)
		return r;
	*ret_step = memory_wanted(run.plan) ? STEP_MEMORY : STEP_GUARD;
	return error_set(err, ENOTRECOVERABLE,
			 "a call injected into process %d does not return, so that it cannot be given its registers "
			 "back: it must be killed",
			 t->init->pid);
}
