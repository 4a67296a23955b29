/*
 * The cost of running the board's container on a set of CPUs: what the container itself loses there, and what the
 * others lose because it comes. Each formula is the difference that the container makes to the machine's total, so
 * that places for one container, and for all of them, are compared by the same number.
 */
#include "place.h"

#define MILLION 1e6
#define TERM_MAX 1e18
#define GIB 1073741824.0

/* What a set of CPUs touches. */
struct reach {
	const uint16_t *cores;
	size_t n_cores, n_llcs; /* of the caches: board.llcs, and in board.llc_cpus how many of the CPUs each has */
	const struct mask *mask;
	unsigned cpus, node_cpus[NODE_MAX];
	nodemask nodes, memory; /* of the CPUs, and where the memory would be */
	bool stays;             /* there, wherever the CPUs are */
	double capacity;        /* millionths of a CPU */
};

/* Truncated: what two sets cost must not differ because of the order in which their CPUs were added up. */
static int64_t whole(double micro)
{
	return micro <= 0 ? 0 : micro >= TERM_MAX ? (int64_t) TERM_MAX : (int64_t) micro;
}

static double factor(unsigned thousandths)
{
	return thousandths / 1000.0;
}

/*
 * What is lost of a load x on something that does `full` of work: queueing grows with the square up to there, and all
 * that is beyond is lost. The slope never exceeds 1, so that it is convex: evening out never costs.
 */
static double loss(double queueing, double full, double x)
{
	double most = queueing < 0.5 ? queueing : 0.5;

	return x <= full ? most * x * x / full : most * full + x - full;
}

int64_t core_loss(const struct model *m, unsigned threads, uint64_t load)
{
	double x = (double) load, full = threads * MILLION;
	double further = factor(m->smt_thread), queueing = factor(m->queueing);
	double shared = (x < full ? x : full) - MILLION;

	/* Idle cores are taken first, so siblings share only what one thread cannot do. */
	return whole(loss(queueing < further / 2 ? queueing : further / 2, full, x) +
		     (shared > 0 ? (1 - further) * shared : 0));
}

static double llc_feeds(const struct model *m, unsigned cores)
{
	double streams = factor(m->llc_stream) * cores;

	return (streams > 1 ? streams : 1) * MILLION;
}

static int64_t stream_loss(const struct model *m, double feeds, uint64_t streams)
{
	return whole(loss(factor(m->queueing), feeds, (double) streams));
}

uint64_t stream_of(const struct model *m, uint64_t load, bool streams)
{
	return load * (streams ? m->stream_spread : m->stream_other) / 1000;
}

int64_t llc_cost(const struct board *b, unsigned llc, uint64_t streams)
{
	const struct model *m = &b->facts->policy->node.model;
	double feeds = llc_feeds(m, b->llc_cores[llc]);

	return stream_loss(m, feeds, b->llc_stream[llc] + streams) - stream_loss(m, feeds, b->llc_stream[llc]);
}

/* ---- what depends on cores ---- */

/* Of `load` over `cpus` CPUs, what comes to `part` of them. */
static uint64_t share(uint64_t load, unsigned part, unsigned cpus)
{
	return cpus ? load * part / cpus : 0;
}

int64_t core_cost(const struct board *b, unsigned core, uint64_t add, int64_t *ret_collision)
{
	const struct model *m = &b->facts->policy->node.model;
	unsigned threads = 0;
	uint64_t load = 0, kin = 0;

	CORE_FOR_EACH(cpu, b, core)
	{
		load += b->load[cpu->id];
		kin += b->kin[cpu->id];
		threads++;
	}
	/* Whoever has another cookie waits while this one runs, and the other way round. */
	*ret_collision =
	    threads < 2 || b->owner
		? 0
		: whole(2 * factor(m->collision) * (double) add * (double) (load - kin) / (threads * MILLION));
	return core_loss(m, threads, load + add) - core_loss(m, threads, load);
}

static unsigned threads_in(const struct board *b, unsigned core, const struct mask *cpus)
{
	unsigned threads = 0;

	CORE_FOR_EACH(cpu, b, core)
	threads += mask_test(cpus, cpu->id);
	return threads;
}

static void add_cores(const struct board *b, const struct reach *p, struct cost *c)
{
	uint64_t demand = board_demand(b);

	for (size_t i = 0; i < p->n_cores; i++) {
		unsigned threads = threads_in(b, p->cores[i], p->mask);
		int64_t collision;

		c->terms[COST_CPU] += core_cost(b, p->cores[i], share(demand, threads, p->cpus), &collision);
		c->terms[COST_COLLISION] += collision;
	}
}

/* ---- what depends on caches and nodes ---- */

static void add_caches(const struct board *b, const struct reach *p, struct cost *c)
{
	const struct model *m = &b->facts->policy->node.model;
	uint64_t demand = board_demand(b), streams = stream_of(m, demand, b->plan->streams);
	double together = 0;

	for (size_t i = 0; i < p->n_llcs; i++) {
		unsigned llc = b->llcs[i], cpus = b->llc_cpus[llc];
		double part = (double) cpus / p->cpus;

		c->terms[COST_BANDWIDTH] += llc_cost(b, llc, share(streams, cpus, p->cpus));
		together += part * part;
	}
	if (b->facts->class->cpu.placement == PLACEMENT_PACK)
		c->terms[COST_LOCALITY] += whole((double) demand * factor(m->pack_llc) * (1 - together));
}

static double nearest_initiator(const struct topology *t, unsigned from, nodemask initiators)
{
	double least = TOPO_DISTANCE_UNKNOWN;

	NODEMASK_FOR_EACH (node, initiators) {
		double distance = topology_distance_ratio(t, from, node);

		least = distance < least ? distance : least;
	}
	return least;
}

/* How many times as slow as a node's own DRAM. */
static double slowness(const struct place_facts *f, unsigned from, const struct topo_node *to)
{
	const struct model *m = &f->policy->node.model;
	const unsigned by_tier[TIER_COUNT] = {
		[TIER_DRAM] = 1000,
		[TIER_HBM] = m->hbm_latency,
		[TIER_CXL] = m->cxl_latency,
		[TIER_PMEM] = m->pmem_latency,
	};
	const struct topo_node *own = topology_node(f->topo, from);
	double distance = topology_distance_ratio(f->topo, from, to->id);
	double slower = factor(by_tier[memory_tier_of(f, to)]);

	if (own && own->read_latency && to->read_latency && own != to)
		slower = (double) to->read_latency / own->read_latency;
	if (to->initiators) /* firmware knows whose memory it is: from elsewhere it is as far as they are */
		return slower + nearest_initiator(f->topo, from, to->initiators) - 1;
	return distance > slower ? distance : slower;
}

/* ---- memory of a container that runs already ---- */

nodemask memory_stays(const struct place_facts *f)
{
	nodemask nodes = 0;

	if (!f->resident || f->class->memory.migrate)
		return 0;
	for (unsigned node = 0; node < NODE_MAX; node++)
		if (f->resident[node])
			nodes |= node_bit(node);
	return nodes & f->topo->memory_nodes;
}

uint64_t memory_to_move(const struct place_facts *f, nodemask to)
{
	uint64_t bytes = 0;

	if (!f->resident || !f->class->memory.migrate)
		return 0;
	NODEMASK_FOR_EACH (node, f->topo->memory_nodes & ~to)
		bytes = add_bytes(bytes, f->resident[node]);
	return bytes;
}

/* How much of its memory is on this node, against the others: what is there, or what will come there. */
static unsigned weight_on(const struct place_facts *f, unsigned node)
{
	const uint64_t most = 1u << 25; /* MiB; so large that 64 of them can be added up */
	uint64_t mib;

	if (!f->resident || f->class->memory.migrate || !memory_stays(f))
		return memory_weight(f, node);
	mib = (f->resident[node] >> 20) + 1;
	return (unsigned) (mib < most ? mib : most);
}

static void add_move(const struct board *b, const struct reach *p, struct cost *c)
{
	const struct model *m = &b->facts->policy->node.model;
	double gib = (double) memory_to_move(b->facts, p->memory) / GIB;

	if (m->move_horizon)
		c->terms[COST_MOVE] += whole(gib * factor(m->move_gib) / factor(m->move_horizon) * MILLION);
}

/* ---- nodes ---- */

/* Memory on `nodes` as seen from the CPUs of a node that do `load` of the container's work. */
static void add_latency(const struct board *b, unsigned from, uint64_t load, nodemask nodes, struct cost *c)
{
	const struct place_facts *f = b->facts;
	unsigned weights = 0;

	NODEMASK_FOR_EACH (node, nodes)
		weights += weight_on(f, node);
	if (!weights)
		return;
	NODEMASK_FOR_EACH (node, nodes) {
		const struct topo_node *to = topology_node(f->topo, node);
		enum cost_term term;
		double part;

		if (!to)
			continue;
		term = memory_tier_of(f, to) == TIER_DRAM ? COST_DISTANCE : COST_TIER;
		part = (double) load * weight_on(f, node) / weights;
		c->terms[term] +=
		    whole(part * factor(f->policy->node.model.memory_bound) * (slowness(f, from, to) - 1));
	}
}

static void add_nodes(const struct board *b, const struct reach *p, struct cost *c)
{
	const struct place_facts *f = b->facts;
	uint64_t demand = board_demand(b);
	double together = 0;

	NODEMASK_FOR_EACH (node, p->nodes) {
		double part = (double) p->node_cpus[node] / p->cpus;
		nodemask named = memory_names_nodes(f) || p->stays ? p->memory : memory_near(f, node);

		add_latency(b, node, share(demand, p->node_cpus[node], p->cpus), named, c);
		together += part * part;
	}
	if (f->class->cpu.placement == PLACEMENT_PACK && p->nodes)
		c->terms[COST_LOCALITY] +=
		    whole((double) demand * factor(f->policy->node.model.pack_node) * (1 - together));
}

static void add_memory(const struct board *b, const struct reach *p, struct cost *c)
{
	const struct place_facts *f = b->facts;
	const struct model *m = &f->policy->node.model;
	uint64_t streams = stream_of(m, board_demand(b), b->plan->streams), left = memory_free_on(b, p->memory);
	unsigned weights = 0;

	if (!p->memory)
		return;
	if (f->memory > left)
		c->terms[COST_MEMORY] += whole((double) (f->memory - left) / GIB * factor(m->memory_short) * MILLION);
	NODEMASK_FOR_EACH (node, p->memory)
		weights += weight_on(f, node);
	NODEMASK_FOR_EACH (node, p->memory) {
		const struct topo_node *n = topology_node(f->topo, node);
		double feeds = n ? n->read_bandwidth * MILLION / m->stream_bandwidth : 0;

		if (feeds > 0)
			c->terms[COST_BANDWIDTH] +=
			    stream_loss(m, feeds,
					b->node_stream[node] + share(streams, weight_on(f, node), weights)) -
			    stream_loss(m, feeds, b->node_stream[node]);
	}
}

/* A container without a hard limit gains from room, the more the nearer its demand comes to what there is. */
static void add_burst(const struct board *b, const struct reach *p, struct cost *c)
{
	const struct model *m = &b->facts->policy->node.model;
	double demand = (double) board_demand(b), capacity = p->capacity;
	double tightness = capacity > 0 && demand < capacity ? demand / capacity : 1;

	if (!b->facts->mcpu_is_limit)
		c->terms[COST_BURST] += whole(factor(m->burst) * demand * tightness);
}

/* ---- the whole ---- */

static void reach_core(const struct board *b, unsigned core, struct reach *p)
{
	unsigned threads = 0;

	CORE_FOR_EACH(cpu, b, core)
	{
		if (!mask_test(p->mask, cpu->id))
			continue;
		if (!b->llc_cpus[cpu->llc]++)
			b->llcs[p->n_llcs++] = cpu->llc;
		if (cpu->node >= 0) {
			p->nodes |= node_bit((unsigned) cpu->node);
			p->node_cpus[cpu->node]++;
		}
		threads++;
	}
	p->cpus += threads;
	if (threads)
		p->capacity += MILLION + (threads - 1) * 1000.0 * b->facts->policy->node.model.smt_thread;
}

void cost_of_cpus(const struct board *b, const uint16_t *cores, size_t n_cores, const struct mask *cpus,
		  struct cost *ret)
{
	struct reach p = { .cores = cores, .n_cores = n_cores, .mask = cpus };
	struct cost c = { 0 };

	for (size_t i = 0; i < n_cores; i++)
		reach_core(b, cores[i], &p);
	p.nodes &= b->topo->memory_nodes;
	p.memory = memory_stays(b->facts);
	p.stays = p.memory != 0;
	if (!p.stays)
		p.memory = memory_nodes_for(b->facts, p.nodes);
	if (p.cpus) {
		add_cores(b, &p, &c);
		add_caches(b, &p, &c);
		add_nodes(b, &p, &c);
		add_memory(b, &p, &c);
		add_burst(b, &p, &c);
		add_move(b, &p, &c);
	}
	for (size_t i = 0; i < p.n_llcs; i++)
		b->llc_cpus[b->llcs[i]] = 0;
	*ret = c;
}

/* ---- names ---- */

static const struct {
	const char *name, *text;
} terms[COST_TERMS] = {
	[COST_CPU] = { "cpu", "CPUs that are wanted by others too" },
	[COST_BANDWIDTH] = { "bandwidth", "memory bandwidth that is used by others too" },
	[COST_LOCALITY] = { "locality", "threads that share no cache" },
	[COST_DISTANCE] = { "distance", "memory of distant nodes" },
	[COST_TIER] = { "tier", "memory of slower tiers" },
	[COST_MEMORY] = { "memory", "memory that does not fit" },
	[COST_COLLISION] = { "collision", "waiting for other tenants on its cores" },
	[COST_BURST] = { "burst", "lack of room beyond its demand" },
	[COST_MOVE] = { "move", "moving its memory" },
};

const char *cost_term_name(enum cost_term t)
{
	return terms[t].name;
}

const char *cost_term_text(enum cost_term t)
{
	return terms[t].text;
}

enum cost_term cost_deciding(const struct cost *worse, const struct cost *better)
{
	enum cost_term most = COST_CPU;

	for (enum cost_term t = COST_CPU; t < COST_TERMS; t++)
		if (worse->terms[t] - better->terms[t] > worse->terms[most] - better->terms[most])
			most = t;
	return most;
}
