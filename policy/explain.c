#include "plan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct text {
	char *s; /* NULL before the first line */
	size_t len;
	bool failed; /* memory ran out: there will be no text */
};

static void add(struct text *t, const char *fmt, ...) printf_like(2, 3);
static void add(struct text *t, const char *fmt, ...)
{
	cleanup_free char *more = NULL;
	va_list args;
	char *grown;
	int n;

	va_start(args, fmt);
	n = vasprintf(&more, fmt, args);
	va_end(args);
	if (n < 0) {
		more = NULL;
		t->failed = true;
		return;
	}
	grown = realloc(t->s, t->len + (size_t) n + 1);
	if (!grown) {
		t->failed = true;
		return;
	}
	t->s = grown;
	memcpy(t->s + t->len, more, (size_t) n + 1);
	t->len += (size_t) n;
}

#define line(t, fmt, ...) add(t, fmt "\n", ##__VA_ARGS__)

static void explain_isolation(struct text *t, const struct plan *p, const char *group)
{
	switch (p->mechanism) {
	case MECHANISM_NONE:
		line(t, "isolation: none");
		break;
	case MECHANISM_COOKIE:
		line(t, "isolation: cookie of group %s", group);
		break;
	case MECHANISM_CORES:
		line(t, "isolation: cores of group %s", group);
		break;
	case MECHANISM_NO_SIBLINGS:
		line(t, "isolation: none needed, no core has two threads");
		break;
	}
	if (p->exclusive)
		line(t, "cores: exclusive");
	if (p->degraded)
		line(t, "degraded: something that the class asks for is not enforced");
}

static void explain_memory(struct text *t, const struct plan *p)
{
	cleanup_free char *mems = nodemask_format(p->mems), *nodes = nodemask_format(p->memory_nodes);

	line(t, "memory nodes: %s%s", mems ? mems : "?", p->set_mems ? "" : " (left as they are)");
	line(t, "memory policy: %s%s%s", memory_policy_name(p->memory_policy), p->memory_nodes ? " on nodes " : "",
	     nodes ? nodes : "?");
	if (!p->set_weights)
		return;
	for (unsigned node = 0; node < NODE_MAX; node++)
		if (p->weights[node])
			line(t, "interleave weight of node %u: %u", node, p->weights[node]);
}

static void explain_guard(struct text *t, const struct plan *p)
{
	if (p->guard)
		line(t, "guard: the container may not change its%s%s%s", p->guard & GUARD_COOKIE ? " cookie" : "",
		     p->guard & GUARD_MEMORY ? " memory-policy" : "", p->guard & GUARD_AFFINITY ? " affinity" : "");
	if (p->mechanism == MECHANISM_COOKIE)
		line(t, "exec: %s", exec_cover_name(p->exec));
}

/* "cost: 0.500000 CPUs lost, 0.300000 to …, 0.200000 to …", the greatest first. */
static void explain_cost(struct text *t, const struct cost *c)
{
	struct cost left = *c;
	const struct cost none = { 0 };

	if (!cost_sum(c))
		return;
	add(t, "cost: %.6f CPUs lost", (double) cost_sum(c) / MICRO_CPUS);
	while (cost_sum(&left)) {
		enum cost_term term = cost_deciding(&left, &none);

		add(t, ", %.6f to %s", (double) left.terms[term] / MICRO_CPUS, cost_term_text(term));
		left.terms[term] = 0;
	}
	line(t, "");
}

char *plan_explain(const struct plan *p, const struct place_facts *facts)
{
	cleanup_free char *tenant = printable(facts->tenant, strlen(facts->tenant), TENANT_MAX);
	cleanup_free char *group = printable(facts->group, strlen(facts->group), 2 * TENANT_MAX);
	cleanup_free char *cpus = mask_format(&p->cpus), *wish = mask_format(&p->wish);
	struct text t = { 0 };

	if (!tenant || !group || !cpus || !wish)
		return NULL;
	line(&t, "container %s: tenant %s, class %s", facts->id, tenant, facts->class->name);
	explain_isolation(&t, p, group);
	line(&t, "cpus: %s%s", cpus, p->set_cpus ? "" : " (left as they are)");
	if (!mask_equal(&p->cpus, &p->wish))
		line(&t, "cpus once tenants with cores of their own are gone: %s", wish);
	explain_memory(&t, p);
	explain_guard(&t, p);
	explain_cost(&t, &p->cost);
	for (size_t i = 0; i < p->n_reasons; i++)
		line(&t, "because: %s", p->reasons[i]);
	for (size_t i = 0; i < p->n_rejects; i++)
		line(&t, "not %s: %s", p->rejects[i].candidate, p->rejects[i].why);
	for (size_t i = 0; i < p->n_adjusts; i++) {
		cleanup_free char *moved = mask_format(&p->adjusts[i].cpus);

		line(&t, "neighbour %s: moves to cpus %s", p->adjusts[i].id, moved ? moved : "?");
	}
	if (t.failed) {
		free(t.s);
		return NULL;
	}
	return t.s;
}

/* ---- the same as JSON ---- */

void cost_write(struct json_writer *w, const char *key, const struct cost *c)
{
	json_open_object(w, key);
	json_int(w, "sum", cost_sum(c));
	for (enum cost_term t = COST_CPU; t < COST_TERMS; t++)
		if (c->terms[t])
			json_int(w, cost_term_name(t), c->terms[t]);
	json_close(w);
}

void plan_explain_json(struct json_writer *w, const struct plan *p, const struct place_facts *facts)
{
	json_open_object(w, NULL);
	json_string(w, "container", facts->id);
	json_string(w, "tenant", facts->tenant);
	json_string(w, "group", facts->group);
	json_string(w, "class", facts->class->name);
	cost_write(w, "cost", &p->cost);
	plan_write(w, p);
	json_open_array(w, "reject_costs");
	for (size_t i = 0; i < p->n_rejects; i++)
		cost_write(w, NULL, &p->rejects[i].cost);
	json_close(w);
	json_close(w);
}
