/*
 * Making cpusets what the ledger says.
 *
 * Every change of a cpuset is "put, then sync": whoever syncs last has read the newest entry, so two hooks that change
 * one container end with the later decision, whatever their order. A neighbour's entry is put with a mark, which goes
 * when its cgroup was read back: where a hook dies in between, or the kernel refuses, the next one who has to rely on
 * that neighbour writes it again.
 */
#include "apply.h"

#include <errno.h>

static int write_cpuset(struct sys *s, const struct cpuset *c, const struct plan *p, struct error *err)
{
	cleanup_free char *cpus = p->set_cpus ? mask_format(&p->cpus) : NULL;
	cleanup_free char *mems = p->set_mems ? nodemask_format(p->mems) : NULL;

	if ((p->set_cpus && !cpus) || (p->set_mems && !mems))
		return error_no_memory(err);
	return cpuset_write(s, c, cpus, mems, err);
}

int sys_sync_own(struct sys *s, struct ledger *l, const struct cpuset *c, const struct entry *put, struct error *err)
{
	cleanup_entry struct entry *now = NULL;
	const struct plan *p = put->plan;
	int r = ledger_lock_name(l, LOCK_CPUSET, put->id, err);

	if (r < 0)
		return r;
	if (!ledger_has_last_put(l, put->id)) {
		r = ledger_get(l, put->id, &now, err);
		p = r == 0 ? now->plan : NULL;
	}
	if (r == 0 && (p->set_cpus || p->set_mems))
		r = write_cpuset(s, c, p, err);
	ledger_unlock_name(l, LOCK_CPUSET, put->id);
	return r;
}

/* ---- neighbours ---- */

int sys_put_adjusts(struct ledger *l, const struct plan_adjust *items, size_t n, struct error *err)
{
	struct entry **list = calloc(n + 1, sizeof(*list));
	size_t kept = 0;
	int r = list ? 0 : error_no_memory(err);

	for (size_t i = 0; r == 0 && i < n; i++) {
		r = ledger_get(l, items[i].id, &list[kept], err);
		if (r == -ENOENT) {
			r = 0;
			continue;
		}
		if (r < 0)
			break;
		list[kept]->plan->cpus = items[i].cpus;
		list[kept]->plan->set_cpus = list[kept]->unsynced = true;
		kept++;
	}
	if (r == 0)
		r = ledger_put_many(l, list, kept, err);
	for (size_t i = 0; i < kept; i++)
		entry_free(list[i]);
	free(list);
	return r;
}

/* Its cgroup may be removed at any moment: what cannot be done to a cgroup that is gone need not be done. */
static int write_neighbour(struct sys *s, const struct cgroup_layout *layout, const struct entry *e, struct error *err)
{
	cleanup_cpuset struct cpuset c = CPUSET_NONE, again = CPUSET_NONE;
	int r = cpuset_open_path(s, layout, e->cgroup, &c, err);

	if (r == 0)
		r = write_cpuset(s, &c, e->plan, err);
	if (r < 0 && cpuset_open_path(s, layout, e->cgroup, &again, NULL) == -ENOENT)
		return 0;
	return r;
}

/* *ret_written: the CPUs that its cpuset was made to say. */
static int sync_neighbour(struct sys *s, struct ledger *l, const struct cgroup_layout *layout, const char *id,
			  struct mask *ret_written, struct error *err)
{
	cleanup_entry struct entry *e = NULL;
	int r = ledger_lock_name(l, LOCK_CPUSET, id, err);

	if (r < 0)
		return r;
	r = ledger_get(l, id, &e, err);
	if (r == 0)
		r = e->plan->set_cpus || e->plan->set_mems ? write_neighbour(s, layout, e, err) : 0;
	ledger_unlock_name(l, LOCK_CPUSET, id);
	if (r == 0)
		*ret_written = e->plan->cpus;
	return r;
}

/* Of those whose entry still says what was written. */
static int take_marks_off(struct ledger *l, const struct plan_adjust *written, size_t n, struct error *err)
{
	struct entry **list = calloc(n + 1, sizeof(*list));
	size_t kept = 0;
	int r = list ? ledger_lock(l, err) : error_no_memory(err);

	if (r < 0) {
		free(list);
		return r;
	}
	for (size_t i = 0; i < n; i++) {
		cleanup_entry struct entry *e = NULL;

		if (!written[i].id || ledger_get(l, written[i].id, &e, NULL) < 0 || !e->unsynced ||
		    !mask_equal(&e->plan->cpus, &written[i].cpus))
			continue;
		e->unsynced = false;
		list[kept++] = TAKE_PTR(e);
	}
	r = ledger_put_many(l, list, kept, err);
	ledger_unlock(l);
	for (size_t i = 0; i < kept; i++)
		entry_free(list[i]);
	free(list);
	return r;
}

int sys_sync_adjusts(struct sys *s, struct ledger *l, const struct cgroup_layout *layout,
		     const struct plan_adjust *items, size_t n, struct error *err)
{
	struct plan_adjust *written = calloc(n + 1, sizeof(*written));
	int first = written ? 0 : error_no_memory(err);

	for (size_t i = 0; written && i < n; i++) {
		cleanup_error struct error found = { 0 };
		int r = sync_neighbour(s, l, layout, items[i].id, &written[i].cpus, &found);

		if (r == 0)
			written[i].id = items[i].id;
		else if (r != -ENOENT && first == 0)
			first = error_set(err, -r, "container %s: %s", items[i].id, error_text(&found));
	}
	/* A mark too many costs the next one a write, so it is no failure of this one. */
	if (written && n && take_marks_off(l, written, n, NULL) < 0)
		first = first < 0 ? first : 0;
	free(written);
	return first;
}

int sys_settle(struct sys *s, struct ledger *l, const struct facts *facts, struct error *err)
{
	const struct occupant *occupants;
	struct plan_adjust *adjusts = NULL;
	const char *const *stale;
	size_t n = 0, n_adjusts = 0, n_stale;
	int r = ledger_lock(l, err);

	if (r < 0)
		return r;
	r = ledger_occupancy(l, false, &occupants, &n, &stale, &n_stale, err);
	if (r == 0)
		r = plan_neighbours(facts->topo, occupants, n, &adjusts, &n_adjusts);
	if (r == 0)
		r = sys_put_adjusts(l, adjusts, n_adjusts, err);
	ledger_unlock(l);
	if (r == 0)
		r = sys_sync_adjusts(s, l, &facts->cgroup, adjusts, n_adjusts, err);
	plan_adjusts_free(adjusts, n_adjusts);
	return r;
}
