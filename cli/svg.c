/*
 * Who had which CPU when, as a picture: a panel for each strategy, CPUs downwards in the order of the topology, time to
 * the right, a colour for each tenant. Runs of equal cells are one line, and all lines of a colour one path.
 */
#include "cli.h"

#include <errno.h>
#include <stdio.h>

#define WIDTH 1200
#define LEFT 165      /* of the plot */
#define RIGHT 970
#define TITLE 46      /* heights */
#define PANEL_HEAD 26
#define PANEL_FOOT 40
#define FIGURES 134   /* beside a panel: never lower than what stands there */
#define LEGEND_ROW 20
#define LEGEND_COLUMN 190
#define LEGEND_MAX 24 /* tenants */
#define NAME_MAX_SHOWN 22
#define LEVELS 8      /* of opacity */
#define ROWS_HEIGHT 320
#define ROW_MAX 14
#define LABEL_HEIGHT 10

/* Okabe and Ito's colours, which the colour-blind can tell apart, brown for their black; then the same, darker. */
static const char *const colours[] = { "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d31", "#f0e442",
				       "#003d60", "#7f5800", "#00513b", "#6e3100", "#6d3f5c", "#2c5f7a", "#47371a", "#7c7521" };

struct line {
	unsigned tenant, level; /* level 1 … LEVELS */
	unsigned row;
	double from, to; /* on the page */
};

struct group {
	unsigned kind; /* column of labels: package, node, last-level cache */
	int id;
	unsigned top, bottom;
};
enum { GROUP_PACKAGE, GROUP_NODE, GROUP_LLC, GROUP_KINDS };

struct picture {
	FILE *out;
	const struct sim_scenario *scenario;
	const struct topology *topo;
	size_t *order;  /* of CPUs, by index into the topology's */
	unsigned *tops; /* of rows, by place in the order, from the panel's own top */
	struct group *groups;
	size_t n_groups;
	unsigned row, rows_height; /* height of one, of all with their gaps */
	struct line *lines;
	size_t n_lines, room;
	size_t n_tenants;
};

static void picture_done(struct picture *p)
{
	free(p->order);
	free(p->tops);
	free(p->groups);
	free(p->lines);
}

/* ---- text ---- */

/* XML has no place for control characters, not even escaped; printable() has no place for them either. */
static void put_text(struct picture *p, const char *text, size_t max)
{
	cleanup_free char *shown = printable(text, strlen(text), max);

	for (const char *c = shown ? shown : "?"; *c; c++) {
		if (*c == '<')
			fputs("&lt;", p->out);
		else if (*c == '>')
			fputs("&gt;", p->out);
		else if (*c == '&')
			fputs("&amp;", p->out);
		else if (*c == '"')
			fputs("&quot;", p->out);
		else if (str_starts(c, "\xef\xbf\xbe") || str_starts(c, "\xef\xbf\xbf")) /* U+FFFE and U+FFFF neither */
			c += 2;
		else
			putc(*c, p->out);
	}
}

static void label(struct picture *p, double x, double y, const char *anchor, const char *text)
{
	fprintf(p->out, "<text x=\"%.4g\" y=\"%.6g\" text-anchor=\"%s\">", x, y, anchor);
	put_text(p, text, 80);
	fputs("</text>\n", p->out);
}

/* ---- rows ---- */

static int group_id(const struct topo_cpu *c, unsigned kind)
{
	return kind == GROUP_PACKAGE ? c->package : kind == GROUP_NODE ? c->node : c->llc;
}

static int in_order(const void *x, const void *y, void *arg)
{
	const struct topology *t = arg;
	const struct topo_cpu *a = &t->cpus[*(const size_t *) x], *b = &t->cpus[*(const size_t *) y];

	for (unsigned kind = 0; kind < GROUP_KINDS; kind++)
		if (group_id(a, kind) != group_id(b, kind))
			return group_id(a, kind) < group_id(b, kind) ? -1 : 1;
	if (a->core != b->core)
		return a->core < b->core ? -1 : 1;
	return (a->id > b->id) - (a->id < b->id);
}

/* Opens the groups that begin with the CPU at a place, and widens those that go on. */
static unsigned add_row(struct picture *p, size_t at, size_t current[GROUP_KINDS], unsigned y)
{
	static const unsigned gaps[GROUP_KINDS] = { 9, 5, 2 };
	const struct topo_cpu *cpu = &p->topo->cpus[p->order[at]];
	bool begins = at == 0;

	for (unsigned kind = 0; kind < GROUP_KINDS; kind++) {
		if (!begins && group_id(cpu, kind) != p->groups[current[kind]].id) {
			begins = true;
			y += gaps[kind];
		}
		if (begins) {
			current[kind] = p->n_groups;
			p->groups[p->n_groups++] = (struct group){ kind, group_id(cpu, kind), y, 0 };
		}
		p->groups[current[kind]].bottom = y + p->row;
	}
	p->tops[at] = y;
	return y + p->row;
}

static int lay_out(struct picture *p)
{
	const struct topology *t = p->topo;
	size_t current[GROUP_KINDS] = { 0 };
	unsigned y = 0;

	p->order = calloc(t->n_cpus + 1, sizeof(*p->order));
	p->tops = calloc(t->n_cpus + 1, sizeof(*p->tops));
	p->groups = calloc(GROUP_KINDS * t->n_cpus + 1, sizeof(*p->groups));
	if (!p->order || !p->tops || !p->groups)
		return -ENOMEM;
	for (size_t i = 0; i < t->n_cpus; i++)
		p->order[i] = i;
	qsort_r(p->order, t->n_cpus, sizeof(*p->order), in_order, (void *) t);
	p->row = (unsigned) (ROWS_HEIGHT / (t->n_cpus + 1));
	p->row = p->row < 1 ? 1 : p->row > ROW_MAX ? ROW_MAX : p->row;
	for (size_t i = 0; i < t->n_cpus; i++)
		y = add_row(p, i, current, y);
	p->rows_height = y;
	return 0;
}

/* ---- cells ---- */

static double x_of(const struct picture *p, double seconds)
{
	return LEFT + (RIGHT - LEFT) * (seconds / p->scenario->until);
}

static unsigned level_of(const struct sim_cell *c)
{
	return c->tenant && c->busy ? 1 + c->busy * (LEVELS - 1) / 255 : 0;
}

static int add_line(struct picture *p, struct line line)
{
	if (p->n_lines == p->room) {
		size_t room = p->room ? p->room * 2 : 1024;
		struct line *grown = reallocarray(p->lines, room, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		p->lines = grown;
		p->room = room;
	}
	p->lines[p->n_lines++] = line;
	return 0;
}

static int collect_row(struct picture *p, const struct sim_result *r, size_t at)
{
	size_t cpu = p->order[at];

	for (size_t from = 0, to; from < r->n_columns; from = to) {
		const struct sim_cell *cell = &r->columns[from].cells[cpu];
		unsigned level = level_of(cell);

		for (to = from + 1; to < r->n_columns; to++) {
			const struct sim_cell *next = &r->columns[to].cells[cpu];

			if (level_of(next) != level || (level && next->tenant != cell->tenant))
				break;
		}
		if (level && add_line(p, (struct line){ cell->tenant - 1u, level, (unsigned) at,
							x_of(p, r->columns[from].from), x_of(p, r->columns[to - 1].to) }) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int by_colour(const void *x, const void *y)
{
	const struct line *a = x, *b = y;

	if (a->tenant != b->tenant)
		return a->tenant < b->tenant ? -1 : 1;
	if (a->level != b->level)
		return a->level < b->level ? -1 : 1;
	if (a->row != b->row)
		return a->row < b->row ? -1 : 1;
	return (a->from > b->from) - (a->from < b->from);
}

static const char *colour_of(size_t tenant)
{
	return colours[tenant % ARRAY_LEN(colours)];
}

static double opacity_of(unsigned level)
{
	return 0.2 + 0.8 * level / LEVELS;
}

static int draw_cells(struct picture *p, const struct sim_result *r, double top)
{
	int e = 0;

	p->n_lines = 0;
	for (size_t i = 0; i < p->topo->n_cpus && e == 0; i++)
		e = collect_row(p, r, i);
	if (e < 0)
		return e;
	if (p->n_lines)
		qsort(p->lines, p->n_lines, sizeof(*p->lines), by_colour);
	fprintf(p->out, "<g fill=\"none\" stroke-width=\"%u\" shape-rendering=\"crispEdges\">\n", p->row);
	for (size_t i = 0; i < p->n_lines; i++) {
		const struct line *l = &p->lines[i], *before = i ? l - 1 : NULL;

		if (!before || before->tenant != l->tenant || before->level != l->level)
			fprintf(p->out, "%s<path stroke=\"%s\" stroke-opacity=\"%.2f\" d=\"", before ? "\"/>\n" : "",
				colour_of(l->tenant), opacity_of(l->level));
		fprintf(p->out, "M%.6g %.6gH%.6g", l->from, top + p->tops[l->row] + p->row / 2.0, l->to);
	}
	fputs(p->n_lines ? "\"/>\n</g>\n" : "</g>\n", p->out);
	return 0;
}

/* ---- around them ---- */

static void draw_groups(struct picture *p, double top)
{
	static const char *const names[GROUP_KINDS] = { "package", "node", "cache" };
	static const double places[GROUP_KINDS] = { 8, 78, 0 };
	const struct topology *t = p->topo;

	for (size_t i = 0; i < p->n_groups; i++) {
		const struct group *g = &p->groups[i];
		cleanup_free char *name = NULL;

		if (g->kind == GROUP_LLC)
			fprintf(p->out, "<rect x=\"%d\" y=\"%.6g\" width=\"%d\" height=\"%u\" fill=\"#eeeeee\"/>\n", LEFT,
				top + g->top, RIGHT - LEFT, g->bottom - g->top);
		else if (g->bottom - g->top >= LABEL_HEIGHT &&
			 asprintf(&name, g->id < 0 ? "no node" : "%s %d", names[g->kind], g->id) >= 0)
			label(p, places[g->kind], top + (g->top + g->bottom) / 2.0 + 4, "start", name);
	}
	fputs("<g font-size=\"9\" fill=\"#666666\">\n", p->out);
	for (size_t i = 0, next; i < t->n_cpus; i = next) {
		cleanup_free char *name = NULL;

		/* Labels that would overlap are left out. */
		for (next = i + 1; next < t->n_cpus && p->tops[next] < p->tops[i] + LABEL_HEIGHT; next++)
			;
		if (asprintf(&name, "%s%u", i ? "" : "CPU ", t->cpus[p->order[i]].id) >= 0)
			label(p, LEFT - 5, top + p->tops[i] + p->row / 2.0 + 3, "end", name);
	}
	fputs("</g>\n", p->out);
}

/* 1, 2 or 5 times a power of ten, and ten steps at most. */
static double step_of(double whole)
{
	static const double factors[] = { 2, 2.5, 2 };
	double step = 1e-4;

	for (size_t i = 0; whole / step > 10; i++)
		step *= factors[i % ARRAY_LEN(factors)];
	return step;
}

static void draw_axis(struct picture *p, double y)
{
	double until = p->scenario->until, step = step_of(until);

	fprintf(p->out, "<path d=\"M%d %.6gH%d\" stroke=\"#666666\"/>\n", LEFT, y, RIGHT);
	for (unsigned i = 0; i * step <= until * (1 + 1e-9); i++) {
		cleanup_free char *seconds = NULL;
		double x = x_of(p, i * step);

		fprintf(p->out, "<path d=\"M%.6g %.6gv5\" stroke=\"#666666\"/>\n", x, y);
		if (asprintf(&seconds, "%.6g%s", i * step, i ? "" : " s") >= 0)
			label(p, x, y + 18, "middle", seconds);
	}
}

static void figure(struct picture *p, double *y, const char *what, double number, int digits, const char *unit)
{
	fprintf(p->out, "<text x=\"%d\" y=\"%.6g\">%s</text>", RIGHT + 20, *y, what);
	fprintf(p->out, "<text x=\"%d\" y=\"%.6g\" text-anchor=\"end\">%.*f%s</text>\n", WIDTH - 15, *y, digits, number,
		unit);
	*y += 17;
}

static void draw_figures(struct picture *p, const struct sim_result *r, double top)
{
	double y = top + 22;

	fprintf(p->out, "<text x=\"%d\" y=\"%.6g\">speed</text>", RIGHT + 20, y);
	fprintf(p->out, "<text x=\"%d\" y=\"%.6g\" font-size=\"22\" font-weight=\"bold\" text-anchor=\"end\">%.3f</text>\n",
		WIDTH - 15, y, r->speed);
	y += 20;
	figure(p, &y, "worst tenant", r->worst, 3, "");
	figure(p, &y, "forced idle", r->forced_idle, 1, " CPU s");
	figure(p, &y, "insecure", r->insecure, 1, " CPU s");
	figure(p, &y, "remote", r->remote * 100, 1, " %");
	figure(p, &y, "migrations", (double) r->migrations, 0, "");
	figure(p, &y, "refused", (double) r->refused, 0, "");
}

static double panel_height(const struct picture *p)
{
	return PANEL_HEAD + (p->rows_height > FIGURES ? p->rows_height : FIGURES) + PANEL_FOOT;
}

static int draw_panel(struct picture *p, const struct sim_result *r, double top)
{
	int e;

	fprintf(p->out, "<g class=\"panel\">\n<text x=\"8\" y=\"%.6g\" font-size=\"14\"><tspan font-weight=\"bold\">%s</tspan>: ",
		top + 17, sim_strategy_name(r->strategy));
	put_text(p, sim_strategy_text(r->strategy), 80);
	fputs("</text>\n", p->out);
	top += PANEL_HEAD;
	draw_groups(p, top);
	e = draw_cells(p, r, top);
	draw_axis(p, top + p->rows_height + 3);
	draw_figures(p, r, top);
	fputs("</g>\n", p->out);
	return e;
}

/* ---- the legend ---- */

static size_t legend_entries(const struct picture *p)
{
	return p->n_tenants > LEGEND_MAX ? LEGEND_MAX + 1 : p->n_tenants;
}

static double legend_height(const struct picture *p)
{
	size_t a_row = (WIDTH - 16) / LEGEND_COLUMN, rows = (legend_entries(p) + a_row - 1) / a_row + 1;

	return (double) (rows * LEGEND_ROW + 16);
}

static void draw_legend(struct picture *p, const struct sim_result *r, double top)
{
	size_t a_row = (WIDTH - 16) / LEGEND_COLUMN, n = legend_entries(p);
	double y = top;

	for (size_t i = 0; i < n; i++) {
		double x = 8 + (double) (i % a_row) * LEGEND_COLUMN;
		size_t row = i / a_row;

		y = top + (double) row * LEGEND_ROW;
		if (i == LEGEND_MAX) {
			fprintf(p->out, "<text x=\"%.6g\" y=\"%.6g\">and %zu more</text>\n", x, y + 11, r->n_tenants - LEGEND_MAX);
			break;
		}
		fprintf(p->out, "<rect x=\"%.6g\" y=\"%.6g\" width=\"14\" height=\"14\" fill=\"%s\"/><text x=\"%.6g\" y=\"%.6g\">",
			x, y, colour_of(i), x + 20, y + 11);
		put_text(p, r->tenants[i].name, NAME_MAX_SHOWN);
		fputs("</text>\n", p->out);
	}
	y += LEGEND_ROW + 4;
	fprintf(p->out, "<rect x=\"8\" y=\"%.6g\" width=\"14\" height=\"14\" fill=\"#eeeeee\"/><text x=\"28\" y=\"%.6g\">idle</text>\n",
		y, y + 11);
	for (unsigned level = 1; level <= LEVELS; level++)
		fprintf(p->out, "<rect x=\"%u\" y=\"%.6g\" width=\"14\" height=\"14\" fill=\"#555555\" fill-opacity=\"%.2f\"/>\n",
			50 + 14 * level, y, opacity_of(level));
	fprintf(p->out, "<text x=\"%d\" y=\"%.6g\">busy for little to all of the time%s</text>\n", 50 + 14 * (LEVELS + 1) + 6,
		y + 11, r->n_tenants > ARRAY_LEN(colours) ? "; colours repeat, in the order of the tenants" : "");
}

static int draw_all(struct picture *p, struct sim_result *const results[], size_t n)
{
	const struct sim_result *first = NULL;
	size_t panels = 0;
	double y = TITLE;
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		first = !first && !results[i]->skipped ? results[i] : first;
		panels += !results[i]->skipped;
	}
	p->n_tenants = first ? first->n_tenants : 0;
	fprintf(p->out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.6g\" viewBox=\"0 0 %d %.6g\" "
		"font-family=\"sans-serif\" font-size=\"12\">\n<title>",
		WIDTH, TITLE + legend_height(p) + (double) panels * panel_height(p), WIDTH,
		TITLE + legend_height(p) + (double) panels * panel_height(p));
	put_text(p, p->scenario->name, SIZE_MAX / 8);
	fputs("</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<g fill=\"#222222\">\n"
	      "<text x=\"8\" y=\"28\" font-size=\"18\" font-weight=\"bold\">", p->out);
	put_text(p, p->scenario->name, 100);
	fputs("</text>\n", p->out);
	if (first)
		draw_legend(p, first, y);
	y += legend_height(p);
	for (size_t i = 0; i < n && r == 0; i++)
		if (!results[i]->skipped) {
			r = draw_panel(p, results[i], y);
			y += panel_height(p);
		}
	fputs("</g>\n</svg>\n", p->out);
	return r;
}

int svg_draw(const struct sim_scenario *s, const struct topology *topo, struct sim_result *const results[], size_t n,
	     char **ret_text, size_t *ret_len)
{
	cleanup_with(picture_done) struct picture p = { .scenario = s, .topo = topo };
	cleanup_free char *text = NULL;
	size_t len = 0;
	bool broken;
	int r = lay_out(&p);

	if (r < 0)
		return r;
	p.out = open_memstream(&text, &len);
	if (!p.out)
		return -ENOMEM;
	r = draw_all(&p, results, n);
	broken = ferror(p.out) != 0;
	broken |= fclose(p.out) != 0;
	if (r < 0 || broken)
		return -ENOMEM;
	*ret_text = TAKE_PTR(text);
	*ret_len = len;
	return 0;
}
