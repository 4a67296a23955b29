/* cotenant simulate: a scenario played under several strategies, compared in tables, as JSON and in a picture. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

struct simulation {
	struct sim_scenario *scenario;
	struct topology *topo;
	struct policy *policy;
	struct sim_result *results[SIM_STRATEGIES]; /* those that were asked for, in the order of the strategies */
	size_t n;
};

static void simulation_done(struct simulation *s)
{
	for (size_t i = 0; i < s->n; i++)
		sim_result_free(s->results[i]);
	policy_free(s->policy);
	topology_free(s->topo);
	sim_scenario_free(s->scenario);
}

/* ---- what is read ---- */

/* A path of a scenario: relative to the directory of its file. malloc'd. */
static char *beside(const char *file, const char *path)
{
	const char *slash = strrchr(file, '/');
	char *joined = NULL;

	if (!slash || path[0] == '/')
		return strdup(path);
	return asprintf(&joined, "%.*s%s", (int) (slash - file) + 1, file, path) < 0 ? NULL : joined;
}

static int read_scenario(const char *path, struct sim_scenario **ret_scenario, struct error *err)
{
	/* O_NONBLOCK: a FIFO that nobody writes to is empty, and nothing to wait for. */
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	cleanup_free char *text = NULL;
	size_t len = 0;
	int r = fd < 0 ? -errno : file_read_fd(fd, SIM_SCENARIO_MAX, &text, &len);

	if (r == -EFBIG)
		return error_set(err, EFBIG, "%s: is larger than %u bytes", path, SIM_SCENARIO_MAX);
	if (r < 0)
		return error_set(err, -r, "%s: %s", path, strerror(-r));
	return sim_parse(path, text, len, ret_scenario, err);
}

/* A directory with a copy of /sys. */
static int captured_topology(const char *root, struct topology **ret_topology, struct error *err)
{
	cleanup_sys struct sys sys = { .root_fd = -1 };
	cleanup_facts struct facts facts = { 0 };
	int r = sys_open(root, &sys, err);

	r = r < 0 ? r : facts_look(&sys, root, &facts, err);
	if (r < 0)
		return r;
	*ret_topology = TAKE_PTR(facts.topo);
	return 0;
}

static int load_topology(struct simulation *s, struct error *err)
{
	const struct sim_scenario *scenario = s->scenario;
	cleanup_free char *path = beside(scenario->file, scenario->topology);
	int r = 0;

	if (!path)
		return error_no_memory(err);
	switch (scenario->topology_kind) {
	case SIM_TOPOLOGY_XML:
		r = topology_from_file(path, &s->topo, err);
		break;
	case SIM_TOPOLOGY_SYNTHETIC:
		r = topology_from_synthetic(scenario->topology, &s->topo, err);
		break;
	case SIM_TOPOLOGY_ROOT:
		r = captured_topology(path, &s->topo, err);
		break;
	}
	return r < 0 ? r : sim_topology(scenario, s->topo, err);
}

static int load_policy(struct simulation *s, struct error *err)
{
	cleanup_sys struct sys sys = { .root_fd = -1 };
	cleanup_free char *path = NULL;
	int r;

	if (!s->scenario->policy_file)
		return sim_policy(s->scenario, &s->policy, err);
	path = beside(s->scenario->file, s->scenario->policy_file);
	r = path ? sys_open(NULL, &sys, err) : error_no_memory(err);
	return r < 0 ? r : policy_load(&sys, path, &s->policy, err);
}

static int play(struct simulation *s, const char *path, const struct cli_options *o, struct error *err)
{
	const bool *wanted = o->strategies;
	int r = read_scenario(path, &s->scenario, err);

	r = r < 0 ? r : load_topology(s, err);
	r = r < 0 ? r : load_policy(s, err);
	if (r < 0)
		return r;
	r = policy_check_machine(s->policy, s->topo, err);
	if (!o->strategies_given)
		wanted = s->scenario->strategies;
	for (unsigned i = 0; i < SIM_STRATEGIES && r == 0; i++) {
		if (!wanted[i])
			continue;
		r = sim_run(s->scenario, s->topo, s->policy, (enum sim_strategy) i, &s->results[s->n], err);
		s->n += r == 0;
	}
	return r;
}

/* ---- tables ---- */

static char *name_cell(const char *name)
{
	return printable(name, strlen(name), strlen(name));
}

static char *number_cell(double number, int digits)
{
	char *cell = NULL;

	return asprintf(&cell, "%.*f", digits, number) < 0 ? NULL : cell;
}

static char *count_cell(size_t count)
{
	char *cell = NULL;

	return asprintf(&cell, "%zu", count) < 0 ? NULL : cell;
}

/* The tenant that fared worst, the first of equals. */
static char *worst_cell(const struct sim_result *r)
{
	const struct sim_tenant *worst = NULL;
	cleanup_free char *name = NULL;
	char *cell = NULL;

	for (size_t i = 0; i < r->n_tenants; i++)
		if (r->tenants[i].cpu_seconds > 0 && (!worst || r->tenants[i].speed < worst->speed - 1e-6))
			worst = &r->tenants[i];
	if (!worst)
		return strdup("-");
	name = name_cell(worst->name);
	return name && asprintf(&cell, "%.3f %s", worst->speed, name) >= 0 ? cell : NULL;
}

static char *note_of(const struct sim_result *r)
{
	cleanup_free char *why = NULL;
	char *note = NULL;

	if (r->skipped)
		return asprintf(&note, "skipped: %s", r->skipped) < 0 ? NULL : note;
	if (!r->first_refusal)
		return NULL;
	why = name_cell(r->first_refusal);
	return why && asprintf(&note, "refused: %s", why) >= 0 ? note : NULL;
}

static const char *const compared[] = { "STRATEGY",  "SPEED",    "WORST TENANT", "FORCED IDLE CPU-S", "INSECURE CPU-S",
					"REMOTE %", "MIGRATIONS", "REFUSED" };

static void fill_compared(struct row *row, const struct sim_result *r)
{
	row->cell[0] = strdup(sim_strategy_name(r->strategy));
	row->note = note_of(r);
	for (size_t c = 1; c < ARRAY_LEN(compared) && r->skipped; c++)
		row->cell[c] = strdup("-");
	if (r->skipped)
		return;
	row->cell[1] = number_cell(r->speed, 3);
	row->cell[2] = worst_cell(r);
	row->cell[3] = number_cell(r->forced_idle, 1);
	row->cell[4] = number_cell(r->insecure, 1);
	row->cell[5] = number_cell(r->remote * 100, 1);
	row->cell[6] = count_cell(r->migrations);
	row->cell[7] = count_cell(r->refused);
}

static int print_compared(const struct simulation *s)
{
	cleanup_with(table_done) struct table t = { .columns = ARRAY_LEN(compared) };

	t.rows = calloc(s->n + 1, sizeof(*t.rows));
	if (!t.rows)
		return -ENOMEM;
	for (size_t i = 0; i < s->n; i++)
		fill_compared(&t.rows[t.n++], s->results[i]);
	table_print(compared, &t);
	return 0;
}

/* Speeds: a row a tenant, a column a strategy that ran. */
static int print_tenants(const struct simulation *s)
{
	cleanup_with(table_done) struct table t = { .columns = 1 };
	const char *head[TABLE_COLUMNS] = { "SPEED OF" };
	const struct sim_result *ran[SIM_STRATEGIES];

	for (size_t i = 0; i < s->n; i++)
		if (!s->results[i]->skipped) {
			ran[t.columns - 1] = s->results[i];
			head[t.columns++] = sim_strategy_name(s->results[i]->strategy);
		}
	if (t.columns == 1)
		return 0;
	t.rows = calloc(ran[0]->n_tenants + 1, sizeof(*t.rows));
	if (!t.rows)
		return -ENOMEM;
	for (size_t i = 0; i < ran[0]->n_tenants; i++) {
		struct row *row = &t.rows[t.n++];

		row->cell[0] = name_cell(ran[0]->tenants[i].name);
		for (size_t c = 1; c < t.columns; c++)
			row->cell[c] = number_cell(ran[c - 1]->tenants[i].speed, 3);
	}
	puts("");
	table_print(head, &t);
	return 0;
}

/* ---- JSON ---- */

static void write_tenants(struct json_writer *w, const struct sim_result *r)
{
	json_open_array(w, "tenants");
	for (size_t i = 0; i < r->n_tenants; i++) {
		const struct sim_tenant *t = &r->tenants[i];

		json_open_object(w, NULL);
		json_string(w, "name", t->name);
		json_int(w, "containers", (int64_t) t->containers);
		json_real(w, "seconds", t->seconds);
		json_real(w, "cpu_seconds", t->cpu_seconds);
		json_real(w, "speed", t->speed);
		json_real(w, "worst", t->worst);
		json_real(w, "remote", t->remote);
		json_close(w);
	}
	json_close(w);
}

static void write_result(struct json_writer *w, const struct sim_result *r)
{
	json_open_object(w, NULL);
	json_string(w, "strategy", sim_strategy_name(r->strategy));
	json_string(w, "text", sim_strategy_text(r->strategy));
	json_string(w, "skipped", r->skipped);
	if (!r->skipped) {
		json_real(w, "seconds", r->seconds);
		json_real(w, "speed", r->speed);
		json_real(w, "worst", r->worst);
		json_real(w, "forced_idle", r->forced_idle);
		json_real(w, "insecure", r->insecure);
		json_real(w, "busy", r->busy);
		json_real(w, "remote", r->remote);
		json_real(w, "work", r->work);
		json_int(w, "migrations", (int64_t) r->migrations);
		json_int(w, "moves", (int64_t) r->moves);
		json_int(w, "moved_bytes", (int64_t) r->moved_bytes);
		json_int(w, "refused", (int64_t) r->refused);
		json_string(w, "first_refusal", r->first_refusal);
		write_tenants(w, r);
	}
	json_close(w);
}

static int print_json(const struct simulation *s)
{
	cleanup_json_writer struct json_writer *w = json_writer_new(true);
	cleanup_free char *text = NULL;
	size_t len = 0;
	int r;

	if (!w)
		return -ENOMEM;
	json_open_object(w, NULL);
	json_string(w, "scenario", s->scenario->name);
	json_int(w, "cpus", (int64_t) s->topo->n_cpus);
	json_real(w, "until", s->scenario->until);
	json_open_array(w, "strategies");
	for (size_t i = 0; i < s->n; i++)
		write_result(w, s->results[i]);
	json_close(w);
	json_close(w);
	r = json_writer_take(w, &text, &len);
	if (r == 0)
		fwrite(text, 1, len, stdout);
	return r;
}

/* ---- the verb ---- */

static int draw(const struct simulation *s, const char *file, struct error *err)
{
	cleanup_free char *text = NULL;
	size_t len = 0;
	int r = svg_draw(s->scenario, s->topo, s->results, s->n, &text, &len);

	return r < 0 ? error_set(err, -r, "the picture: %s", strerror(-r)) : file_save(file, text, len, err);
}

int verb_simulate(const struct cli_options *o, int argc, char **argv)
{
	cleanup_with(simulation_done) struct simulation s = { 0 };
	cleanup_error struct error err = { 0 };
	int r = play(&s, argv[0], o, &err);

	(void) argc;
	if (r == 0 && o->svg)
		r = draw(&s, o->svg, &err);
	if (r < 0)
		return cli_fail(r, &err);
	if (o->json) {
		r = print_json(&s);
	} else {
		printf("%s: %zu CPUs, %g s\n\n", s.scenario->name, s.topo->n_cpus, s.scenario->until);
		r = print_compared(&s);
		r = r < 0 ? r : print_tenants(&s);
	}
	if (r < 0)
		return cli_fail(error_set(&err, -r, "the results cannot be written: %s", strerror(-r)), &err);
	return CLI_YES;
}
