/* Who had which CPU when, in bounded memory. */
#include <errno.h>

#include "sim_internal.h"

static size_t cells_of(const struct sim_world *w)
{
	return w->topo->n_cpus * sizeof(struct sim_cell);
}

/* Makes one column of two: busy by time, owned by whoever was busier there. */
static void merge(const struct sim_world *w, struct sim_column *a, struct sim_column *b)
{
	double of_a = a->to - a->from, of_b = b->to - b->from, whole = of_a + of_b;

	for (size_t i = 0; i < w->topo->n_cpus; i++) {
		double x = a->cells[i].busy * of_a, y = b->cells[i].busy * of_b;

		if (y > x)
			a->cells[i].tenant = b->cells[i].tenant;
		a->cells[i].busy = (uint8_t) (whole > 0 ? (x + y) / whole + 0.5 : 0);
	}
	a->to = b->to;
	free(b->cells);
	b->cells = NULL;
}

static void merge_shortest(struct sim_world *w)
{
	struct sim_result *r = w->result;
	size_t best = 0;

	for (size_t i = 1; i + 1 < r->n_columns; i++)
		if (r->columns[i + 1].to - r->columns[i].from < r->columns[best + 1].to - r->columns[best].from)
			best = i;
	merge(w, &r->columns[best], &r->columns[best + 1]);
	r->n_columns--;
	memmove(&r->columns[best + 1], &r->columns[best + 2], (r->n_columns - best - 1) * sizeof(*r->columns));
}

static void fill(const struct sim_world *w, const struct sim_state *s, const size_t *places, struct sim_cell *cells)
{
	for (size_t i = 0; i < w->topo->n_cpus; i++) {
		if (s->cpus[i].load == SIZE_MAX)
			continue;
		cells[i].tenant = (uint16_t) (w->places[places[s->cpus[i].load]].tenant + 1);
		cells[i].busy = (uint8_t) (s->cpus[i].busy * UINT8_MAX + 0.5);
	}
}

int sim_timeline_add(struct sim_world *w, const struct sim_state *s, const size_t *places, double from, double to)
{
	struct sim_result *r = w->result;
	cleanup_free struct sim_cell *cells = calloc(w->topo->n_cpus + 1, sizeof(*cells));

	if (!r->columns)
		r->columns = calloc(SIM_COLUMNS_MAX + 1, sizeof(*r->columns));
	if (!cells || !r->columns)
		return -ENOMEM;
	fill(w, s, places, cells);
	if (r->n_columns && memcmp(r->columns[r->n_columns - 1].cells, cells, cells_of(w)) == 0) {
		r->columns[r->n_columns - 1].to = to;
		return 0;
	}
	r->columns[r->n_columns++] = (struct sim_column){ .from = from, .to = to, .cells = TAKE_PTR(cells) };
	if (r->n_columns > SIM_COLUMNS_MAX)
		merge_shortest(w);
	return 0;
}
