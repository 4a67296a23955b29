/* Topologies that were written down, and above all what is wrong with them. */
#include "sys.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#define HEAD                                     \
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" \
	"<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"  \
	"<topology version=\"2.0\">\n"
#define SETS(cpus)                                                                                      \
	" cpuset=\"" cpus "\" complete_cpuset=\"" cpus "\" nodeset=\"0x00000001\" complete_nodeset=\"0x00000001\""
#define NODE(id)                                                                      \
	"<object type=\"NUMANode\" os_index=\"" id "\"" SETS("0x00000003") " gp_index=\"9\"" \
	" local_memory=\"1073741824\"/>\n"
#define PU(id, cpus, gp) "<object type=\"PU\" os_index=\"" id "\"" SETS(cpus) " gp_index=\"" gp "\"/>\n"
#define MACHINE                                                                                               \
	"<object type=\"Machine\" os_index=\"0\"" SETS("0x00000003") " allowed_cpuset=\"0x00000003\""         \
	" allowed_nodeset=\"0x00000001\" gp_index=\"1\">\n"
#define CPU0 PU("0", "0x00000001", "2")
#define CPU1 PU("1", "0x00000002", "3")
#define TAIL "</object>\n</topology>\n"
#define TWO_CPUS HEAD MACHINE NODE("0") CPU0 CPU1 TAIL

struct world {
	char *root, *path;
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->root = tree_new();
	assert_true(asprintf(&w->path, "%s/machine.xml", w->root) > 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	tree_free(w->root);
	free(w->path);
	free(w);
	return 0;
}

static void write_bytes(const struct world *w, const char *bytes, size_t len)
{
	cleanup_fd int fd = open(w->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_true(write(fd, bytes, len) == (ssize_t) len);
}

/* The file is refused with that errno, in one line that names it and has these words, and nothing is said on stderr. */
static void refused(const struct world *w, int code, const char *words)
{
	cleanup_error struct error err = { 0 };
	cleanup_fd int said = -1, before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	struct topology *t = NULL;
	struct stat st;
	int r;

	said = open(w->root, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	assert_true(before >= 0 && said >= 0);
	assert_true(dup2(said, STDERR_FILENO) >= 0);
	r = topology_from_file(w->path, &t, &err);
	assert_true(dup2(before, STDERR_FILENO) >= 0);
	assert_int_equal(fstat(said, &st), 0);
	if (r != -code || t || !strstr(error_text(&err), words) || !strstr(error_text(&err), w->path) ||
	    strchr(error_text(&err), '\n') || st.st_size)
		fail_msg("not \"%s\" (%d), but \"%s\" (%d), %lld bytes on stderr", words, -code, error_text(&err), r,
			 (long long) st.st_size);
}

static void refused_text(const struct world *w, const char *text, int code, const char *words)
{
	write_bytes(w, text, strlen(text));
	refused(w, code, words);
}

static void test_good(void **state)
{
	const struct world *w = *state;
	cleanup_topology struct topology *t = NULL;
	cleanup_error struct error err = { 0 };

	write_bytes(w, TWO_CPUS, strlen(TWO_CPUS));
	if (topology_from_file(w->path, &t, &err) < 0)
		fail_msg("%s", error_text(&err));
	assert_int_equal(t->n_cpus, 2);
	assert_int_equal(t->n_nodes, 1);
	assert_true(t->nodes[0].memory == UINT64_C(1) << 30);
	assert_int_equal(t->cpus[1].node, 0);
}

#define WITH_SETS(cpus, nodes)                                                                                   \
	" cpuset=\"" cpus "\" complete_cpuset=\"" cpus "\" nodeset=\"" nodes "\" complete_nodeset=\"" nodes "\""

/* CPU 1's node has no memory: it has none of its own then. */
static void test_memoryless(void **state)
{
	static const char text[] =
		HEAD "<object type=\"Machine\" os_index=\"0\"" WITH_SETS("0x3", "0x3")
		" allowed_cpuset=\"0x3\" allowed_nodeset=\"0x3\" gp_index=\"1\">\n"
		"<object type=\"Package\" os_index=\"0\"" WITH_SETS("0x1", "0x1") " gp_index=\"2\">\n"
		"<object type=\"NUMANode\" os_index=\"0\"" WITH_SETS("0x1", "0x1") " gp_index=\"3\""
		" local_memory=\"4096\"/>\n"
		"<object type=\"PU\" os_index=\"0\"" WITH_SETS("0x1", "0x1") " gp_index=\"4\"/>\n</object>\n"
		"<object type=\"Package\" os_index=\"1\"" WITH_SETS("0x2", "0x2") " gp_index=\"5\">\n"
		"<object type=\"NUMANode\" os_index=\"1\"" WITH_SETS("0x2", "0x2") " gp_index=\"6\"/>\n"
		"<object type=\"PU\" os_index=\"1\"" WITH_SETS("0x2", "0x2") " gp_index=\"7\"/>\n</object>\n" TAIL;
	const struct world *w = *state;
	cleanup_topology struct topology *t = NULL;
	cleanup_error struct error err = { 0 };

	write_bytes(w, text, strlen(text));
	if (topology_from_file(w->path, &t, &err) < 0)
		fail_msg("%s", error_text(&err));
	assert_int_equal(t->cpus[0].node, 0);
	assert_int_equal(t->cpus[1].node, -1);
	assert_true(t->nodes[1].has_cpus && !t->nodes[1].memory && t->memory_nodes == 1);
}

static void test_no_file(void **state)
{
	const struct world *w = *state;

	refused(w, ENOENT, "No such file or directory");
	assert_int_equal(mkdir(w->path, 0700), 0);
	refused(w, EISDIR, "is a directory; name a file that lstopo wrote");
	assert_int_equal(rmdir(w->path), 0);
	assert_int_equal(mkfifo(w->path, 0600), 0);
	refused(w, EINVAL, "is not a regular file");
}

/* Root may read everything: as somebody else, in a child. */
static void test_no_permission(void **state)
{
	const struct world *w = *state;
	int status;
	pid_t pid;

	write_bytes(w, TWO_CPUS, strlen(TWO_CPUS));
	assert_int_equal(chmod(w->path, 0), 0);
	assert_int_equal(chmod(w->root, 0755), 0);
	pid = fork();
	if (pid == 0) {
		struct topology *t = NULL;
		struct error err = { 0 };

		if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
			_exit(77);
		_exit(topology_from_file(w->path, &t, &err) == -EACCES && strstr(error_text(&err), w->path) &&
				      strstr(error_text(&err), "Permission denied") ?
			      0 :
			      1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_empty(void **state)
{
	refused_text(*state, "", EINVAL, "is empty; lstopo FILE.xml writes one");
	refused_text(*state, "\n \t\n", EINVAL, "is empty");
}

static void test_not_xml(void **state)
{
	const struct world *w = *state;

	refused_text(w, "Machine (7822MB total)\n  Package L#0\n", EINVAL, "machine.xml:1:1: is not XML");
	refused_text(w, "\n\n  {\"cores\":[]}", EINVAL, "machine.xml:3:3: is not XML");
	refused_text(w, "<?xml version=\"1.0\"?>\n", EINVAL, "holds no <topology>");
	refused_text(w, "<?xml version=\"1.0\"?>\n<!-- <topology> -->\n<svg width=\"1\">\n</svg>\n", EINVAL,
		     "machine.xml:3:1: <svg> where <topology> was expected");
	refused_text(w, HEAD "</object>\n", EINVAL, "machine.xml:4:1: </object> ends what was not begun");
	refused_text(w, TWO_CPUS "<topology version=\"2.0\"></topology>", EINVAL,
		     "machine.xml:10:1: something follows the end");
}

/* Wherever it is cut. Only the last newline is no loss. */
static void test_truncated(void **state)
{
	const size_t whole = strlen(TWO_CPUS), first = strlen("<?xml");

	for (size_t len = first; len + 1 < whole; len++) {
		cleanup_error struct error err = { 0 };
		const struct world *w = *state;
		struct topology *t = NULL;
		int r;

		write_bytes(w, TWO_CPUS, len);
		r = topology_from_file(w->path, &t, &err);
		if (r != -EINVAL || t || !strstr(error_text(&err), w->path))
			fail_msg("cut at byte %zu of %zu: %d %s", len, whole, r, error_text(&err));
	}
	refused_text(*state, HEAD MACHINE NODE("0") "<object type=\"PU\" os_i", EINVAL,
		     "machine.xml:6:23: the file ends inside <object>, which begins at line 6: it is cut off");
	refused_text(*state, HEAD MACHINE NODE("0") CPU0, EINVAL,
		     "machine.xml:7:1: the file ends inside <object>, which begins at line 4: it is cut off");
	refused_text(*state, HEAD "<!-- no end >", EINVAL, "it is cut off");
}

static void test_newer(void **state)
{
	static const char text[] = "<?xml version=\"1.0\"?>\n<topology version=\"3.0\">\n" MACHINE CPU0 TAIL;

	refused_text(*state, text, EPROTONOSUPPORT,
		     "machine.xml:2:1: its format is version 3.0, and the newest that is known here is 2: export it "
		     "with lstopo --export-xml-flags v2");
}

static void test_no_cpus(void **state)
{
	refused_text(*state, HEAD MACHINE NODE("0") TAIL, EINVAL, "describes a machine without CPUs");
	refused_text(*state, HEAD "</topology>\n", EINVAL, "describes a machine without CPUs");
}

static void test_nul(void **state)
{
	static const char text[] = HEAD "<ob\0ject";

	write_bytes(*state, text, sizeof(text) - 1);
	refused(*state, EINVAL, "machine.xml:4:4: a NUL byte");
	write_bytes(*state, "\0\0\0", 3);
	refused(*state, EINVAL, "machine.xml:1:1: a NUL byte");
}

static void test_ids_too_large(void **state)
{
	const struct world *w = *state;

	refused_text(w, HEAD MACHINE NODE("0") PU("4096", "0x00000001", "2") TAIL, ERANGE,
		     "machine.xml:6:1: CPU 4096: cotenant knows CPUs 0-4095 only");
	refused_text(w, HEAD MACHINE NODE("0") PU("4294967295", "0x00000001", "2") TAIL, ERANGE, "CPU 4294967295");
	refused_text(w, HEAD MACHINE NODE("64") CPU0 TAIL, ERANGE,
		     "machine.xml:5:1: NUMA node 64: cotenant knows NUMA nodes 0-63 only");
	refused_text(w, HEAD MACHINE NODE("0") PU("-1", "0x00000001", "2") TAIL, EINVAL,
		     "os_index=\"-1\" is no number");
	refused_text(w, HEAD MACHINE NODE("0") PU("x", "0x00000001", "2") TAIL, EINVAL, "os_index=\"x\" is no number");
	refused_text(w, HEAD MACHINE NODE("0") "<object type=\"PU\"/>" TAIL, EINVAL, "a CPU without os_index");
	refused_text(w, HEAD MACHINE "<distances2 nbobjs=\"65536\"/>" CPU0 TAIL, ERANGE,
		     "more objects than any machine");
}

static char *repeat(const char *before, const char *part, size_t times, const char *after)
{
	const size_t len = strlen(part), start = strlen(before), end = start + len * times;
	char *text = malloc(end + strlen(after) + 1);

	assert_non_null(text);
	memcpy(text, before, start);
	for (size_t i = 0; i < times; i++)
		memcpy(text + start + i * len, part, len);
	memcpy(text + end, after, strlen(after) + 1);
	return text;
}

static void test_huge(void **state)
{
	const struct world *w = *state;
	cleanup_free char *wide = repeat(HEAD MACHINE, "<info/>", 500001, CPU0 TAIL);
	cleanup_free char *deep = repeat(HEAD, "<object type=\"Group\">", 1000, CPU0);

	write_bytes(w, HEAD, strlen(HEAD));
	assert_int_equal(truncate(w->path, (off_t) 33 << 20), 0);
	refused(w, EFBIG, "is larger than 32 MiB: export it without devices, lstopo --no-io");
	refused_text(w, wide, E2BIG, "more than 500000 elements");
	refused_text(w, deep, E2BIG, "nested deeper than 128");
}

/* What hwloc 2.9 takes for granted: a null pointer without it. */
static void test_breaks_down(void **state)
{
	static const char *const texts[] = {
		HEAD "<object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" nodeset=\"0x1\" complete_nodeset=\"0x1\""
		     " allowed_cpuset=\"0x3\" allowed_nodeset=\"0x1\" gp_index=\"1\">\n" NODE("0") CPU0 CPU1 TAIL,
		HEAD MACHINE NODE("0") "<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" nodeset=\"0x1\""
				       " complete_nodeset=\"0x1\" gp_index=\"2\"/>\n" CPU1 TAIL,
	};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		refused_text(*state, texts[i], EINVAL, "hwloc breaks down over it");
}

static void test_contradictions(void **state)
{
	const struct world *w = *state;

	refused_text(w, HEAD MACHINE NODE("0") CPU0 CPU0 TAIL, EINVAL, "CPU 0 is there twice");
	refused_text(w, HEAD MACHINE NODE("0") NODE("0") CPU0 CPU1 TAIL, EINVAL, "machine.xml");
	refused_text(w, HEAD MACHINE NODE("0") CPU0 "<object type=\"Nonsense\"/>" TAIL, EINVAL, "hwloc cannot read it");
	refused_text(w, HEAD "<object type=\"PU\" os_index=\"0\"/></topology>", EINVAL, "machine.xml");
}

static void test_descriptions(void **state)
{
	static const struct {
		const char *description, *words;
		int code;
	} cases[] = {
		{ "", "hwloc cannot read \"\"; one that it reads is \"pack:2", EINVAL },
		{ "core:two pu:2", "hwloc cannot read", EINVAL },
		{ "pack:2 core:2", "hwloc cannot read", EINVAL },
		{ "pack:0 pu:1", "hwloc cannot read", EINVAL },
		{ "pack:2 [numa core:2 pu:2", "hwloc cannot read", EINVAL },
		{ "pack:2 core:1025 pu:2", "more than 4096 CPUs at \"2\"", ERANGE },
		{ "pack:4294967295 core:4294967295 pu:4294967295", "more than 4096 CPUs", ERANGE },
		{ "numa:65 pu:1", "NUMA node 64: cotenant knows nodes 0-63 only", ERANGE },
		{ "core:2 pu:1(indexes=0,4294967294)", "number 4294967294 in \"indexes=\"", ERANGE },
		{ "core:2 pu:1(indexes=0,4096)", "number 4096", ERANGE },
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		cleanup_error struct error err = { 0 };
		struct topology *t = NULL;
		int r = topology_from_synthetic(cases[i].description, &t, &err);

		if (r != -cases[i].code || t || !strstr(error_text(&err), cases[i].words) ||
		    !str_starts(error_text(&err), "topology description: "))
			fail_msg("%s: %d %s", cases[i].description, r, error_text(&err));
	}
	cleanup_free char *longest = repeat("pu:1(indexes=", "0,", 200000, "0)");
	struct topology *t = NULL;

	assert_int_equal(topology_from_synthetic(longest, &t, NULL), -E2BIG);
}

/* What the caller's environment says to hwloc must change nothing, nor make it talk. */
static void test_environment(void **state)
{
	cleanup_topology struct topology *t = NULL;
	static const char *const names[] = { "HWLOC_SYNTHETIC", "HWLOC_COMPONENTS", "HWLOC_THISSYSTEM",
					     "HWLOC_XML_VERBOSE", "HWLOC_SYNTHETIC_VERBOSE" };
	static const char *const values[] = { "pu:7", "-xml,synthetic", "1", "1", "1" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_int_equal(setenv(names[i], values[i], 1), 0);
	test_good(state);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_int_equal(setenv(names[i], values[i], 1), 0);
	refused_text(*state, HEAD MACHINE NODE("0") CPU0 "<object type=\"Nonsense\"/>" TAIL, EINVAL, "machine.xml");
	assert_int_equal(topology_from_hwloc(TOPOLOGY_LIVE, NULL, &t, NULL), 0);
	assert_int_equal(t->n_cpus, sysconf(_SC_NPROCESSORS_ONLN));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_good),      TEST(test_memoryless),    TEST(test_no_file),
		TEST(test_no_permission), TEST(test_empty),
		TEST(test_not_xml),   TEST(test_truncated),     TEST(test_newer),         TEST(test_no_cpus),
		TEST(test_nul),       TEST(test_ids_too_large), TEST(test_huge),          TEST(test_contradictions),
		TEST(test_breaks_down),
		TEST(test_descriptions), TEST(test_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
