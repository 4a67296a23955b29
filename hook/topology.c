/*
 * cotenant-topology: finds out what the machine is made of and leaves it where the hook looks. A program of its own,
 * because hwloc, libnuma and libcgroup cost more to load than the hook's whole work, and are needed once a boot.
 */
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <sys/stat.h>

static const char usage[] =
	"usage: cotenant-topology [--root DIR] [--state-dir DIR] [--refresh | --print]\n"
	"  --root DIR       look at the machine of which DIR holds /sys and /proc (default /)\n"
	"  --state-dir DIR  where the facts are kept (default /run/cotenant, or\n"
	"                   $XDG_RUNTIME_DIR/cotenant when not root)\n"
	"  --refresh        write them to STATE_DIR/topology (the default)\n"
	"  --print          write them to standard output instead\n"
	"  --help           print this\n"
	"  --version        print the version\n";

struct options {
	const char *root, *state_dir;
	bool print;
};

/* 1: go on; 0: help or version was asked for, and is said; -EINVAL. */
static int parse_options(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {
		{ "root", required_argument, NULL, 'r' },  { "state-dir", required_argument, NULL, 's' },
		{ "refresh", no_argument, NULL, 'f' },     { "print", no_argument, NULL, 'p' },
		{ "help", no_argument, NULL, 'h' },        { "version", no_argument, NULL, 'v' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (optarg && !*optarg ? '?' : c) {
		case 'r':
			o->root = optarg;
			break;
		case 's':
			o->state_dir = optarg;
			break;
		case 'f':
			o->print = false;
			break;
		case 'p':
			o->print = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		case 'v':
			puts("cotenant-topology " VERSION);
			return 0;
		default:
			return -EINVAL;
		}
	}
	return optind == argc ? 1 : -EINVAL;
}

static int keep(const char *state_dir, const char *text, size_t len, struct error *err)
{
	cleanup_fd int dir = -1;
	int r;

	if (mkdir(state_dir, 0700) < 0 && errno != EEXIST)
		return error_set(err, errno, "%s: %s", state_dir, strerror(errno));
	dir = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return error_set(err, errno, "%s: %s", state_dir, strerror(errno));
	r = file_replace(dir, "topology", text, len);
	return r < 0 ? error_set(err, -r, "%s/topology: %s", state_dir, strerror(-r)) : 0;
}

static int run(const struct options *o, struct error *err)
{
	cleanup_sys struct sys s = { .root_fd = -1 };
	cleanup_facts struct facts facts = { 0 };
	cleanup_free char *text = NULL;
	size_t len;
	int r = sys_open(o->root, &s, err);

	if (r < 0)
		return r;
	r = facts_discover(&s, o->root, &facts, err);
	if (r < 0)
		return r;
	r = facts_format(&facts, &text, &len);
	if (r < 0)
		return error_set(err, -r, "the facts cannot be written as text: %s", strerror(-r));
	if (!o->print)
		return keep(o->state_dir, text, len, err);
	if (fwrite(text, 1, len, stdout) != len || fflush(stdout) != 0)
		return error_set(err, errno, "standard output: %s", strerror(errno));
	return 0;
}

int main(int argc, char **argv)
{
	struct options options = { 0 };
	cleanup_free char *state_dir = NULL;
	cleanup_error struct error err = { 0 };
	int r = parse_options(argc, argv, &options);

	if (r == 0)
		return fflush(stdout) == 0 ? 0 : 1;
	if (r < 0) {
		fputs(usage, stderr);
		return 2;
	}
	if (!options.state_dir)
		options.state_dir = state_dir = sys_default_state_dir();
	if (!options.state_dir)
		return 1;
	if (run(&options, &err) < 0) {
		fprintf(stderr, "cotenant-topology: %s\n", error_text(&err));
		return 1;
	}
	return 0;
}
