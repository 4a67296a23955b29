/* Which policy files are read, in which order, and which are refused. */
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

#define MAIN_TEXT                                                                                                      \
	"{\"version\": 1, \"classes\": {\"web\": {}},\n"                                                               \
	" \"rules\": [{\"match\": {\"id\": \"main\"}, \"tenant\": \"main\", \"class\": \"web\"}]}\n"
#define DROP_IN_TEXT "{\"version\": 1, \"rules\": [{\"match\": {}, \"tenant\": \"%s\", \"class\": \"web\"}]}\n"

struct fixture {
	struct sys sys;
	char *dir, *policy, *drop_ins;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->dir = strdup("/tmp/cotenant-policy-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	assert_true(asprintf(&f->policy, "%s/policy.json", f->dir) > 0);
	assert_true(asprintf(&f->drop_ins, "%s/policy.d", f->dir) > 0);
	f->sys = (struct sys){.root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), .acting = true};
	*state = f;
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *walk)
{
	(void) st;
	(void) flag;
	(void) walk;
	return remove(path);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	sys_done(&f->sys);
	free(f->dir);
	free(f->policy);
	free(f->drop_ins);
	free(f);
	return 0;
}

static void write_file(const char *path, const char *text)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, 0644), 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void write_drop_in(const struct fixture *f, const char *name, const char *tenant)
{
	cleanup_free char *path = NULL, *text = NULL;

	if (mkdir(f->drop_ins, 0755) == 0)
		assert_int_equal(chmod(f->drop_ins, 0755), 0);
	assert_true(asprintf(&path, "%s/%s", f->drop_ins, name) > 0);
	assert_true(asprintf(&text, DROP_IN_TEXT, tenant) > 0);
	write_file(path, text);
}

static void expect_error(const struct fixture *f, const char *path, int code, const char *text)
{
	cleanup_error struct error err = {0};
	cleanup_policy struct policy *p = NULL;

	assert_int_equal(policy_load(&f->sys, path, &p, &err), -code);
	assert_null(p);
	if (!strstr(error_text(&err), text))
		fail_msg("\"%s\" does not say \"%s\"", error_text(&err), text);
}

static struct policy *load(const struct fixture *f, const char *path)
{
	cleanup_error struct error err = {0};
	struct policy *p = NULL;

	if (policy_load(&f->sys, path, &p, &err) < 0)
		fail_msg("%s", error_text(&err));
	return p;
}

static void test_one_file(void **state)
{
	struct fixture *f = *state;
	cleanup_policy struct policy *p = NULL;

	write_file(f->policy, MAIN_TEXT);
	p = load(f, f->policy);
	assert_int_equal(p->n_rules, 1);
	assert_string_equal(p->rules[0].tenant, "main");
	assert_string_equal(p->rules[0].file, f->policy);
}

static void test_relative_and_foreign_root(void **state)
{
	struct fixture *f = *state;
	cleanup_fd int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_policy struct policy *relative = NULL, *foreign = NULL;

	write_file(f->policy, MAIN_TEXT);
	write_drop_in(f, "a.json", "a");
	assert_int_equal(chdir(f->dir), 0);
	relative = load(f, "policy.json");
	assert_int_equal(fchdir(here), 0);
	assert_int_equal(relative->n_rules, 2);
	sys_done(&f->sys);
	f->sys = (struct sys){.root_fd = open(f->dir, O_PATH | O_DIRECTORY | O_CLOEXEC)};
	foreign = load(f, "/policy.json");
	assert_int_equal(foreign->n_rules, 2);
}

static void test_drop_ins(void **state)
{
	static const char *const order[] = {"main", "upper", "ten", "two", "lower"};
	struct fixture *f = *state;
	cleanup_policy struct policy *p = NULL;

	write_file(f->policy, MAIN_TEXT);
	write_drop_in(f, "b.json", "lower");
	write_drop_in(f, "2.json", "two");
	write_drop_in(f, "10.json", "ten");
	write_drop_in(f, "-B.json", "upper");
	write_drop_in(f, ".hidden.json", "hidden");
	write_drop_in(f, "b.json.orig", "other");
	write_drop_in(f, ".json", "nameless");
	p = load(f, f->policy);
	assert_int_equal(p->n_rules, ARRAY_LEN(order));
	for (size_t i = 0; i < ARRAY_LEN(order); i++)
		assert_string_equal(p->rules[i].tenant, order[i]);
}

static void test_symlink(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *target = NULL;
	cleanup_policy struct policy *p = NULL;

	assert_true(asprintf(&target, "%s/target", f->dir) > 0);
	write_file(target, MAIN_TEXT);
	assert_int_equal(symlink("target", f->policy), 0);
	p = load(f, f->policy);
	assert_int_equal(chmod(target, 0666), 0);
	expect_error(f, f->policy, EPERM, "mode 0666 lets others change it: chmod go-w ");
}

static void test_refused_files(void **state)
{
	struct fixture *f = *state;

	expect_error(f, f->policy, ENOENT, "there is none: write one (cotenant-policy(5)) or name one with --policy");
	expect_error(f, f->dir, EISDIR, "is a directory");
	assert_int_equal(mkfifo(f->policy, 0600), 0);
	expect_error(f, f->policy, EINVAL, "is not a regular file");
	assert_int_equal(unlink(f->policy), 0);
	write_file(f->policy, "");
	expect_error(f, f->policy, EINVAL, "is empty");
	assert_int_equal(truncate(f->policy, POLICY_MAX + 1), 0);
	expect_error(f, f->policy, EFBIG, "is larger than 1048576 bytes");
	write_file(f->policy, MAIN_TEXT);
	assert_int_equal(chmod(f->policy, 0620), 0);
	expect_error(f, f->policy, EPERM, "mode 0620 lets others change it: chmod go-w ");
	assert_int_equal(chmod(f->policy, 0602), 0);
	expect_error(f, f->policy, EPERM, "mode 0602");
	assert_int_equal(chmod(f->policy, 0644), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown(f->policy, 1234, (gid_t) -1), 0);
		expect_error(f, f->policy, EPERM, "belongs to user 1234, and must be root's: chown root ");
	}
}

static void test_refused_drop_ins(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *drop_in = NULL;

	assert_true(asprintf(&drop_in, "%s/x.json", f->drop_ins) > 0);
	write_file(f->policy, MAIN_TEXT);
	write_drop_in(f, "x.json", "x");
	assert_int_equal(chmod(drop_in, 0666), 0);
	expect_error(f, f->policy, EPERM, drop_in);
	assert_int_equal(unlink(drop_in), 0);
	assert_int_equal(symlink("nowhere", drop_in), 0);
	expect_error(f, f->policy, ENOENT, drop_in);
	assert_int_equal(unlink(drop_in), 0);
	assert_int_equal(mkdir(drop_in, 0700), 0);
	expect_error(f, f->policy, EISDIR, drop_in);
	assert_int_equal(rmdir(drop_in), 0);
	assert_int_equal(rmdir(f->drop_ins), 0);
	write_file(f->drop_ins, "");
	expect_error(f, f->policy, ENOTDIR, f->drop_ins);
}

static void test_refused_directories(void **state)
{
	struct fixture *f = *state;
	cleanup_policy struct policy *p = NULL;

	write_file(f->policy, MAIN_TEXT);
	write_drop_in(f, "x.json", "x");
	assert_int_equal(chmod(f->drop_ins, 01777), 0);
	expect_error(f, f->policy, EPERM, "mode 1777 lets others change it");
	assert_int_equal(chmod(f->drop_ins, 0755), 0);
	assert_int_equal(chmod(f->dir, 0777), 0);
	expect_error(f, f->policy, EPERM, "mode 0777 lets others change it");
	assert_int_equal(chmod(f->dir, 01777), 0);
	p = load(f, f->policy);
	assert_int_equal(p->n_rules, 2);
}

/* Not the directory that holds it alone: every one up to the root, by name and in truth. */
static void test_refused_place(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *outer = NULL, *inner = NULL, *path = NULL, *named = NULL;
	cleanup_fd int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_policy struct policy *p = NULL;

	assert_true(asprintf(&outer, "%s/outer", f->dir) > 0);
	assert_true(asprintf(&inner, "%s/inner", outer) > 0);
	assert_true(asprintf(&path, "%s/policy.json", inner) > 0);
	assert_true(asprintf(&named, "%s/outer/: mode 0777 lets others change it", f->dir) > 0);
	assert_int_equal(mkdir(outer, 0755), 0);
	assert_int_equal(mkdir(inner, 0755), 0);
	write_file(path, MAIN_TEXT);
	p = load(f, path);
	assert_int_equal(chmod(outer, 0777), 0);
	expect_error(f, path, EPERM, named);
	assert_int_equal(chdir(inner), 0);
	expect_error(f, "policy.json", EPERM, named);
	assert_int_equal(fchdir(here), 0);
	/* Links to there: of the file, of a directory, and a drop-in. */
	assert_int_equal(symlink(path, f->policy), 0);
	expect_error(f, f->policy, EPERM, named);
	assert_int_equal(unlink(f->policy), 0);
	write_file(f->policy, MAIN_TEXT);
	assert_int_equal(symlink(inner, f->drop_ins), 0);
	expect_error(f, f->policy, EPERM, named);
	assert_int_equal(unlink(f->drop_ins), 0);
	if (geteuid() == 0) {
		assert_int_equal(chmod(outer, 0755), 0);
		assert_int_equal(chown(outer, 65534, (gid_t) -1), 0);
		expect_error(f, path, EPERM, "/outer/: belongs to user 65534, and must be root's");
	}
}

#define with_fixture(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    with_fixture(test_one_file),
	    with_fixture(test_relative_and_foreign_root),
	    with_fixture(test_drop_ins),
	    with_fixture(test_symlink),
	    with_fixture(test_refused_files),
	    with_fixture(test_refused_drop_ins),
	    with_fixture(test_refused_directories),
	    with_fixture(test_refused_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
