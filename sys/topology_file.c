/* Topologies that were written down: what lstopo exports as XML, and hwloc's descriptions of one line. */
#include "discover.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* A machine of 4,096 CPUs takes 4 MiB as XML; the rest is for devices. */
#define FILE_MAX (32u << 20)
/* Every CPU's number in "indexes=" is five digits at most, for each kind of object. */
#define DESCRIPTION_MAX (256u << 10)

/*
 * hwloc trusts what it is given: about one in a hundred files with a few bytes changed ends in a null pointer. So it
 * reads in a child of its own, which answers with our text form, and that is checked as any other that comes from
 * outside.
 */

#define ANSWER_MAX (1u << 20) /* as topology_parse() takes */
#define READ_SECONDS 60

/* The result, and behind it the topology's text, or that of the error when it is a negative errno. */
static void answer(int fd, int result, const char *text, size_t len)
{
	if (write(fd, &result, sizeof(result)) != (ssize_t) sizeof(result))
		return;
	while (len) {
		ssize_t n = write(fd, text, len);

		if (n <= 0)
			return;
		text += n;
		len -= (size_t) n;
	}
}

/* The caller's handlers would run in the child, and think that it is the caller that broke down. */
static const int fatal[] = { SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM, SIGPIPE, SIGTERM, SIGINT };

/* The child. It says nothing to the terminal, leaves no core file, and does not outlive its time or its parent. */
static void read_and_answer(enum topology_source source, const char *arg, int fd)
{
	const struct rlimit none = { 0 };
	cleanup_topology struct topology *t = NULL;
	cleanup_error struct error err = { 0 };
	cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	cleanup_free char *text = NULL;
	size_t len = 0;
	int r;

	if (null < 0 || dup2(null, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0 ||
	    setrlimit(RLIMIT_CORE, &none) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(fatal); i++)
		signal(fatal[i], SIG_DFL);
	alarm(READ_SECONDS);
	r = topology_from_hwloc(source, arg, &t, &err);
	if (r == 0) {
		r = topology_format(t, &text, &len);
		if (r < 0)
			error_set(&err, -r, r == -EINVAL ? "the CPUs of a core differ in node, cache or package" :
							   "it cannot be written as text");
	}
	if (r < 0)
		answer(fd, r, error_text(&err), strlen(error_text(&err)));
	else
		answer(fd, 0, text, len);
}

static int take_answer(const char *bytes, size_t len, int status, struct topology **ret_topology, struct error *err)
{
	int result;

	if (len < sizeof(result) && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		return error_set(err, ETIMEDOUT, "hwloc needs more than %d s to read it", READ_SECONDS);
	if (len < sizeof(result))
		return error_set(err, EINVAL, "hwloc breaks down over it (%s): it contradicts itself; lstopo FILE.xml "
				 "writes one", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "no answer");
	memcpy(&result, bytes, sizeof(result));
	if (result < 0)
		return error_set(err, -result, "%s", bytes + sizeof(result));
	return topology_parse("as hwloc reads it", bytes + sizeof(result), len - sizeof(result), ret_topology, err);
}

static int read_in_child(enum topology_source source, const char *arg, struct topology **ret_topology,
			 struct error *err)
{
	cleanup_fd int read_end = -1, write_end = -1;
	cleanup_free char *bytes = NULL;
	int ends[2], status = 0, r;
	size_t len;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return error_set(err, errno, "no pipe to hwloc: %s", strerror(errno));
	read_end = ends[0];
	write_end = ends[1];
	pid = fork();
	if (pid == 0) {
		read_and_answer(source, arg, write_end);
		_exit(0);
	}
	if (pid < 0)
		return error_set(err, errno, "no process for hwloc: %s", strerror(errno));
	closep(&write_end);
	r = file_read_fd(read_end, ANSWER_MAX, &bytes, &len);
	closep(&read_end); /* a child that still writes ends by that */
	/* Where SIGCHLD is ignored there is no status to be had, and the answer says enough. */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r < 0)
		return error_set(err, -r, "what hwloc reads cannot be kept: %s", strerror(-r));
	return take_answer(bytes, len, status, ret_topology, err);
}

/* ---- files ---- */

static int read_file(const char *path, char **ret_text, size_t *ret_len, struct error *err)
{
	/* O_NONBLOCK: a FIFO must not hold us before it can be refused. */
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set(err, errno, "topology file %s: %s", path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return error_set(err, EISDIR, "topology file %s: is a directory; name a file that lstopo wrote", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, EINVAL, "topology file %s: is not a regular file", path);
	r = file_read_fd(fd, FILE_MAX, ret_text, ret_len);
	if (r == -EFBIG)
		return error_set(err, EFBIG, "topology file %s: is larger than %u MiB: export it without devices, "
				 "lstopo --no-io FILE.xml", path, FILE_MAX >> 20);
	return r < 0 ? error_set(err, -r, "topology file %s: %s", path, strerror(-r)) : 0;
}

int topology_from_file(const char *path, struct topology **ret_topology, struct error *err)
{
	cleanup_free char *text = NULL;
	size_t len;
	int r = read_file(path, &text, &len, err);

	if (r < 0)
		return r;
	r = topology_check_xml(path, text, len, err);
	if (r < 0)
		return r;
	r = read_in_child(TOPOLOGY_XML, text, ret_topology, err);
	return r < 0 ? error_prefix(err, r, "topology file %s", path) : 0;
}

/* ---- descriptions ---- */

/* How many CPUs "pack:2 [numa] core:4 pu:2" stands for; what it cannot make sense of is left to hwloc to refuse. */
static int count_cpus(const char *description, struct error *err)
{
	unsigned long n = 1;
	unsigned brackets = 0;

	for (const char *at = description; *at; at++) {
		const bool begins = at == description || at[-1] == ' ' || at[-1] == ':';

		if (*at == '[' || *at == '(')
			brackets++;
		else if ((*at == ']' || *at == ')') && brackets)
			brackets--;
		else if (!brackets && begins && *at >= '0' && *at <= '9') {
			const unsigned long count = strtoul(at, NULL, 0);

			if (count > CPU_MAX || (n *= count) > CPU_MAX)
				return error_set(err, ERANGE, "more than %d CPUs at \"%s\": cotenant "
						 "knows CPUs 0-%d only", CPU_MAX, at, CPU_MAX - 1);
		}
	}
	return 0;
}

static int check_indexes(const char *description, struct error *err)
{
	for (const char *list = description; (list = strstr(list, "indexes=")); list++)
		for (const char *at = list + strlen("indexes="); *at && *at != ')' && *at != ' '; at++)
			if (*at >= '0' && *at <= '9' && (at[-1] < '0' || at[-1] > '9') &&
			    strtoul(at, NULL, 10) >= CPU_MAX)
				return error_set(err, ERANGE, "number %lu in \"indexes=\": cotenant "
						 "knows CPUs 0-%d only", strtoul(at, NULL, 10), CPU_MAX - 1);
	return 0;
}

int topology_from_synthetic(const char *description, struct topology **ret_topology, struct error *err)
{
	int r;

	if (strlen(description) > DESCRIPTION_MAX)
		return error_set(err, E2BIG, "is longer than %u KiB", DESCRIPTION_MAX >> 10);
	r = count_cpus(description, err);
	if (r == 0)
		r = check_indexes(description, err);
	if (r == 0)
		r = read_in_child(TOPOLOGY_SYNTHETIC, description, ret_topology, err);
	return r < 0 ? error_prefix(err, r, "topology description") : 0;
}
