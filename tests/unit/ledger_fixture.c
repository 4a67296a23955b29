#include "ledger_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *walk)
{
	(void) st;
	(void) flag;
	(void) walk;
	return remove(path);
}

int ledger_setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->dir = strdup("/tmp/cotenant-ledger-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	assert_true(asprintf(&f->state, "%s/run/state", f->dir) > 0);
	f->sys = (struct sys){.root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), .acting = true};
	*state = f;
	return 0;
}

int ledger_teardown(void **state)
{
	struct fixture *f = *state;

	nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	sys_done(&f->sys);
	free(f->dir);
	free(f->state);
	free(f);
	return 0;
}

struct ledger *open_ledger(struct fixture *f)
{
	cleanup_error struct error err = {0};
	struct ledger *l = NULL;

	if (ledger_open(&f->sys, f->state, &l, &err) < 0)
		fail_msg("%s", error_text(&err));
	return l;
}

struct ledger *open_locked(struct fixture *f)
{
	struct ledger *l = open_ledger(f);

	assert_int_equal(ledger_lock(l, NULL), 0);
	return l;
}

struct entry *new_entry(const char *id, const char *group, const char *cpus)
{
	struct entry *e = calloc(1, sizeof(*e));

	assert_non_null(e);
	e->id = strdup(id);
	e->tenant = strdup("tenant");
	e->group = strdup(group);
	e->class = strdup("web");
	e->cgroup = strdup("");
	e->state = ENTRY_DONE;
	e->pid = getpid();
	e->plan = calloc(1, sizeof(*e->plan));
	assert_non_null(e->plan);
	e->plan->mechanism = MECHANISM_COOKIE;
	e->plan->set_cpus = true;
	e->plan->mcpu = 1000;
	assert_int_equal(mask_parse(cpus, &e->plan->cpus), 0);
	e->plan->wish = e->plan->cpus;
	assert_int_equal(proc_start_time(&(struct sys){.root_fd = -1, .acting = true}, e->pid, &e->start_time), 0);
	return e;
}

void put(struct ledger *l, const char *id, const char *group, const char *cpus)
{
	cleanup_error struct error err = {0};
	cleanup_entry struct entry *e = new_entry(id, group, cpus);

	if (ledger_put(l, e, &err) < 0)
		fail_msg("%s", error_text(&err));
}

struct view look(struct ledger *l, bool all)
{
	cleanup_error struct error err = {0};
	struct view v = {0};

	if (ledger_occupancy(l, all, &v.items, &v.n, &v.stale, &v.n_stale, &err) < 0)
		fail_msg("%s", error_text(&err));
	return v;
}

const struct occupant *find(const struct view *v, const char *id)
{
	for (size_t i = 0; i < v->n; i++)
		if (str_eq(v->items[i].id, id))
			return &v->items[i];
	fail_msg("%s is not among the occupants", id);
	abort(); /* the compiler does not know that fail_msg() does not return */
}

size_t check_consistent(struct ledger *l)
{
	struct view v = look(l, false);
	char **ids = NULL;
	size_t n = 0;

	assert_int_equal(ledger_ids(l, &ids, &n, NULL), 0);
	assert_int_equal(n, v.n);
	for (size_t i = 0; i < n; i++) {
		cleanup_entry struct entry *e = NULL;
		const struct occupant *o = find(&v, ids[i]);

		assert_int_equal(ledger_get(l, ids[i], &e, NULL), 0);
		assert_non_null(e);
		assert_string_equal(o->group, e->group);
		assert_int_equal(o->mcpu, e->plan->mcpu);
		assert_true(mask_equal(o->cpus, &e->plan->cpus));
		assert_true(mask_equal(o->wish, &e->plan->wish));
	}
	ledger_ids_free(ids, n);
	return n;
}

char *path_in(const struct fixture *f, const char *name)
{
	char *path = NULL;

	assert_true(asprintf(&path, "%s/%s", f->state, name) > 0);
	return path;
}

size_t count_files(const struct fixture *f, const char *sub, const char *with)
{
	cleanup_free char *path = path_in(f, sub);
	DIR *dir = opendir(path);
	const struct dirent *d;
	size_t n = 0;

	assert_non_null(dir);
	while ((d = readdir(dir)))
		n += strstr(d->d_name, with) != NULL;
	closedir(dir);
	return n;
}

void write_file(const struct fixture *f, const char *name, const char *text, int flags)
{
	cleanup_free char *path = path_in(f, name);
	cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

pid_t dead_pid(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return pid;
}
