/* Which tenant, class and group each container of a scenario belongs to. */
#include <errno.h>

#include "sim_internal.h"

#define TENANTS_MAX (UINT16_MAX - 1)

static const struct policy_class *class_named(const struct policy *p, const char *name)
{
	for (size_t i = 0; i < p->n_classes; i++)
		if (str_eq(p->classes[i]->name, name))
			return p->classes[i];
	return NULL;
}

static int find_role(struct sim_world *w, const struct sim_container *c, struct sim_role *ret)
{
	const struct match_facts facts = { .id = c->id, .stage = "createRuntime", .annotations = &c->annotations };
	struct arena *a = &w->result->arena;
	struct policy_match match = { .tenant = c->tenant, .class = NULL };
	const struct policy_class *class = c->class ? class_named(w->policy, c->class) : NULL;
	int r = 0;

	if (c->class && !class)
		return error_set(w->err, EINVAL, "%s: container %s: the policy has no class \"%s\"", w->scenario->file,
				 c->id, c->class);
	if (!c->class || !c->tenant)
		r = policy_match(w->policy, &facts, a, &match, w->err);
	if (r < 0)
		return r == -ENOMEM ? r : error_prefix(w->err, -EINVAL, "%s", w->scenario->file);
	ret->class = class ? class : match.class;
	ret->tenant_name = c->tenant ? c->tenant : match.tenant;
	ret->group_name = match.group;
	if (c->tenant || c->class)
		ret->group_name = ret->class->isolation.scope == SCOPE_TENANT ?
					  ret->tenant_name :
					  arena_printf(a, "%s/%s", ret->tenant_name, c->id);
	return ret->group_name ? 0 : error_no_memory(w->err);
}

/* A name of the container `first`. */
struct name {
	const char *name;
	size_t first;
};

static int by_name(const void *x, const void *y)
{
	const struct name *a = x, *b = y;
	int order = strcmp(a->name, b->name);

	return order ? order : (a->first > b->first) - (a->first < b->first);
}

/* For each name's place in the list, which container had it first. */
static void find_first(struct name *names, size_t n, size_t *ret_first)
{
	size_t first = 0;

	qsort(names, n, sizeof(*names), by_name);
	for (size_t i = 0; i < n; i++) {
		if (i == 0 || !str_eq(names[i].name, names[i - 1].name))
			first = names[i].first;
		ret_first[names[i].first] = first;
	}
}

static int number(const struct sim_world *w, struct sim_role *roles, bool groups)
{
	size_t n = w->scenario->n_containers, next = 0;
	cleanup_free struct name *names = calloc(n + 1, sizeof(*names));
	cleanup_free size_t *first = calloc(n + 1, sizeof(*first));

	if (!names || !first)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		names[i] = (struct name){ groups ? roles[i].group_name : roles[i].tenant_name, i };
	if (n)
		find_first(names, n, first);
	for (size_t i = 0; i < n; i++) {
		unsigned *value = groups ? &roles[i].group : &roles[i].tenant;

		if (first[i] != i)
			*value = groups ? roles[first[i]].group : roles[first[i]].tenant;
		else
			*value = (unsigned) next++ + groups;
	}
	return 0;
}

static int open_tenants(struct sim_world *w, const struct sim_role *roles)
{
	struct sim_result *r = w->result;

	for (size_t i = 0; i < w->scenario->n_containers; i++)
		if (roles[i].tenant >= r->n_tenants)
			r->n_tenants = roles[i].tenant + 1;
	if (r->n_tenants > TENANTS_MAX)
		return error_set(w->err, E2BIG, "%s: %zu tenants; at most %d are supported", w->scenario->file,
				 r->n_tenants, TENANTS_MAX);
	r->tenants = calloc(r->n_tenants + 1, sizeof(*r->tenants));
	if (!r->tenants)
		return error_no_memory(w->err);
	for (size_t i = 0; i < w->scenario->n_containers; i++) {
		struct sim_tenant *t = &r->tenants[roles[i].tenant];

		t->containers++;
		if (!t->name)
			t->name = arena_strdup(&r->arena, roles[i].tenant_name);
		if (!t->name)
			return error_no_memory(w->err);
	}
	return 0;
}

int sim_roles(struct sim_world *w, struct sim_role **ret_roles)
{
	size_t n = w->scenario->n_containers;
	cleanup_free struct sim_role *roles = calloc(n + 1, sizeof(*roles));
	int r = roles ? 0 : -ENOMEM;

	for (size_t i = 0; i < n && r == 0; i++)
		r = find_role(w, &w->scenario->containers[i], &roles[i]);
	if (r == 0)
		r = number(w, roles, false);
	if (r == 0)
		r = number(w, roles, true);
	if (r == 0)
		r = open_tenants(w, roles);
	if (r < 0)
		return r == -ENOMEM ? error_no_memory(w->err) : r;
	*ret_roles = TAKE_PTR(roles);
	return 0;
}
