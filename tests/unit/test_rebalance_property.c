/* Random running machines: what must hold for moves, whatever the engine finds best. argv[1]: a seed to begin with. */
#include "many_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#define MACHINES 1000
#define CONTAINERS 16
#define ROUNDS 12
#define MOVES 6

struct seen {
	unsigned moves, swaps, owners, pushed, rounds, full, quiet;
};

static char *moves_text(const struct moves *m)
{
	cleanup_json_writer struct json_writer *w = json_writer_new(true);
	char *text;
	size_t len;

	moves_write(w, m);
	assert_int_equal(json_writer_take(w, &text, &len), 0);
	return text;
}

/* The same again, and from another order of the input. */
static void check_stable(struct crew *c, const struct moves *m)
{
	cleanup_free char *text = moves_text(m), *again = NULL, *shuffled = NULL;
	struct moves *other;

	assert_int_equal(plan_rebalance(&c->facts, MOVES, &other), 0);
	again = moves_text(other);
	assert_string_equal(text, again);
	moves_free(other);
	crew_shuffle(c);
	assert_int_equal(plan_rebalance(&c->facts, MOVES, &other), 0);
	shuffled = moves_text(other);
	assert_string_equal(text, shuffled);
	moves_free(other);
	crew_unshuffle(c);
}

static int64_t cost_now(const struct crew *c)
{
	cleanup_moves struct moves *m = NULL;

	assert_int_equal(plan_rebalance(&c->facts, 0, &m), 0);
	return cost_sum(&m->before);
}

static void check_move(const struct crew *c, const struct move *m)
{
	const struct container *one = &c->containers[crew_find(c, m->id)];
	const struct occupant *now = one->now;

	assert_true(one->class->rebalance.enabled && !one->cpus_given && one->can_cpuset && !now->bound);
	assert_false(mask_empty(&m->plan->cpus));
	assert_true(mask_subset(&m->plan->cpus, &c->topo->online));
	assert_true(mask_subset(&m->plan->cpus, one->allowed_cpus));
	assert_false(mask_intersects(&m->plan->cpus, &c->policy.node.reserved));
	assert_int_equal(m->plan->mechanism, now->mechanism);
	assert_int_equal(m->plan->exclusive, now->exclusive);
	assert_true(m->plan->set_cpus);
	assert_true(m->gain >= REBALANCE_LEAST);
	assert_non_null(m->why);
}

/* One after another. Returns how many there were. */
static size_t round_of_moves(struct crew *c, struct seen *seen)
{
	cleanup_moves struct moves *m = NULL;
	int64_t before, after;

	assert_int_equal(plan_rebalance(&c->facts, MOVES, &m), 0);
	check_stable(c, m);
	assert_true(m->n <= MOVES);
	seen->full += m->full;
	before = cost_now(c);
	assert_int_equal(before, cost_sum(&m->before));
	for (size_t i = 0; i < m->n; i++) {
		const struct move *move = &m->list[i];

		check_move(c, move);
		crew_apply(c, move->id, move->plan);
		crew_check(c);
		seen->moves++;
		seen->owners += plan_owns(move->plan);
		seen->pushed += move->plan->n_adjusts > 0;
		if (move->swap) {
			seen->swaps++;
			continue;
		}
		after = cost_now(c);
		if (after > before - REBALANCE_LEAST)
			fail_msg("costs %ld after a move and %ld before: %s", (long) after, (long) before, move->why);
		before = after;
	}
	return m->n;
}

/* Demand shifts, some end, and then it is balanced until it is quiet. */
static void live(struct crew *c, struct seen *seen)
{
	crew_settle(c);
	for (unsigned shift = 0; shift < 3; shift++) {
		size_t moved = 1;

		for (size_t i = 0; i < c->n; i++)
			if (crew_draw(c, 3) == 0)
				c->containers[i].mcpu = 250 * (1 + (unsigned) crew_draw(c, 10));
		if (c->n > 1 && crew_draw(c, 2))
			crew_remove(c, crew_draw(c, c->n));
		for (unsigned round = 0; moved; round++) {
			if (round == ROUNDS)
				fail_msg("still moving after %u rounds", round);
			moved = round_of_moves(c, seen);
			seen->rounds += moved > 0;
		}
		seen->quiet++;
	}
}

static void test_moves(void **state)
{
	uint64_t *seed = *state, end = *seed + MACHINES;
	struct seen seen = { 0 };

	for (; *seed < end; ++*seed) {
		cleanup_crew struct crew *c = crew_random(*seed, CONTAINERS);

		live(c, &seen);
	}
	print_message("%u moves (%u swaps, %u of owners, %u push others) in %u rounds, quiet %u times, full %u times\n",
		      seen.moves, seen.swaps, seen.owners, seen.pushed, seen.rounds, seen.quiet, seen.full);
	assert_true(seen.moves > 400 && seen.owners > 50 && seen.pushed > 50 && seen.swaps > 10);
}

static int tell_seed(void **state)
{
	print_message("up to seed %llu\n", *(unsigned long long *) *state);
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	const struct CMUnitTest tests[] = {
		{ "test_moves", test_moves, NULL, tell_seed, &seed },
	};

	print_message("from seed %llu\n", (unsigned long long) seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
