#include "place.h"

#include <errno.h>

struct amount {
	uint64_t load, kin, streams, near, memory; /* near: streams whose memory is on the CPU's node */
};

/* Full words of a mask are added up as such: most sets are ranges, and this makes them cost 1/64. */
struct tally {
	struct amount *word, *cpu;
};

static void amount_add(struct amount *a, const struct amount *b)
{
	a->load += b->load;
	a->kin += b->kin;
	a->streams += b->streams;
	a->near += b->near;
	a->memory = add_bytes(a->memory, b->memory);
}

static int index_cores(struct board *b)
{
	const struct topology *t = b->topo;

	b->core_start = calloc(t->n_cores + 2, sizeof(*b->core_start));
	b->core_cpu = calloc(t->n_cpus + 1, sizeof(*b->core_cpu));
	b->all_cores = calloc(t->n_cores + 1, sizeof(*b->all_cores));
	if (!b->core_start || !b->core_cpu || !b->all_cores)
		return -ENOMEM;
	/* Counting sort: counts two slots up, sums one slot up, and filling moves each start to where it belongs. */
	for (size_t i = 0; i < t->n_cpus; i++)
		b->core_start[t->cpus[i].core + 2]++;
	for (unsigned core = 2; core <= t->n_cores; core++)
		b->core_start[core] = (uint16_t) (b->core_start[core] + b->core_start[core - 1]);
	for (size_t i = 0; i < t->n_cpus; i++)
		b->core_cpu[b->core_start[t->cpus[i].core + 1]++] = (uint16_t) i;
	for (unsigned core = 0; core < t->n_cores; core++) {
		if (b->core_start[core] == b->core_start[core + 1])
			continue;
		b->all_cores[b->n_cores++] = (uint16_t) core;
		b->llc_cores[t->cpus[b->core_cpu[b->core_start[core]]].llc]++;
	}
	return 0;
}

bool core_within(const struct board *b, unsigned core, const struct mask *cpus)
{
	CORE_FOR_EACH(cpu, b, core)
		if (!mask_test(cpus, cpu->id))
			return false;
	return true;
}

void one_thread_per_core(const struct board *b, struct mask *cpus)
{
	for (unsigned core = 0; core < b->topo->n_cores; core++) {
		bool have = false;

		CORE_FOR_EACH(cpu, b, core) {
			if (have)
				mask_clear(cpus, cpu->id);
			have = have || mask_test(cpus, cpu->id);
		}
	}
}

nodemask nodes_of_cpus(const struct topology *t, const struct mask *cpus)
{
	nodemask nodes = 0;

	for (size_t i = 0; i < t->n_cpus; i++)
		if (t->cpus[i].node >= 0 && mask_test(cpus, t->cpus[i].id))
			nodes |= node_bit((unsigned) t->cpus[i].node);
	return nodes & t->memory_nodes;
}

bool must_part(const struct place_facts *facts, bool exclusive, const struct occupant *o)
{
	return !str_eq(o->id, facts->id) && (exclusive || !str_eq(o->group, facts->group));
}

/* Given no more CPUs than the whole cores that its demand needs: such a container should have them to itself. */
static bool is_shaped(const struct topology *t, const struct occupant *o, unsigned cpus)
{
	unsigned smt = t->smt ? t->smt : 1;
	unsigned cores = (unsigned) (((uint64_t) o->mcpu + smt * 1000u - 1) / (smt * 1000u));

	return cpus <= cores * smt;
}

/* Here and in add_up() lies most of the cost of a decision, so only words that hold CPUs are looked at. */
static void add_to(const struct board *b, const struct mask *cpus, struct mask *set)
{
	for (size_t i = 0; i < b->words; i++)
		set->w[i] |= cpus->w[i];
}

static void sort_into_sets(struct board *b, const struct occupant *o, unsigned cpus)
{
	bool other = !str_eq(o->group, b->facts->group);

	if (o->exclusive || (o->mechanism == MECHANISM_CORES && other)) {
		add_to(b, o->cpus, &b->owned);
		return;
	}
	if (o->mechanism == MECHANISM_CORES)
		add_to(b, o->cpus, &b->family);
	if (!other && !b->plan->exclusive)
		return;
	add_to(b, o->cpus, &b->busy);
	if (o->bound || o->mechanism == MECHANISM_CORES)
		add_to(b, o->cpus, &b->pinned);
	if (other && is_shaped(b->topo, o, cpus))
		add_to(b, o->cpus, &b->shaped);
}

/* Whether it may run beside the container on one core: it has the same cookie, or neither has one. */
static bool is_kin(const struct board *b, const struct occupant *o)
{
	bool cookie = o->mechanism == MECHANISM_COOKIE, own = b->plan->mechanism == MECHANISM_COOKIE;

	return cookie == own && (!own || str_eq(o->group, b->facts->group));
}

static void add_up(struct board *b, const struct tally *tally, const struct occupant *o, unsigned cpus)
{
	uint64_t load = (uint64_t) o->mcpu * LOAD_SCALE;
	uint64_t streams = stream_of(&b->facts->policy->node.model, load, o->streams);
	const struct amount amount = {
		.load = load / cpus,
		.kin = is_kin(b, o) ? load / cpus : 0,
		.streams = streams / cpus,
		.near = o->mems ? 0 : streams / cpus,
		.memory = o->mems ? 0 : o->memory / cpus,
	};

	for (unsigned i = 0; i < b->words; i++) {
		if (o->cpus->w[i] == UINT64_MAX) {
			amount_add(&tally->word[i], &amount);
			continue;
		}
		for (uint64_t left = o->cpus->w[i]; left; left &= left - 1)
			amount_add(&tally->cpu[i * 64 + (unsigned) __builtin_ctzll(left)], &amount);
	}
	if (o->mems) {
		unsigned nodes = bit_count(o->mems);

		NODEMASK_FOR_EACH(node, o->mems) {
			b->memory_used[node] = add_bytes(b->memory_used[node], o->memory / nodes);
			b->node_stream[node] += streams / nodes;
		}
	}
}


static unsigned weight_of_set(const struct board *b, const struct mask *cpus)
{
	unsigned weight = 0;

	for (size_t i = 0; i < b->words; i++)
		weight += bit_count(cpus->w[i]);
	return weight;
}

static void take_cpu(struct board *b, const struct tally *tally, const struct topo_cpu *cpu)
{
	struct amount sum = tally->word[cpu->id / 64];

	amount_add(&sum, &tally->cpu[cpu->id]);
	b->load[cpu->id] = sum.load;
	b->kin[cpu->id] = sum.kin;
	b->llc_stream[cpu->llc] += sum.streams;
	if (cpu->node >= 0) {
		b->node_stream[cpu->node] += sum.near;
		b->memory_used[cpu->node] = add_bytes(b->memory_used[cpu->node], sum.memory);
	}
}

static int count_occupants(struct board *b)
{
	/* No larger than the machine: to clear room for the largest there is would cost more than all the rest. */
	cleanup_free struct amount *amounts = calloc(b->words + b->words * 64, sizeof(*amounts));
	struct tally tally;

	if (!amounts)
		return -ENOMEM;
	tally = (struct tally){ .word = amounts, .cpu = amounts + b->words };
	for (size_t i = 0; i < b->facts->n_occupants; i++) {
		const struct occupant *o = &b->facts->occupants[i];
		unsigned cpus = weight_of_set(b, o->cpus);

		if (!cpus || str_eq(o->id, b->facts->id))
			continue;
		sort_into_sets(b, o, cpus);
		add_up(b, &tally, o, cpus);
	}
	for (size_t i = 0; i < b->topo->n_cpus; i++)
		take_cpu(b, &tally, &b->topo->cpus[i]);
	return 0;
}

void board_freep(struct board **b)
{
	if (!*b)
		return;
	free((*b)->load);
	free((*b)->llc_stream);
	free((*b)->llc_cpus);
	free((*b)->llcs);
	free((*b)->core_start);
	free((*b)->core_cpu);
	free((*b)->all_cores);
	free(*b);
	*b = NULL;
}

int board_new(const struct place_facts *facts, struct plan *plan, struct board **ret_board)
{
	cleanup_board struct board *b = calloc(1, sizeof(*b));
	const struct topology *t = facts->topo;
	int r;

	if (!b)
		return -ENOMEM;
	b->facts = facts;
	b->topo = t;
	b->plan = plan;
	b->words = topology_words(t);
	b->load = calloc(2 * b->words * 64 + 1, sizeof(*b->load));
	b->llc_stream = calloc(t->n_llcs + 1, sizeof(*b->llc_stream));
	b->llc_cpus = calloc(t->n_llcs + 1, sizeof(*b->llc_cpus));
	b->llcs = calloc(2 * (t->n_llcs + 1), sizeof(*b->llcs));
	if (!b->load || !b->llc_stream || !b->llc_cpus || !b->llcs)
		return -ENOMEM;
	b->kin = b->load + b->words * 64;
	b->llc_cores = b->llcs + t->n_llcs + 1;
	b->owner = plan_owns(plan);
	r = index_cores(b);
	if (r < 0)
		return r;
	r = count_occupants(b);
	if (r < 0)
		return r;
	topology_whole_cores(t, &b->owned, &b->owned);
	topology_whole_cores(t, &b->busy, &b->busy);
	topology_whole_cores(t, &b->shaped, &b->shaped);
	topology_whole_cores(t, &b->pinned, &b->pinned);
	topology_whole_cores(t, &b->family, &b->family);
	b->open = facts->allowed_cpus;
	mask_and(&b->open, &t->online);
	mask_andnot(&b->open, &facts->policy->node.reserved);
	b->usable = b->open;
	mask_andnot(&b->usable, &b->owned);
	*ret_board = TAKE_PTR(b);
	return 0;
}
