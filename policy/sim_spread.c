/* Where the threads of loads run: step 1 of the machine model (policy/sim_machine.c). */
#include "sim_internal.h"

#define ROUNDS 24
#define LEVEL_STEPS 48

/* What a core holds at a level. */
static double load_at(const struct sim_core *c, double level)
{
	double threads = (double) c->n;

	if (level <= 1)
		return level;
	return level <= 2 ? 1 + (level - 1) * (threads - 1) : threads + (level - 2) * threads;
}

static const struct sim_core *core_of(const struct fluid *f, size_t share)
{
	return &f->cores[f->topo->cpus[f->shares[share].cpu].core];
}

/* The first share behind those of the same load on the same core. */
static size_t core_end(const struct fluid *f, size_t at, size_t end)
{
	const struct sim_core *c = core_of(f, at);

	while (at < end && core_of(f, at) == c)
		at++;
	return at;
}

/* How much a load may put on the core of shares at … next when the core is filled up to a level. */
static double room_at(const struct fluid *f, size_t at, size_t next, double level)
{
	const struct sim_core *c = core_of(f, at);
	double room = load_at(c, level) - c->load, has = 0, cap = (double) (next - at);

	for (size_t k = at; k < next; k++)
		has += f->shares[k].want;
	return most(has, least(has + most(room, 0), cap)) - has;
}

static void put(struct fluid *f, size_t share, double amount)
{
	size_t cpu = f->shares[share].cpu;

	f->shares[share].want += amount;
	f->on_cpu[cpu] += amount;
	f->cores[f->topo->cpus[cpu].core].load += amount;
}

/* Spreads what a load puts on one core over its threads there: the free ones first, one after another. */
static void put_on_core(struct fluid *f, size_t at, size_t next, double amount)
{
	for (size_t turn = at; turn < next && amount > 0; turn++) {
		size_t best = at;
		double part;

		for (size_t k = at; k < next; k++)
			if (f->on_cpu[f->shares[k].cpu] < f->on_cpu[f->shares[best].cpu] - SIM_SMALL)
				best = k;
		part = least(amount, most(0, 1 - f->on_cpu[f->shares[best].cpu]));
		put(f, best, part);
		amount -= part;
	}
	for (size_t k = at; k < next && amount > 0; k++) {
		double part = least(amount / (double) (next - k), 1 - f->shares[k].want);

		part = most(part, 0);
		put(f, k, part);
		amount -= part;
	}
}

static double fill_level(const struct fluid *f, size_t start, size_t end, double amount)
{
	double low = 0, high = 2 + (double) f->n + 1;

	for (unsigned step = 0; step < LEVEL_STEPS; step++) {
		double level = (low + high) / 2, room = 0;

		for (size_t at = start, next; at < end; at = next) {
			next = core_end(f, at, end);
			room += room_at(f, at, next, level);
		}
		if (room < amount)
			low = level;
		else
			high = level;
	}
	return high;
}

/* The share on an idle core in the last-level cache that has the most of them; `end` when there is none. */
static size_t idle_core(struct fluid *f, size_t start, size_t end)
{
	size_t best = end;

	for (size_t at = start, next; at < end; at = next) {
		next = core_end(f, at, end);
		f->llc_idle[core_of(f, at)->llc] = 0;
	}
	for (size_t at = start, next; at < end; at = next) {
		next = core_end(f, at, end);
		f->llc_idle[core_of(f, at)->llc] += core_of(f, at)->load < SIM_SMALL;
	}
	for (size_t at = start, next; at < end; at = next) {
		next = core_end(f, at, end);
		if (core_of(f, at)->load < SIM_SMALL &&
		    (best == end || f->llc_idle[core_of(f, at)->llc] > f->llc_idle[core_of(f, best)->llc]))
			best = at;
	}
	return best;
}

/* The load's demand over its CPUs, given the others'. Returns by how much it differs from before. */
static double respond(struct fluid *f, size_t load)
{
	const struct sim_load *l = &f->loads[load];
	size_t start = f->start[load], end = f->start[load + 1];
	double amount = least(least(l->demand, most(l->threads, 0)), (double) (end - start));
	double unit = l->threads > 0 ? l->demand / l->threads : 0, differs = 0, level;
	size_t idle;

	for (size_t k = start; k < end; k++) {
		f->shares[k].work = f->shares[k].want;
		put(f, k, -f->shares[k].want);
	}
	/* A rest of rounding would make a core look used. */
	for (size_t k = start; k < end; k++) {
		struct sim_core *c = &f->cores[f->topo->cpus[f->shares[k].cpu].core];

		c->load = c->load < SIM_SMALL ? 0 : c->load;
	}
	while (unit > SIM_SMALL && amount > SIM_SMALL && (idle = idle_core(f, start, end)) < end) {
		double part = least(amount, unit);

		put(f, idle, part);
		amount -= part;
	}
	if (amount > SIM_SMALL) {
		level = fill_level(f, start, end, amount);
		for (size_t at = start, next; at < end && amount > 0; at = next) {
			double part;

			next = core_end(f, at, end);
			part = least(amount, room_at(f, at, next, level));
			put_on_core(f, at, next, part);
			amount -= part;
		}
	}
	for (size_t k = start; k < end; k++)
		differs = most(differs, most(f->shares[k].work - f->shares[k].want,
					     f->shares[k].want - f->shares[k].work));
	return differs;
}

void sim_spread(struct fluid *f)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		double differs = 0;

		for (size_t i = 0; i < f->n; i++)
			differs = most(differs, respond(f, i));
		if (differs < 1e-6)
			break;
	}
	for (size_t i = 0; i < f->start[f->n]; i++)
		f->shares[i].work = 0;
}

