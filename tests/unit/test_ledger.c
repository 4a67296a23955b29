/* The ledger: contents, who is stale, damage, the directory, anchors and weights. */
#include "ledger_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static bool is_stale(const struct view *v, const char *id)
{
	for (size_t i = 0; i < v->n_stale; i++)
		if (str_eq(v->stale[i], id))
			return true;
	return false;
}

/* ---- contents ---- */

static void test_put_get(void **state)
{
	cleanup_ledger struct ledger *l = open_locked(*state);
	cleanup_entry struct entry *e = new_entry("c1", "bank/pod \"1\"", "0-3,8"), *got = NULL;

	assert_int_equal(ledger_get(l, "c1", &got, NULL), -ENOENT);
	e->bundle = strdup("/run/bundle");
	freep(&e->cgroup);
	e->cgroup = strdup("/kubepods/c1");
	e->start_time = 1234567890123;
	e->actor = 4242;
	e->actor_start_time = 77;
	e->state = ENTRY_DEGRADED;
	e->step = strdup("cookie");
	e->why = strdup("no weights");
	e->started = true;
	e->old_cpus = strdup("");
	e->policy_digest = strdup("0123456789abcdef");
	e->plan->memory_nodes = 5;
	e->plan->memory = UINT64_C(1) << 40;
	assert_int_equal(ledger_put(l, e, NULL), 0);
	assert_int_equal(ledger_get(l, "c1", &got, NULL), 0);
	assert_string_equal(got->id, "c1");
	assert_string_equal(got->group, e->group);
	assert_string_equal(got->tenant, "tenant");
	assert_string_equal(got->class, "web");
	assert_string_equal(got->bundle, "/run/bundle");
	assert_string_equal(got->cgroup, "/kubepods/c1");
	assert_int_equal(got->pid, e->pid);
	assert_int_equal(got->start_time, e->start_time);
	assert_int_equal(got->actor, 4242);
	assert_int_equal(got->actor_start_time, 77);
	assert_int_equal(got->state, ENTRY_DEGRADED);
	assert_string_equal(got->step, "cookie");
	assert_string_equal(got->why, "no weights");
	assert_true(got->started);
	assert_string_equal(got->old_cpus, "");
	assert_null(got->old_mems);
	assert_string_equal(got->policy_digest, e->policy_digest);
	assert_true(mask_equal(&got->plan->cpus, &e->plan->cpus));
	assert_int_equal(got->plan->memory_nodes, 5);
	assert_int_equal(got->plan->memory, e->plan->memory);
}

static void test_replace_and_drop(void **state)
{
	cleanup_ledger struct ledger *l = open_locked(*state);
	struct view v;

	put(l, "a", "g", "0");
	put(l, "ab", "g", "1");
	put(l, "a", "g", "2-3");
	v = look(l, false);
	assert_int_equal(v.n, 2);
	assert_true(mask_test(find(&v, "a")->cpus, 3) && !mask_test(find(&v, "a")->cpus, 0));
	assert_int_equal(ledger_drop(l, "nobody", NULL), 0);
	assert_int_equal(ledger_drop(l, "a", NULL), 0);
	assert_int_equal(ledger_drop(l, "a", NULL), 0);
	v = look(l, false);
	assert_int_equal(v.n, 1);
	find(&v, "ab");
	check_consistent(l);
}

static void test_needs_lock(void **state)
{
	cleanup_ledger struct ledger *l = open_ledger(*state);
	cleanup_entry struct entry *e = new_entry("a", "g", "0");
	size_t n;

	assert_int_equal(ledger_put(l, e, NULL), -ENOLCK);
	assert_int_equal(ledger_drop(l, "a", NULL), -ENOLCK);
	assert_int_equal(ledger_members(l, "g", &n, NULL), -ENOLCK);
	assert_int_equal(ledger_put_weights(l, &(struct saved_weights){.was_auto = true}, NULL), -ENOLCK);
}

static void test_occupant_fields(void **state)
{
	cleanup_ledger struct ledger *l = open_locked(*state);
	cleanup_entry struct entry *e = new_entry("full", "g1", "0-3"), *failed = new_entry("failed", "g1", "0");
	const struct occupant *o;
	struct view v;
	size_t n = 9;

	e->plan->mechanism = MECHANISM_CORES;
	e->plan->exclusive = e->plan->bound = e->plan->set_weights = e->plan->streams = true;
	e->plan->mcpu = 2500;
	e->plan->memory = UINT64_MAX / 4;
	e->plan->mems = 3;
	e->plan->memory_nodes = 2;
	mask_set(&e->plan->wish, CPU_MAX - 1);
	failed->state = ENTRY_LEAVING;
	assert_int_equal(ledger_put(l, e, NULL), 0);
	assert_int_equal(ledger_put(l, failed, NULL), 0);
	put(l, "plain", "g2", "");
	v = look(l, false);
	assert_int_equal(v.n, 2);
	o = find(&v, "full");
	assert_string_equal(o->group, "g1");
	assert_int_equal(o->mechanism, MECHANISM_CORES);
	assert_true(o->exclusive && o->bound && o->weights && o->streams);
	assert_int_equal(o->mcpu, 2500);
	assert_int_equal(o->memory, e->plan->memory);
	assert_int_equal(o->mems, 2);
	assert_true(mask_equal(o->cpus, &e->plan->cpus));
	assert_true(mask_equal(o->wish, &e->plan->wish));
	o = find(&v, "plain");
	assert_true(!o->exclusive && !o->bound && !o->weights && !o->streams && mask_empty(o->cpus) && mask_empty(o->wish));
	assert_int_equal(ledger_members(l, "g1", &n, NULL), 0);
	assert_int_equal(n, 1);
	assert_int_equal(ledger_members(l, "g", &n, NULL), 0);
	assert_int_equal(n, 0);
}

static void long_id(char id[static OCI_ID_MAX + 1], char last)
{
	memset(id, 'x', OCI_ID_MAX);
	id[OCI_ID_MAX - 1] = last;
	id[OCI_ID_MAX] = '\0';
}

static void test_hostile_ids(void **state)
{
	static const char *const good[] = {".hidden", "...", "a+b_c-d.e", "x.json", "-"};
	static const char *const bad[] = {"", ".", "..", "../x", "a/b", "a\nb", "a\tb", "\xff", "a b", "a~b", "a%41"};
	struct fixture *f = *state;
	cleanup_ledger struct ledger *l = open_locked(f);
	char one[OCI_ID_MAX + 1], two[OCI_ID_MAX + 1];
	char **ids = NULL;
	size_t n = 0;

	long_id(one, '1');
	long_id(two, '2');
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		put(l, good[i], "g", "0");
	put(l, one, "g", "1");
	put(l, two, "g", "2");
	assert_int_equal(check_consistent(l), ARRAY_LEN(good) + 2);
	assert_int_equal(ledger_ids(l, &ids, &n, NULL), 0);
	for (size_t i = 1; i < n; i++)
		assert_true(strcmp(ids[i - 1], ids[i]) < 0);
	ledger_ids_free(ids, n);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		cleanup_entry struct entry *e = new_entry(bad[i], "g", "0"), *got = NULL;

		assert_int_equal(ledger_put(l, e, NULL), -EINVAL);
		assert_int_equal(ledger_get(l, bad[i], &got, NULL), -EINVAL);
		assert_int_equal(ledger_drop(l, bad[i], NULL), -EINVAL);
	}
	assert_int_equal(ledger_drop(l, one, NULL), 0);
	assert_int_equal(ledger_drop(l, ".hidden", NULL), 0);
	assert_int_equal(check_consistent(l), ARRAY_LEN(good));
}

static void test_hostile_groups(void **state)
{
	static const char *const bad[] = {"", "a\tb", "a\nb", "\x7f"};
	cleanup_ledger struct ledger *l = open_locked(*state);
	size_t n = 0;

	put(l, "a", "pay/pod ../../etc", "0");
	put(l, "b", "z\xc3\xbcrich%09", "0");
	assert_int_equal(ledger_members(l, "z\xc3\xbcrich%09", &n, NULL), 0);
	assert_int_equal(n, 1);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		cleanup_entry struct entry *e = new_entry("c", bad[i], "0");

		assert_int_equal(ledger_put(l, e, NULL), -EINVAL);
	}
	assert_int_equal(check_consistent(l), 2);
}

static void test_thousand(void **state)
{
	cleanup_ledger struct ledger *l = open_locked(*state);
	char id[32], group[32], cpus[32];
	struct view v;
	size_t n = 0;

	for (unsigned i = 0; i < 1000; i++) {
		snprintf(id, sizeof(id), "container-%u", i);
		snprintf(group, sizeof(group), "group-%u", i % 100);
		snprintf(cpus, sizeof(cpus), "%u-%u", i % 250 * 4, i % 250 * 4 + 3);
		put(l, id, group, cpus);
	}
	v = look(l, false);
	assert_int_equal(v.n, 1000);
	for (unsigned i = 0; i < 1000; i++) {
		const struct occupant *o;

		snprintf(id, sizeof(id), "container-%u", i);
		snprintf(group, sizeof(group), "group-%u", i % 100);
		o = find(&v, id);
		assert_string_equal(o->group, group);
		assert_int_equal(mask_weight(o->cpus), 4);
		assert_int_equal(mask_next(o->cpus, 0), i % 250 * 4);
	}
	assert_int_equal(ledger_members(l, "group-7", &n, NULL), 0);
	assert_int_equal(n, 10);
}

static void test_index_stays_small(void **state)
{
	struct fixture *f = *state;
	cleanup_ledger struct ledger *l = open_locked(f);
	cleanup_free char *path = path_in(f, "index");
	struct stat st;

	put(l, "other", "g", "1");
	for (unsigned i = 0; i < 2000; i++)
		put(l, "same", "g", i % 2 ? "0-3" : "4");
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size < 64 << 10);
	assert_int_equal(check_consistent(l), 2);
}

/* ---- who needs a closer look ---- */

static void test_stale(void **state)
{
	cleanup_ledger struct ledger *l = open_locked(*state);
	cleanup_entry struct entry *intent = new_entry("intent", "g", "0"), *mine = new_entry("mine", "g", "0");
	const pid_t gone = dead_pid();
	unsigned seen = 0, calls = 0;
	char id[16];
	struct view v;

	intent->state = mine->state = ENTRY_INTENT;
	intent->actor = gone;
	mine->actor = mine->pid;
	mine->actor_start_time = mine->start_time;
	assert_int_equal(ledger_put(l, intent, NULL), 0);
	assert_int_equal(ledger_put(l, mine, NULL), 0);
	for (unsigned i = 0; i < 20; i++) {
		cleanup_entry struct entry *e = NULL;

		snprintf(id, sizeof(id), "c%u", i);
		e = new_entry(id, "g", "0");
		if (i == 17)
			e->pid = gone;
		if (i == 3)
			e->start_time++; /* the number is somebody else's now */
		if (i == 5 || i == 6) {
			e->state = ENTRY_LEAVING; /* no occupant any more */
			e->actor = e->pid;
			e->actor_start_time = e->start_time;
		}
		if (i == 6)
			e->actor = gone; /* and nobody finishes giving back what it had */
		assert_int_equal(ledger_put(l, e, NULL), 0);
	}
	for (; calls < 11; calls++) {
		v = look(l, false);
		assert_int_equal(v.n, 20);
		assert_true(is_stale(&v, "intent") && is_stale(&v, "c6") && !is_stale(&v, "c5"));
		assert_true(v.n_stale <= 3);
		seen += is_stale(&v, "c17") + is_stale(&v, "c3");
	}
	assert_int_equal(seen, 2);
	v = look(l, true);
	assert_int_equal(v.n_stale, 4);
	assert_true(is_stale(&v, "intent") && is_stale(&v, "c6") && is_stale(&v, "c17") && is_stale(&v, "c3"));
}

/* ---- damage ---- */

#define HEADER "cotenant index 2 c dead 00000000 turn 00000000\n"

/* '|' stands for the NUL behind each field. */
/* Without the lock: whoever holds it may count on the index to stay. */
static void write_index(const struct fixture *f, struct ledger *l, const char *text)
{
	cleanup_free char *path = path_in(f, "index"), *copy = strdup(text);
	cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ledger_unlock(l);
	assert_non_null(copy);
	for (char *bar = copy; (bar = strchr(bar, '|'));)
		*bar++ = '\0';
	assert_true(fd >= 0);
	assert_int_equal(write(fd, copy, strlen(text)), strlen(text));
	assert_int_equal(ledger_lock(l, NULL), 0);
}

static void unlink_index(const struct fixture *f, struct ledger *l)
{
	cleanup_free char *path = path_in(f, "index");

	ledger_unlock(l);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(ledger_lock(l, NULL), 0);
}

static void test_damaged_index(void **state)
{
	static const char *const junk[] = {
	    "",
	    "junk\n",
	    "cotenant index 3 c dead 00000000 turn 00000000\n",
	    "cotenant index 2 d dead 00000000 turn 00000000\n",
	    "cotenant index 2 c dead 0000000x turn 00000000\n",
	    "cotenant index 2 c dead 00000000 turn 00000000",
	    HEADER "+a|g|\n",
	    HEADER "+a|g|dk----|1|0|0|0|=|1|1|1|1|\n", /* of an older version */
	    HEADER "+a|g|dk-----|1|0|0|0-x|=|1|1|1|1|\n", /* not a list of CPUs */
	    HEADER "+a|g|zk-----|1|0|0|0|=|1|1|1|1|\n",   /* no such state */
	    HEADER "+a|g|dz-----|1|0|0|0|=|1|1|1|1|\n",   /* no such mechanism */
	    HEADER "+a|g|dk-----|1|0|0|0|=|1|1|1|1|1|\n", /* a field too many */
	    HEADER "+a|g|dk-----|9999999999|0|0|0|=|1|1|1|1|\n",
	    HEADER "+a|g|dk-----|1|0|0|0|=|1|1|1|-1|\n",
	    HEADER "+a|g|dk-----|1|0|0|0|=|1|1|1|1|\n+a|g|dk-----|1|0|0|0|=|1|1|1|1|", /* cut short */
	    HEADER "?a|g|dk-----|1|0|0|0|=|1|1|1|1|\n",
	    HEADER "\n",
	};
	struct fixture *f = *state;
	cleanup_ledger struct ledger *l = open_locked(f);
	cleanup_free char *path = path_in(f, "index");
	struct view v;
	size_t n = 0;

	put(l, "a", "g", "0-1");
	put(l, "b", "g", "2");
	write_index(f, l, HEADER "+x|g|dk-----|1|0|0|0|=|1|1|1|1|\n");
	v = look(l, false);
	assert_int_equal(v.n, 1); /* a good one is believed, so that the others below are told from it */
	for (size_t i = 0; i < ARRAY_LEN(junk); i++) {
		write_index(f, l, junk[i]);
		assert_int_equal(check_consistent(l), 2);
		write_index(f, l, junk[i]);
		assert_int_equal(ledger_members(l, "g", &n, NULL), 0);
		assert_int_equal(n, 2);
	}
	unlink_index(f, l);
	assert_int_equal(check_consistent(l), 2);
	unlink_index(f, l);
	put(l, "c", "g", "3");
	assert_int_equal(check_consistent(l), 3);
	unlink_index(f, l);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_int_equal(check_consistent(l), 3);
}

static void test_last_put(void **state)
{
	struct fixture *f = *state;
	cleanup_ledger struct ledger *l = open_locked(f), *other = NULL;

	assert_false(ledger_has_last_put(l, "a"));
	put(l, "a", "g", "0");
	assert_true(ledger_has_last_put(l, "a"));
	assert_false(ledger_has_last_put(l, "b"));
	put(l, "b", "g", "0");
	assert_false(ledger_has_last_put(l, "a"));
	assert_true(ledger_has_last_put(l, "b"));
	ledger_unlock(l);
	other = open_locked(f);
	put(other, "c", "g", "0");
	assert_true(ledger_has_last_put(l, "b"));
	put(other, "b", "g", "1");
	assert_false(ledger_has_last_put(l, "b"));
	assert_true(ledger_has_last_put(other, "b"));
	assert_int_equal(ledger_drop(other, "b", NULL), 0);
	assert_false(ledger_has_last_put(other, "b"));
}

static void test_damaged_entry(void **state)
{
	static const char *const junk[] = {"", "{", "[]", "{\"version\": 1}", "{\"version\": 2}\n"};
	struct fixture *f = *state;
	cleanup_ledger struct ledger *l = open_locked(f);

	put(l, "good", "g", "0");
	for (size_t i = 0; i < ARRAY_LEN(junk); i++) {
		cleanup_error struct error err = {0};
		cleanup_entry struct entry *e = NULL;

		put(l, "bad", "g", "1");
		write_file(f, "containers/bad.json", junk[i], O_TRUNC);
		ledger_unlock(l);
		assert_int_equal(ledger_get(l, "bad", &e, NULL), -ENOENT);
		assert_int_equal(count_files(f, "containers", "bad.json"), 1);
		assert_int_equal(ledger_lock(l, NULL), 0);
		assert_int_equal(ledger_get(l, "bad", &e, &err), -ENOENT);
		assert_non_null(strstr(error_text(&err), "moved to damaged-"));
		assert_int_equal(count_files(f, "containers", "bad.json"), 0);
		assert_int_equal(count_files(f, "containers", ".bad"), 1);
		assert_int_equal(check_consistent(l), 1);
	}
}

static void test_many_damaged_entries(void **state)
{
	struct fixture *f = *state;
	cleanup_ledger struct ledger *l = open_locked(f);
	cleanup_free char *index = path_in(f, "index");
	char name[64];

	put(l, "good", "g", "0");
	for (unsigned i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "containers/c%u.json", i);
		write_file(f, name, "damaged", 0);
	}
	write_file(f, "containers/.123.tmp", "left behind", 0);
	assert_int_equal(unlink(index), 0);
	assert_int_equal(check_consistent(l), 1);
	assert_true(count_files(f, "containers", ".bad") <= 16);
	assert_int_equal(count_files(f, "containers", ".tmp"), 0);
}

/* ---- the directory ---- */

static void expect_refused(struct fixture *f, const char *path, int code, const char *text)
{
	cleanup_error struct error err = {0};
	struct ledger *l = NULL;

	assert_int_equal(ledger_open(&f->sys, path, &l, &err), -code);
	assert_null(l);
	if (!strstr(error_text(&err), text) || !strstr(error_text(&err), path))
		fail_msg("\"%s\" does not say \"%s\"", error_text(&err), text);
}

static void expect_none(struct fixture *f)
{
	cleanup_error struct error err = {0};
	struct ledger *l = NULL;

	assert_int_equal(ledger_open_existing(&f->sys, f->state, &l, &err), -ENOENT);
	assert_non_null(strstr(error_text(&err), "no ledger at "));
}

/* Who only looks leaves no lock file either, and cannot lock. */
static void test_existing(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *lock = path_in(f, "lock"), *groups = path_in(f, "groups");
	cleanup_ledger struct ledger *l = NULL;
	struct stat st;

	expect_none(f);
	ledger_close(open_ledger(f));
	assert_int_equal(unlink(lock), 0);
	assert_int_equal(ledger_open_existing(&f->sys, f->state, &l, NULL), 0);
	assert_int_equal(stat(lock, &st), -1);
	assert_true(ledger_lock(l, NULL) < 0);
	assert_int_equal(stat(lock, &st), -1);
	assert_int_equal(rmdir(groups), 0);
	expect_none(f);
}

static void test_directory(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *link = NULL, *parent = NULL, *inner = path_in(f, "containers");
	struct stat st;

	assert_true(asprintf(&link, "%s/link", f->dir) > 0);
	assert_true(asprintf(&parent, "%s/run", f->dir) > 0);
	f->sys.acting = false;
	expect_refused(f, f->state, ENOENT, "no ledger at ");
	assert_int_equal(stat(parent, &st), -1);
	f->sys.acting = true;
	expect_none(f);
	assert_int_equal(stat(parent, &st), -1);
	ledger_close(open_ledger(f));
	assert_int_equal(stat(f->state, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(stat(inner, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(symlink(f->state, link), 0);
	expect_refused(f, link, ENOTDIR, "symbolic links");
	expect_refused(f, "/proc/cotenant", ENOENT, "cannot be created");
	expect_refused(f, "/etc/passwd", ENOTDIR, "is no directory");
	assert_int_equal(chmod(f->state, 0770), 0);
	expect_refused(f, f->state, EPERM, "mode 0770");
	assert_int_equal(chmod(f->state, 0700), 0);
	assert_int_equal(chmod(inner, 0702), 0);
	expect_refused(f, f->state, EPERM, "mode 0702");
	assert_int_equal(chmod(inner, 0700), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown(f->state, 65534, (gid_t) -1), 0);
		expect_refused(f, f->state, EPERM, "belongs to user 65534");
	}
}

/* ---- anchors and weights ---- */

static void test_anchors(void **state)
{
	char long_one[400], long_two[400];
	const char *const groups[] = {"bank", "a/b", "..",     ".",     "../../etc/passwd", "z\xc3\xbcrich", "a%2Fb",
				      "\x1b", "",    long_one, long_two};
	struct fixture *f = *state;
	cleanup_ledger struct ledger *l = open_ledger(f);
	struct anchor_ref got;

	memset(long_one, '/', sizeof(long_one) - 1);
	long_one[sizeof(long_one) - 1] = '\0';
	memcpy(long_two, long_one, sizeof(long_two));
	long_two[sizeof(long_two) - 2] = 'x';
	for (unsigned i = 0; i < ARRAY_LEN(groups); i++) {
		assert_int_equal(ledger_get_anchor(l, groups[i], &got, NULL), -ENOENT);
		assert_int_equal(ledger_put_anchor(l, groups[i],
						   &(struct anchor_ref){.pid = 100 + (pid_t) i, .start_time = i}, NULL),
				 0);
	}
	for (unsigned i = 0; i < ARRAY_LEN(groups); i++) {
		assert_int_equal(ledger_get_anchor(l, groups[i], &got, NULL), 0);
		assert_int_equal(got.pid, 100 + i);
		assert_int_equal(got.start_time, i);
		assert_int_equal(ledger_drop_anchor(l, groups[i], NULL), 0);
		assert_int_equal(ledger_drop_anchor(l, groups[i], NULL), 0);
		assert_int_equal(ledger_get_anchor(l, groups[i], &got, NULL), -ENOENT);
	}
	write_file(f, "groups/bank.json", "{\"version\": 1, \"group\": \"shop\", \"pid\": 1, \"start_time\": 1}", 0);
	assert_int_equal(ledger_get_anchor(l, "bank", &got, NULL), -ENOENT);
	write_file(f, "groups/bank.json", "damaged", O_TRUNC);
	assert_int_equal(ledger_get_anchor(l, "bank", &got, NULL), -ENOENT);
}

static void test_weights(void **state)
{
	cleanup_ledger struct ledger *l = open_locked(*state);
	struct saved_weights w = {.was_auto = true}, got;

	w.node[0] = 5;
	w.node[NODE_MAX - 1] = 255;
	assert_int_equal(ledger_get_weights(l, &got, NULL), -ENOENT);
	assert_int_equal(ledger_put_weights(l, &w, NULL), 0);
	assert_int_equal(ledger_get_weights(l, &got, NULL), 0);
	assert_true(got.was_auto);
	assert_memory_equal(got.node, w.node, sizeof(w.node));
	assert_int_equal(ledger_drop_weights(l, NULL), 0);
	assert_int_equal(ledger_get_weights(l, &got, NULL), -ENOENT);
	write_file(*state, "weights.json", "{\"version\": 1, \"was_auto\": true, \"node\": [1]}", 0);
	assert_int_equal(ledger_get_weights(l, &got, NULL), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    with_ledger(test_put_get),       with_ledger(test_replace_and_drop),
	    with_ledger(test_needs_lock),    with_ledger(test_occupant_fields),
	    with_ledger(test_hostile_ids),   with_ledger(test_hostile_groups),
	    with_ledger(test_thousand),      with_ledger(test_index_stays_small),
	    with_ledger(test_stale),         with_ledger(test_damaged_index),
	    with_ledger(test_last_put),      with_ledger(test_damaged_entry),
	    with_ledger(test_many_damaged_entries),
	    with_ledger(test_directory), with_ledger(test_existing),     with_ledger(test_anchors),
	    with_ledger(test_weights),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
