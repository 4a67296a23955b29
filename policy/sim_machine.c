/*
 * A fluid model of a machine: how fast loads run that share it. It knows nothing of the engine's cost (policy/cost.c),
 * so that it can judge the engine. Four steps, each of bounded length:
 *
 * 1. Where threads run (policy/sim_spread.c). As the kernel's balancing does, a load's threads go to idle cores first,
 *    in the last-level cache with the most idle cores; what is left over evens out the cores' levels. The level of a
 *    core of T threads with load x is x up to 1, then 1 + (x - 1) / (T - 1) up to T, then 2 + (x - T) / T. Loads take
 *    turns, 24 times at most.
 * 2. What they get there (policy/sim_cores.c). On one thread of a core, loads of one group share the time by max-min. A
 *    group that wants Y threads' worth of a core needs the core for min(1, Y) of the time and then does W(Y) = Y up to
 *    1 and 1 + smt_gain * (Y - 1) / (T - 1) above. Groups share a core's time by max-min, as they never run together.
 *    While a group runs on p of T threads, T - p idle by force for as long as another group waits: the sum of the other
 *    groups' needs, at most all the time. A cookie also costs `switching` of the speed.
 * 3. Latency. A load that waits `sensitivity` of its time for near memory takes 1 + sensitivity * (L - 1) as long for
 *    its work, L being the latency of its memory against the nearest: distance by SLIT, times the tier's latency.
 * 4. Bandwidth. What remains of a load's speed draws `traffic`; last-level caches, nodes and the links between nodes
 *    share their bandwidth by max-min, by the share that each gets of what it wants. Where memory is on several nodes,
 *    a load is as fast as the one that it waits for most.
 *
 * Left out: how full memory is, hybrid cores' speed, writes that cost more than reads, caches that threads share.
 *
 * Constants, where the scenario does not give them:
 * smt_gain 0.68: with SMT off a CPU-bound load does 0.59 to 0.60 of its work, and 1 / 0.595 = 1.68 (core scheduling v9,
 *   Nov 2020).
 * switching, of a load: 0 for CPU-bound ones, 0.35 for netperf over TCP, 0.71 for context switches over pipes (ibid.).
 * LLC 36.28 GB/s, or 4.535 GB/s for each of its cores if that is more: 580.56 GB/s of STREAM Copy by 16 workers on 16
 *   caches of 8 cores (sched/fair "Adjust the allowed NUMA imbalance", v6, Feb 2022).
 * link: the node's bandwidth divided by the distance in multiples of the near one. Judgement.
 * Latencies of tiers beside DRAM's: hbm 1.1, cxl 2, pmem 3: about 110, 200 and 300 ns against 100 ns, where the
 *   topology does not say. SLIT as latency: numa01 takes 378 s on the wrong node of distance 20 against 196 s, 1.93 times
 *   as long (AutoNUMA alpha6, Mar 2012), which is a load of sensitivity 0.93.
 */
#include <errno.h>

#include "sim_internal.h"

#define SMT_GAIN 0.68
#define LLC_BANDWIDTH 36.28
#define CORE_BANDWIDTH 4.535

static void fluid_done(struct fluid *f)
{
	free(f->shares);
	free(f->start);
	free(f->by_core);
	free(f->cores);
	free(f->on_cpu);
	free(f->llc_idle);
}

static int index_cores(struct fluid *f)
{
	const struct topology *t = f->topo;
	size_t at = 0;

	f->cores = calloc(t->n_cores + 1, sizeof(*f->cores));
	f->by_core = calloc(t->n_cpus + 1, sizeof(*f->by_core));
	f->on_cpu = calloc(t->n_cpus + 1, sizeof(*f->on_cpu));
	f->llc_idle = calloc(t->n_llcs + 1, sizeof(*f->llc_idle));
	if (!f->cores || !f->by_core || !f->on_cpu || !f->llc_idle)
		return -ENOMEM;
	for (size_t i = 0; i < t->n_cpus; i++)
		f->cores[t->cpus[i].core].n++;
	for (size_t c = 0; c < t->n_cores; c++) {
		f->cores[c].first = at;
		at += f->cores[c].n;
		f->cores[c].n = 0;
	}
	for (size_t i = 0; i < t->n_cpus; i++) {
		struct sim_core *c = &f->cores[t->cpus[i].core];

		f->by_core[c->first + c->n++] = i;
		c->llc = t->cpus[i].llc;
	}
	return 0;
}

static int index_shares(struct fluid *f)
{
	const struct topology *t = f->topo;
	size_t total = 0, at = 0;

	for (size_t i = 0; i < f->n; i++)
		total += mask_weight(f->loads[i].cpus);
	f->shares = calloc(total + 1, sizeof(*f->shares));
	f->start = calloc(f->n + 1, sizeof(*f->start));
	if (!f->shares || !f->start)
		return -ENOMEM;
	for (size_t i = 0; i < f->n; i++) {
		f->start[i] = at;
		for (size_t k = 0; k < t->n_cpus; k++)
			if (mask_test(f->loads[i].cpus, t->cpus[f->by_core[k]].id))
				f->shares[at++].cpu = f->by_core[k];
	}
	f->start[f->n] = at;
	return 0;
}

/* ---- 3. latency ---- */

double sim_distance(const struct topology *t, unsigned from, const struct topo_node *to)
{
	double nearest = TOPO_DISTANCE_UNKNOWN;

	if (to->initiators & node_bit(from) || from == to->id)
		return 1;
	if (to->has_cpus)
		return most(1, topology_distance_ratio(t, from, to->id));
	/* Distances to memory without CPUs tell its slowness too: only what exceeds the nearest is distance. */
	for (size_t i = 0; i < t->n_nodes; i++)
		if (t->nodes[i].has_cpus)
			nearest = least(nearest, topology_distance_ratio(t, t->nodes[i].id, to->id));
	return most(1, topology_distance_ratio(t, from, to->id) / nearest);
}

double sim_latency(const struct topology *t, unsigned from, const struct topo_node *to)
{
	static const double by_tier[TIER_COUNT] = {
		[TIER_DRAM] = 1,
		[TIER_HBM] = 1.1,
		[TIER_CXL] = 2,
		[TIER_PMEM] = 3,
	};
	const struct topo_node *own = topology_node(t, from);
	double slower = by_tier[to->tier];

	if (own && own->read_latency && to->read_latency)
		slower = (double) to->read_latency / own->read_latency;
	return slower * sim_distance(t, from, to);
}

unsigned sim_nearest(const struct topology *t, unsigned from)
{
	const struct topo_node *best = NULL;

	for (size_t i = 0; i < t->n_nodes; i++) {
		const struct topo_node *node = &t->nodes[i];

		if (!(t->memory_nodes & node_bit(node->id)))
			continue;
		if (node->id == from)
			return from;
		if (!best || sim_latency(t, from, node) < sim_latency(t, from, best))
			best = node;
	}
	return best ? best->id : NODE_MAX;
}

static double llc_bandwidth(const struct sim_model *m, size_t cores)
{
	return m->llc_bandwidth > 0 ? m->llc_bandwidth : most(LLC_BANDWIDTH, CORE_BANDWIDTH * (double) cores);
}

/* ---- 4. bandwidth ---- */

/* What one load draws through one last-level cache, on its way to the nodes of its memory. */
struct flow {
	size_t load;
	unsigned llc, node; /* NODE_MAX: unknown */
	double work;        /* CPUs' worth, with latency looked at */
	double gets;        /* share of it */
	bool fixed;
};

/* Caches, then nodes, then links from one node to another, by index into the topology's nodes. */
struct pipes {
	double *room;  /* bandwidth that is left; negative: without limit */
	double *wants; /* of flows that are not fixed */
	size_t n;
};

struct memory {
	struct fluid *f;
	struct flow *flows;
	size_t n_flows;
	struct pipes pipes;
};

static void memory_done(struct memory *m)
{
	free(m->flows);
	free(m->pipes.room);
	free(m->pipes.wants);
}

static size_t node_pipe(const struct topology *t, size_t node)
{
	return t->n_llcs + node;
}

static size_t link_pipe(const struct topology *t, size_t from, size_t to)
{
	return t->n_llcs + t->n_nodes + from * t->n_nodes + to;
}

/* The share of a load's memory that is on a node, as seen from CPUs of node `from`. */
static double weight_on(const struct topology *t, const struct sim_load *l, unsigned from, unsigned node)
{
	double sum = 0;

	if (l->local)
		return sim_nearest(t, from) == node ? 1 : 0;
	for (size_t i = 0; i < t->n_nodes; i++)
		sum += l->weights[t->nodes[i].id];
	return sum > 0 ? l->weights[node] / sum : 0;
}

static double link_room(const struct fluid *f, const struct topo_node *from, const struct topo_node *to)
{
	double distance = sim_distance(f->topo, from->id, to);

	if (f->model->link_bandwidth > 0 && from->package != to->package)
		return f->model->link_bandwidth;
	return distance > 1 && to->read_bandwidth ? to->read_bandwidth / 1000.0 / distance : -1;
}

static int open_pipes(struct memory *m)
{
	const struct topology *t = m->f->topo;
	cleanup_free size_t *llc_cores = calloc(t->n_llcs + 1, sizeof(*llc_cores));

	m->pipes.n = t->n_llcs + t->n_nodes + t->n_nodes * t->n_nodes;
	m->pipes.room = calloc(m->pipes.n + 1, sizeof(double));
	m->pipes.wants = calloc(m->pipes.n + 1, sizeof(double));
	if (!llc_cores || !m->pipes.room || !m->pipes.wants)
		return -ENOMEM;
	for (size_t c = 0; c < t->n_cores; c++)
		if (m->f->cores[c].n)
			llc_cores[m->f->cores[c].llc]++;
	for (size_t i = 0; i < t->n_llcs; i++)
		m->pipes.room[i] = llc_bandwidth(m->f->model, llc_cores[i]);
	for (size_t i = 0; i < t->n_nodes; i++) {
		double bandwidth = t->nodes[i].read_bandwidth / 1000.0;

		m->pipes.room[node_pipe(t, i)] = bandwidth > 0 ? bandwidth : -1;
		for (size_t from = 0; from < t->n_nodes; from++)
			m->pipes.room[link_pipe(t, from, i)] = link_room(m->f, &t->nodes[from], &t->nodes[i]);
	}
	return 0;
}

/* One flow for each cache and node that a load works on. */
static int open_flows(struct memory *m)
{
	struct fluid *f = m->f;

	m->flows = calloc(f->start[f->n] + 1, sizeof(*m->flows));
	if (!m->flows)
		return -ENOMEM;
	for (size_t i = 0; i < f->n; i++) {
		size_t first = m->n_flows;

		for (size_t k = f->start[i]; k < f->start[i + 1]; k++) {
			const struct topo_cpu *cpu = &f->topo->cpus[f->shares[k].cpu];
			unsigned node = cpu->node >= 0 ? (unsigned) cpu->node : NODE_MAX;
			size_t at = first;

			if (f->shares[k].work <= 0)
				continue;
			while (at < m->n_flows && (m->flows[at].llc != cpu->llc || m->flows[at].node != node))
				at++;
			if (at == m->n_flows)
				m->flows[m->n_flows++] =
					(struct flow){ .load = i, .llc = cpu->llc, .node = node, .gets = 1 };
			m->flows[at].work += f->shares[k].work;
		}
	}
	return 0;
}

/* Latency: step 3. Adds up what is remote. */
static void slow_down(const struct memory *m, struct flow *flow, double *remote)
{
	const struct topology *t = m->f->topo;
	const struct sim_load *l = &m->f->loads[flow->load];
	double latency = 0, far = 0, sum = 0;

	for (size_t i = 0; i < t->n_nodes && flow->node < NODE_MAX; i++) {
		double part = weight_on(t, l, flow->node, t->nodes[i].id);

		sum += part;
		latency += part * sim_latency(t, flow->node, &t->nodes[i]);
		far += sim_distance(t, flow->node, &t->nodes[i]) > 1 ? part : 0;
	}
	if (sum > 0)
		flow->work /= 1 + l->sensitivity * most(0, latency - 1);
	*remote = sum > 0 ? far : 0;
}

/* How much of each pipe a flow takes for a GB/s: through its cache, and by its memory's weights. */
static double takes(const struct memory *m, const struct flow *flow, size_t pipe)
{
	const struct topology *t = m->f->topo;
	const struct topo_node *own = topology_node(t, flow->node);
	size_t node;

	if (pipe < t->n_llcs)
		return pipe == flow->llc ? 1 : 0;
	pipe -= t->n_llcs;
	if (!own)
		return 0;
	node = pipe % t->n_nodes;
	if (pipe >= t->n_nodes && (pipe - t->n_nodes) / t->n_nodes != (size_t) (own - t->nodes))
		return 0;
	return weight_on(t, &m->f->loads[flow->load], flow->node, t->nodes[node].id);
}

static double wanted(const struct memory *m, const struct flow *flow)
{
	return flow->work * m->f->loads[flow->load].traffic;
}

static void count_pipe(const struct memory *m, const struct flow *flow, size_t pipe, double scale, double *sum)
{
	sum[pipe] += takes(m, flow, pipe) * wanted(m, flow) * scale;
}

/* The pipes of one flow: its cache, all nodes, and the links from its node. */
static void count_flow(const struct memory *m, const struct flow *flow, double scale, double *sum)
{
	const struct topology *t = m->f->topo;
	const struct topo_node *own = topology_node(t, flow->node);

	count_pipe(m, flow, flow->llc, scale, sum);
	for (size_t i = 0; own && i < t->n_nodes; i++) {
		count_pipe(m, flow, node_pipe(t, i), scale, sum);
		count_pipe(m, flow, link_pipe(t, (size_t) (own - t->nodes), i), scale, sum);
	}
}

/* Fixes the flows through the pipe that fills up first at the share that it has for them; false when none fills up. */
static bool fix_fullest(struct memory *m)
{
	size_t full = m->pipes.n;
	double share = 1;

	memset(m->pipes.wants, 0, m->pipes.n * sizeof(double));
	for (size_t i = 0; i < m->n_flows; i++)
		if (!m->flows[i].fixed)
			count_flow(m, &m->flows[i], 1, m->pipes.wants);
	for (size_t p = 0; p < m->pipes.n; p++)
		if (m->pipes.room[p] >= 0 && m->pipes.wants[p] > SIM_SMALL &&
		    m->pipes.room[p] / m->pipes.wants[p] < share) {
			full = p;
			share = m->pipes.room[p] / m->pipes.wants[p];
		}
	if (full == m->pipes.n)
		return false;
	for (size_t i = 0; i < m->n_flows; i++) {
		struct flow *flow = &m->flows[i];

		if (flow->fixed || takes(m, flow, full) * wanted(m, flow) <= 0)
			continue;
		flow->fixed = true;
		flow->gets = share;
		memset(m->pipes.wants, 0, m->pipes.n * sizeof(double));
		count_flow(m, flow, share, m->pipes.wants);
		for (size_t p = 0; p < m->pipes.n; p++)
			if (m->pipes.room[p] >= 0)
				m->pipes.room[p] = most(0, m->pipes.room[p] - m->pipes.wants[p]);
	}
	return true;
}

static int look_at_memory(struct fluid *f)
{
	cleanup_with(memory_done) struct memory m = { .f = f };
	struct sim_state *s = f->state;
	double accesses = 0;
	int r = open_pipes(&m);

	if (r == 0)
		r = open_flows(&m);
	if (r < 0)
		return r;
	for (size_t i = 0; i < m.n_flows; i++) {
		double before = m.flows[i].work, remote = 0;

		slow_down(&m, &m.flows[i], &remote);
		s->speeds[m.flows[i].load].remote += remote * before;
		s->remote += remote * before;
		accesses += before;
	}
	for (size_t p = 0; p < m.pipes.n && fix_fullest(&m); p++)
		;
	s->remote = accesses > 0 ? s->remote / accesses : 0;
	for (size_t i = 0; i < m.n_flows; i++) {
		s->speeds[m.flows[i].load].speed += m.flows[i].work * m.flows[i].gets;
		s->work += m.flows[i].work * m.flows[i].gets;
	}
	return 0;
}

/* ---- the whole ---- */

/* Work in CPUs becomes a share of the demand. */
static void finish(struct fluid *f)
{
	for (size_t i = 0; i < f->n; i++) {
		struct sim_speed *s = &f->state->speeds[i];
		double work = 0;

		for (size_t k = f->start[i]; k < f->start[i + 1]; k++)
			work += f->shares[k].work;
		s->remote = work > 0 ? s->remote / work : 0;
		s->speed = f->loads[i].demand > 0 ? least(1, s->speed / f->loads[i].demand) : 1;
	}
}

int sim_fluid(const struct sim_model *model, const struct topology *topo, const struct sim_load *loads, size_t n,
	      struct sim_state **ret_state)
{
	cleanup_sim_state struct sim_state *s = calloc(1, sizeof(*s));
	struct sim_model m = *model;
	cleanup_with(fluid_done) struct fluid f = { .model = &m, .topo = topo, .loads = loads, .n = n, .state = s };
	int r;

	if (!s)
		return -ENOMEM;
	m.smt_gain = m.smt_gain < 0 ? SMT_GAIN : m.smt_gain;
	s->speeds = calloc(n + 1, sizeof(*s->speeds));
	s->cpus = calloc(topo->n_cpus + 1, sizeof(*s->cpus));
	if (!s->speeds || !s->cpus)
		return -ENOMEM;
	if ((r = index_cores(&f)) < 0 || (r = index_shares(&f)) < 0)
		return r;
	sim_spread(&f);
	if ((r = sim_cores(&f)) < 0 || (r = look_at_memory(&f)) < 0)
		return r;
	finish(&f);
	*ret_state = TAKE_PTR(s);
	return 0;
}

void sim_state_free(struct sim_state *s)
{
	if (!s)
		return;
	free(s->speeds);
	free(s->cpus);
	free(s);
}

void sim_state_freep(struct sim_state **s)
{
	sim_state_free(*s);
	*s = NULL;
}
