#include "mask.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

static const struct {
	const char *list;
	int error;
	const char *format; /* NULL: the same as list */
} lists[] = {
	{ "", 0, NULL },
	{ "0", 0, NULL },
	{ "0-3,8", 0, NULL },
	{ "63-64,127-128,4095", 0, NULL },
	{ "0-4095", 0, NULL },
	{ " \t0-3\n", 0, "0-3" },
	{ "\n", 0, "" },
	{ "8,0-3,2-5", 0, "0-5,8" },
	{ "1,2,3", 0, "1-3" },
	{ "007", 0, "7" },
	{ "5-5", 0, "5" },
	{ "3-1", -EINVAL, NULL },
	{ "1-", -EINVAL, NULL },
	{ "-1", -EINVAL, NULL },
	{ "+1", -EINVAL, NULL },
	{ ",1", -EINVAL, NULL },
	{ "1,", -EINVAL, NULL },
	{ "1,,2", -EINVAL, NULL },
	{ "1 2", -EINVAL, NULL },
	{ "1, 2", -EINVAL, NULL },
	{ "0x3", -EINVAL, NULL },
	{ "0-3:1/2", -EINVAL, NULL },
	{ "all", -EINVAL, NULL },
	{ "4096", -ERANGE, NULL },
	{ "0-4096", -ERANGE, NULL },
	{ "4294967296", -ERANGE, NULL },
	{ "99999999999999999999999999999999", -ERANGE, NULL },
};

static void test_lists(void **state)
{
	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		struct mask m = { .w = { 42 } };
		int r = mask_parse(lists[i].list, &m);

		if (r != lists[i].error)
			fail_msg("\"%s\": %d, expected %d", lists[i].list, r, lists[i].error);
		if (r < 0) {
			assert_int_equal(m.w[0], 42);
			continue;
		}
		cleanup_free char *text = mask_format(&m);

		assert_string_equal(text, lists[i].format ? lists[i].format : lists[i].list);
	}
}

static void test_nodes(void **state)
{
	nodemask nodes = 42;

	(void) state;
	assert_int_equal(nodemask_parse("64", &nodes), -ERANGE);
	assert_int_equal(nodemask_parse("1-", &nodes), -EINVAL);
	assert_int_equal(nodes, 42);
	assert_int_equal(nodemask_parse("0,2-3,63", &nodes), 0);
	assert_true(nodes == (UINT64_C(0xd) | UINT64_C(1) << 63));
	cleanup_free char *text = nodemask_format(nodes);

	assert_string_equal(text, "0,2-3,63");
	cleanup_free char *empty = nodemask_format(0);

	assert_string_equal(empty, "");
	cleanup_free char *all = nodemask_format(UINT64_MAX);

	assert_string_equal(all, "0-63");
}

/* Against a plain array of bool. */
static void test_sets(void **state)
{
	uint32_t seed = 1;

	(void) state;
	for (int round = 0; round < 200; round++) {
		struct mask a = { 0 }, b = { 0 }, or, and, not;
		bool in_a[CPU_MAX] = { 0 }, in_b[CPU_MAX] = { 0 }, subset = true, meet = false;
		unsigned n = 0, next = 0;

		for (unsigned cpu = 0; cpu < CPU_MAX; cpu++) {
			seed = seed * 1664525 + 1013904223;
			in_a[cpu] = seed >> 28 < (unsigned) round % 17;
			in_b[cpu] = (seed >> 20 & 15) < 8 || (round % 3 == 0 && in_a[cpu]);
			if (in_a[cpu])
				mask_set(&a, cpu);
			if (in_b[cpu])
				mask_set(&b, cpu);
		}
		or = and = not = a;
		mask_or(&or, &b);
		mask_and(&and, &b);
		mask_andnot(&not, &b);
		for (unsigned cpu = 0; cpu < CPU_MAX; cpu++) {
			n += in_a[cpu];
			subset = subset && (!in_a[cpu] || in_b[cpu]);
			meet = meet || (in_a[cpu] && in_b[cpu]);
			assert_int_equal(mask_test(&a, cpu), in_a[cpu]);
			assert_int_equal(mask_test(&or, cpu), in_a[cpu] || in_b[cpu]);
			assert_int_equal(mask_test(&and, cpu), in_a[cpu] && in_b[cpu]);
			assert_int_equal(mask_test(&not, cpu), in_a[cpu] && !in_b[cpu]);
		}
		assert_int_equal(mask_weight(&a), n);
		assert_int_equal(mask_empty(&a), n == 0);
		assert_int_equal(mask_subset(&a, &b), subset);
		assert_int_equal(mask_intersects(&a, &b), meet);
		assert_int_equal(mask_equal(&a, &b), memcmp(in_a, in_b, sizeof(in_a)) == 0);
		assert_true(mask_equal(&a, &a));
		MASK_FOR_EACH(cpu, &a) {
			while (!in_a[next])
				next++;
			assert_int_equal(cpu, next++);
			n--;
		}
		assert_int_equal(n, 0);
	}
}

static void test_edges(void **state)
{
	struct mask m = { 0 };

	(void) state;
	assert_true(mask_empty(&m));
	assert_int_equal(mask_next(&m, 0), CPU_MAX);
	mask_set(&m, CPU_MAX - 1);
	assert_int_equal(mask_next(&m, 0), CPU_MAX - 1);
	assert_int_equal(mask_next(&m, CPU_MAX - 1), CPU_MAX - 1);
	assert_int_equal(mask_next(&m, CPU_MAX), CPU_MAX);
	assert_false(mask_test(&m, CPU_MAX));
	mask_clear(&m, CPU_MAX - 1);
	assert_true(mask_empty(&m));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_sets),
		cmocka_unit_test(test_edges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
