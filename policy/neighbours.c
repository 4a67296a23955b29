#include "place.h"

#include <errno.h>

/*
 * Who must keep off which cores. CORES containers of one group may share cores with their group, so what a container
 * must keep off depends on its group, but only through the one mask that its own group's owners have.
 */
struct fence {
	const char *group;
	struct mask cores;
};

struct fences {
	const struct topology *topo;
	size_t words;          /* of a mask, up to the last CPU */
	struct mask cores;     /* whole cores of every CORES container that is not exclusive */
	struct mask exclusive; /* whole cores of every exclusive container */
	struct fence *groups;  /* by name */
	size_t n_groups;
};

void fences_freep(struct fences **f)
{
	if (*f)
		free((*f)->groups);
	free(*f);
	*f = NULL;
}

static int compare_fences(const void *x, const void *y)
{
	const struct fence *a = x, *b = y;

	return strcmp(a->group, b->group);
}

static void fences_add(struct fences *f, const struct occupant *o)
{
	if (o->exclusive)
		mask_or(&f->exclusive, o->cpus);
	else if (o->mechanism == MECHANISM_CORES)
		f->groups[f->n_groups++] = (struct fence){ .group = o->group, .cores = *o->cpus };
}

static void fences_merge(struct fences *f)
{
	size_t kept = 0;

	if (!f->n_groups)
		return;
	qsort(f->groups, f->n_groups, sizeof(*f->groups), compare_fences);
	for (size_t i = 1; i < f->n_groups; i++) {
		if (str_eq(f->groups[i].group, f->groups[kept].group))
			mask_or(&f->groups[kept].cores, &f->groups[i].cores);
		else
			f->groups[++kept] = f->groups[i];
	}
	f->n_groups = kept + 1;
}

/* Widens all groups to whole cores at once: one group after the other would be groups times CPUs. */
static int fences_widen(struct fences *f)
{
	const struct topology *t = f->topo;
	cleanup_free struct fence **owner = calloc(t->n_cores + 1, sizeof(*owner)); /* by core */
	cleanup_free struct fence **by_cpu = calloc(f->words * 64 + 1, sizeof(*by_cpu));

	if (!owner || !by_cpu)
		return -ENOMEM;
	for (size_t i = 0; i < f->n_groups; i++)
		MASK_FOR_EACH(cpu, &f->groups[i].cores)
			if (cpu < f->words * 64)
				by_cpu[cpu] = &f->groups[i];
	for (size_t i = 0; i < t->n_cpus; i++)
		if (by_cpu[t->cpus[i].id])
			owner[t->cpus[i].core] = by_cpu[t->cpus[i].id];
	for (size_t i = 0; i < t->n_cpus; i++) {
		struct fence *fence = owner[t->cpus[i].core];

		if (!fence)
			continue;
		mask_set(&fence->cores, t->cpus[i].id);
		mask_set(&f->cores, t->cpus[i].id);
	}
	return 0;
}

static bool replaced(const struct occupant *o, const struct occupant *newcomer)
{
	return newcomer && str_eq(o->id, newcomer->id);
}

int fences_new(const struct topology *topo, const struct occupant *occupants, size_t n, const struct occupant *newcomer,
	       struct fences **ret_fences)
{
	cleanup_fences struct fences *f = calloc(1, sizeof(*f));
	size_t owners = 1;
	int r;

	if (!f)
		return -ENOMEM;
	f->topo = topo;
	f->words = topology_words(topo);
	for (size_t i = 0; i < n; i++)
		owners += occupant_owns(&occupants[i]);
	f->groups = calloc(owners, sizeof(*f->groups));
	if (!f->groups)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (!replaced(&occupants[i], newcomer))
			fences_add(f, &occupants[i]);
	if (newcomer)
		fences_add(f, newcomer);
	fences_merge(f);
	r = fences_widen(f);
	if (r < 0)
		return r;
	topology_whole_cores(topo, &f->exclusive, &f->exclusive);
	*ret_fences = TAKE_PTR(f);
	return 0;
}

static const struct fence *fence_of(const struct fences *f, const struct occupant *o)
{
	const struct fence key = { .group = o->group };

	return f->n_groups ? bsearch(&key, f->groups, f->n_groups, sizeof(*f->groups), compare_fences) : NULL;
}

static uint64_t target_word(const struct fences *f, const struct fence *own, const struct occupant *o, size_t i)
{
	uint64_t off = f->cores.w[i] & ~(own ? own->cores.w[i] : 0);

	return o->wish->w[i] & f->topo->online.w[i] & ~off & ~f->exclusive.w[i];
}

void fences_target(const struct fences *f, const struct occupant *o, struct mask *ret_target)
{
	const struct fence *own = fence_of(f, o);
	struct mask target = { 0 };

	for (size_t i = 0; i < f->words; i++)
		target.w[i] = target_word(f, own, o, i);
	*ret_target = target;
}

/*
 * Whether an occupant's cpuset has to change. Owners keep what they have. `sure`: it has to be written too when only the
 * ledger is known to say what it should, an owner's among them: outside of what it owns it would be on others' cores.
 */
static bool must_change(const struct fences *f, const struct occupant *o, bool sure)
{
	const struct fence *own;
	uint64_t any = 0, added = 0, removed = 0;

	if (occupant_owns(o))
		return sure && o->unsynced;
	own = fence_of(f, o);
	for (size_t i = 0; i < f->words; i++) {
		uint64_t target = target_word(f, own, o, i);

		any |= target;
		added |= target & ~o->cpus->w[i];
		removed |= o->cpus->w[i] & ~target;
	}
	/*
	 * That nothing is left of a wish cannot come about through plan_place(); such a container stays where it is.
	 * And what someone else gave may be given back, never taken.
	 */
	return any && ((sure && o->unsynced) || (removed ? !o->bound : added != 0));
}

void plan_adjusts_free(struct plan_adjust *adjusts, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(adjusts[i].id);
	free(adjusts);
}

static int push_adjust(struct plan_adjust **list, size_t *n, size_t *room, const char *id, const struct mask *cpus)
{
	char *copy;

	if (*n == *room) {
		size_t more = *room ? *room * 2 : 8;
		struct plan_adjust *grown = realloc(*list, more * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		*list = grown;
		*room = more;
	}
	copy = strdup(id);
	if (!copy)
		return -ENOMEM;
	(*list)[(*n)++] = (struct plan_adjust){ .id = copy, .cpus = *cpus };
	return 0;
}

int neighbours_with(const struct topology *topo, const struct occupant *occupants, size_t n,
		    const struct occupant *newcomer, struct plan_adjust **ret, size_t *ret_n)
{
	cleanup_fences struct fences *f = NULL;
	/* A newcomer that owns nothing asks nothing of others, and must not fail for their sake. */
	const bool sure = !newcomer || occupant_owns(newcomer);
	struct plan_adjust *list = NULL;
	size_t n_list = 0, room = 0;
	int r = fences_new(topo, occupants, n, newcomer, &f);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r >= 0; i++) {
		struct mask target = *occupants[i].cpus;

		if (replaced(&occupants[i], newcomer) || !must_change(f, &occupants[i], sure))
			continue;
		if (!occupant_owns(&occupants[i]))
			fences_target(f, &occupants[i], &target);
		r = push_adjust(&list, &n_list, &room, occupants[i].id, &target);
	}
	if (r < 0) {
		plan_adjusts_free(list, n_list);
		return r;
	}
	*ret = list;
	*ret_n = n_list;
	return 0;
}

int plan_neighbours(const struct topology *topo, const struct occupant *occupants, size_t n, struct plan_adjust **ret,
		    size_t *ret_n)
{
	return neighbours_with(topo, occupants, n, NULL, ret, ret_n);
}
