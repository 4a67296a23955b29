/* Moves and packs, as text and as JSON. */
#include "many.h"

#include <errno.h>
#include <stdio.h>

#define GIB 1073741824.0

static double cpus_of(int64_t micro)
{
	return (double) micro / MICRO_CPUS;
}

/* "node 1", "nodes 0-1"; CPUs whose node has no memory have no number. */
static char *place_name(const struct topology *t, const struct mask *cpus, bool by_cpus)
{
	nodemask nodes = nodes_of_cpus(t, cpus);
	cleanup_free char *list = by_cpus || !nodes ? mask_format(cpus) : nodemask_format(nodes);
	const char *what = by_cpus || !nodes ? "CPU" : "node";
	unsigned n = by_cpus || !nodes ? mask_weight(cpus) : bit_count(nodes);
	char *text;

	return list && asprintf(&text, "%s%s %s", what, n == 1 ? "" : "s", list) >= 0 ? text : NULL;
}

/* What most of the gain is. */
static char *gain_text(const struct move *m)
{
	enum cost_term term = cost_deciding(&m->before, &m->after);
	int64_t own = cost_sum(&m->before) - cost_sum(&m->after);
	char *text;

	if (own < m->gain / 2 || m->before.terms[term] <= m->after.terms[term])
		return strdup("most of it by others");
	return asprintf(&text, "most of it lost so far to %s", cost_term_text(term)) < 0 ? NULL : text;
}

static char *memory_text(const struct move *m, const struct container *c)
{
	int64_t costs = m->after.terms[COST_MOVE];
	char *text;

	if (!c->class->memory.migrate && c->memory)
		return strdup("; its memory stays where it is");
	if (!costs && !m->bytes)
		return strdup("");
	return asprintf(&text, "; that is after %.2f CPUs for moving %.1f GiB", cpus_of(costs),
			(double) m->bytes / GIB) < 0 ?
		       NULL :
		       text;
}

char *move_sentence(const struct topology *t, const struct container *c, const struct move *m, const struct mask *from,
		    const struct plan *to, const char *with)
{
	bool by_cpus = nodes_of_cpus(t, from) == nodes_of_cpus(t, &to->cpus);
	cleanup_free char *here = place_name(t, from, by_cpus), *there = place_name(t, &to->cpus, by_cpus);
	cleanup_free char *gain = gain_text(m), *memory = memory_text(m, c);
	char *text;
	int n;

	if (!here || !there || !gain || !memory)
		return NULL;
	if (with)
		n = asprintf(&text, "%s moves from %s to %s, in exchange for %s: together they gain %.2f CPUs%s", c->id,
			     here, there, with, cpus_of(m->gain), memory);
	else
		n = asprintf(&text, "%s moves from %s to %s: gains %.2f CPUs, %s%s", c->id, here, there,
			     cpus_of(m->gain), gain, memory);
	return n < 0 ? NULL : text;
}

/* Replaces *text by it and a line more; NULL stays NULL. */
static void add_line(char **text, const char *line)
{
	cleanup_free char *before = *text;

	if (before && (!line || asprintf(text, "%s%s\n", before, line) < 0))
		*text = NULL;
}

char *moves_explain(const struct moves *m)
{
	cleanup_free char *sum = NULL;
	char *text = strdup("");

	for (size_t i = 0; i < m->n; i++)
		add_line(&text, m->list[i].why ? m->list[i].why : m->list[i].id);
	if (m->full)
		add_line(&text, "no moves: containers want all that the machine can do");
	else if (!m->n)
		add_line(&text, m->movable ? "no moves: none would gain enough" : "no moves: no container may be moved");
	if (asprintf(&sum, "all containers together lose %.2f CPUs, and %.2f before", cpus_of(cost_sum(&m->after)),
		     cpus_of(cost_sum(&m->before))) < 0)
		sum = NULL;
	if (m->n)
		add_line(&text, sum);
	return text;
}

char *pack_explain(const struct pack *p)
{
	char *text = strdup("");

	for (size_t i = 0; i < p->n; i++) {
		const struct packed *at = &p->list[i];
		cleanup_free char *cpus = at->plan ? mask_format(&at->plan->cpus) : NULL;
		char *line = NULL;
		int n;

		if (at->plan)
			n = asprintf(&line, "%s: cpus %s, loses %.2f CPUs", at->id, cpus ? cpus : "?",
				     cpus_of(cost_sum(&at->plan->cost)));
		else
			n = asprintf(&line, "%s: not placed: %s", at->id, error_text(&at->why));
		add_line(&text, n < 0 ? NULL : line);
		if (n >= 0)
			free(line);
	}
	for (size_t i = 0; i < p->n_adjusts; i++) {
		cleanup_free char *cpus = mask_format(&p->adjusts[i].cpus);
		cleanup_free char *line = NULL;

		if (asprintf(&line, "neighbour %s: moves to cpus %s", p->adjusts[i].id, cpus ? cpus : "?") < 0)
			line = NULL;
		add_line(&text, line);
	}
	return text;
}

/* ---- JSON ---- */

void moves_write(struct json_writer *w, const struct moves *m)
{
	json_open_object(w, NULL);
	json_open_array(w, "moves");
	for (size_t i = 0; i < m->n; i++) {
		const struct move *at = &m->list[i];

		json_open_object(w, NULL);
		json_string(w, "container", at->id);
		json_string(w, "why", at->why);
		json_int(w, "gain", at->gain);
		json_int(w, "bytes", at->bytes < INT64_MAX ? (int64_t) at->bytes : INT64_MAX);
		json_bool(w, "swap", at->swap != 0 || (i > 0 && m->list[i - 1].swap != 0));
		cost_write(w, "before", &at->before);
		cost_write(w, "after", &at->after);
		json_open_object(w, "plan");
		plan_write(w, at->plan);
		json_close(w);
		json_close(w);
	}
	json_close(w);
	cost_write(w, "before", &m->before);
	cost_write(w, "after", &m->after);
	json_int(w, "movable", (int64_t) m->movable);
	json_int(w, "considered", (int64_t) m->considered);
	json_bool(w, "full", m->full);
	json_close(w);
}

static void write_adjusts(struct json_writer *w, const struct pack *p)
{
	json_open_array(w, "adjusts");
	for (size_t i = 0; i < p->n_adjusts; i++) {
		cleanup_free char *cpus = mask_format(&p->adjusts[i].cpus);

		if (!cpus)
			json_writer_fail(w, -ENOMEM);
		json_open_object(w, NULL);
		json_string(w, "id", p->adjusts[i].id);
		json_string(w, "cpus", cpus);
		json_close(w);
	}
	json_close(w);
}

void pack_write(struct json_writer *w, const struct pack *p)
{
	json_open_object(w, NULL);
	json_open_array(w, "containers");
	for (size_t i = 0; i < p->n; i++) {
		const struct packed *at = &p->list[i];

		json_open_object(w, NULL);
		json_string(w, "container", at->id);
		if (at->plan) {
			cost_write(w, "cost", &at->plan->cost);
			json_open_object(w, "plan");
			plan_write(w, at->plan);
			json_close(w);
		} else {
			json_string(w, "error", error_text(&at->why));
		}
		json_close(w);
	}
	json_close(w);
	write_adjusts(w, p);
	cost_write(w, "cost", &p->cost);
	json_close(w);
}
