/*
 * cotenant-hook: the OCI hook. Reads the container state on stdin, and gives the container its place before its first
 * instruction. See cotenant-hook(8).
 */
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

#define NS_PER_MS INT64_C(1000000)
#define DEADLINE_MS 2000
#define DEADLINE_MAX_S 60
/* After the deadline, waits are interrupted this often; and after this many times the hook gives up without ceremony. */
#define ALARM_EVERY_MS 50
#define ALARM_LAST 20
#define HEAP_PAD (256 << 10)
#define SAID_MAX 2000 /* characters of a message */

static const struct {
	const char *name;
	bool need_pid, need_bundle;
	int (*run)(struct hook *h, struct error *err);
} stages[] = {
	{ "prestart", true, true, stage_create },
	{ "createRuntime", true, true, stage_create },
	{ "poststart", false, false, stage_poststart },
	{ "poststop", false, false, stage_poststop },
};

/* One line whatever the text holds: paths, such as the bundle's, are the only part that was not looked at before. */
void hook_say(const struct hook *h, const char *text)
{
	cleanup_free char *shown = printable(text, strlen(text), SAID_MAX);

	if (shown)
		text = shown;
	if (h->state.id)
		fprintf(stderr, "cotenant-hook: container %s: %s: %s\n", h->state.id, h->options->stage, text);
	else
		fprintf(stderr, "cotenant-hook: %s: %s\n", h->options->stage, text);
}

static void usage(void)
{
	fputs("usage: cotenant-hook STAGE [--policy FILE] [--state-dir DIR] [--root DIR] [--timeout SECONDS]\n"
	      "\n"
	      "Called by a container runtime with the container state on standard input.\n"
	      "STAGE is prestart or createRuntime (place the container), poststart (record that it started)\n"
	      "or poststop (forget it).\n"
	      "\n"
	      "  --policy FILE      default /etc/cotenant/policy.json\n"
	      "  --state-dir DIR    default /run/cotenant, or $XDG_RUNTIME_DIR/cotenant when not root\n"
	      "  --root DIR         another root than / is refused: only the real machine can be changed\n"
	      "  --timeout SECONDS  give up after this long, default 2\n",
	      stdout);
}

/* Started without standard descriptors, a file of ours could get the number 2, and a message would land in it. */
static int fill_standard_fds(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) /* the lowest free number */
			return -errno;
	return 0;
}

/* Exists to interrupt blocking calls. When even that does not end the hook, a container start must not hang. */
static void on_alarm(int signal)
{
	static volatile sig_atomic_t alarms;
	static const char text[] = "cotenant-hook: gave up: the deadline passed and a system call does not return\n";

	(void) signal;
	if (++alarms < ALARM_LAST)
		return;
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(2);
	_exit(2);
}

static int arm_deadline(struct sys *s, int timeout_ms, struct error *err)
{
	const struct sigaction action = { .sa_handler = on_alarm }; /* without SA_RESTART: calls return EINTR */
	const struct itimerval timer = {
		.it_value = { .tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000 },
		.it_interval = { .tv_usec = ALARM_EVERY_MS * 1000 },
	};

	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	s->deadline_ns = sys_now_ns() + timeout_ms * NS_PER_MS;
	if (sigaction(SIGALRM, &action, NULL) < 0 || sigprocmask(SIG_UNBLOCK, &alarm, NULL) < 0 ||
	    setitimer(ITIMER_REAL, &timer, NULL) < 0)
		return error_set(err, errno, "timer: %s", strerror(errno));
	return 0;
}

/* Whatever the runtime left: none of them may end the hook half-way, and children are waited for. */
static void set_signals(void)
{
	signal(SIGPIPE, SIG_IGN); /* a runtime that died leaves a closed pipe behind, and then comes an error line */
	signal(SIGXFSZ, SIG_IGN); /* RLIMIT_FSIZE: write(2) fails, and that is told */
	signal(SIGCHLD, SIG_DFL);
}

/* The runtime closes its end when it has written all; a runtime that does not is left at the deadline. */
static int read_state(const struct sys *s, struct arena *a, char **ret_text, size_t *ret_len, struct error *err)
{
	size_t size = 4096, used = 0;
	char *text = arena_alloc(a, size);

	while (text) {
		struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
		ssize_t n;

		if (sys_left_ms(s) == 0)
			return error_set(err, ETIMEDOUT, "container state: standard input was not closed in time");
		if (poll(&in, 1, sys_left_ms(s)) <= 0)
			continue;
		n = read(STDIN_FILENO, text + used, size - used);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return error_set(err, errno, "container state: standard input: %s", strerror(errno));
		if (n == 0)
			break;
		used += n > 0 ? (size_t) n : 0;
		if (used > OCI_STATE_MAX)
			return error_set(err, E2BIG, "container state: larger than %u KiB", OCI_STATE_MAX >> 10);
		if (used == size) {
			char *bigger = arena_alloc(a, size * 2);

			if (bigger)
				memcpy(bigger, text, used);
			text = bigger;
			size *= 2;
		}
	}
	if (!text)
		return error_no_memory(err);
	*ret_text = text;
	*ret_len = used;
	return 0;
}

static int run(struct hook *h, size_t stage, struct error *err)
{
	char *text = NULL;
	size_t len = 0;
	int r = read_state(h->sys, &h->arena, &text, &len, err);

	if (r == 0)
		r = oci_state_parse(&h->arena, text, len, stages[stage].need_pid, stages[stage].need_bundle, &h->state,
				    err);
	return r < 0 ? r : stages[stage].run(h, err);
}

/* Milliseconds from "2" or "0.5"; -EINVAL outside of 1 ms to a minute. */
static int parse_timeout(const char *text, int *ret_ms)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds >= 0.001 && seconds <= DEADLINE_MAX_S))
		return -EINVAL;
	*ret_ms = (int) (seconds * 1000);
	return 0;
}

/* What is wrong with an argument, which may hold anything. */
static int complain(const char *argument, const char *why)
{
	cleanup_free char *shown = printable(argument, strlen(argument), SAID_MAX);

	fprintf(stderr, "cotenant-hook: %s: %s\n", shown ? shown : "an argument", why);
	return -EINVAL;
}

static int parse_options(int argc, char **argv, struct hook_options *o, int *timeout_ms, const char **fault)
{
	enum { OPT_POLICY = 256, OPT_STATE_DIR, OPT_ROOT, OPT_TIMEOUT, OPT_FAULT };
	static const struct option table[] = {
		{ "policy", required_argument, NULL, OPT_POLICY },
		{ "state-dir", required_argument, NULL, OPT_STATE_DIR },
		{ "root", required_argument, NULL, OPT_ROOT },
		{ "timeout", required_argument, NULL, OPT_TIMEOUT },
		{ "help", no_argument, NULL, 'h' },
#ifdef FAULT_POINTS
		{ "fault", required_argument, NULL, OPT_FAULT },
#endif
		{ 0 },
	};

	opterr = 0; /* it would print what it does not know as it is */
	for (int c; (c = getopt_long(argc, argv, ":h", table, NULL)) != -1;) {
		if (c == 'h') {
			usage();
			exit(0);
		}
		if (c == '?' || c == ':') {
			const char letter[] = { '-', (char) optopt, '\0' };

			return complain(optopt > 0 && optopt <= UCHAR_MAX ? letter : argv[optind - 1],
					c == ':' ? "needs a value" : "there is no such option");
		}
		if (!*optarg)
			return complain(argv[optind - 1][0] ? argv[optind - 1] : argv[optind - 2], "must not be empty");
		if (c == OPT_POLICY)
			o->policy_path = optarg;
		else if (c == OPT_STATE_DIR)
			o->state_dir = optarg;
		else if (c == OPT_ROOT)
			o->root = optarg;
		else if (c == OPT_FAULT)
			*fault = optarg;
		else if (parse_timeout(optarg, timeout_ms) < 0)
			return complain(optarg, "--timeout takes a number of seconds from 0.001 to 60");
	}
	if (optind == argc)
		fputs("cotenant-hook: no stage was given\n", stderr);
	else if (optind + 1 < argc)
		complain(argv[optind + 1], "one stage is needed, not more");
	else
		o->stage = argv[optind];
	return o->stage ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
	struct hook_options options = { .policy_path = "/etc/cotenant/policy.json" };
	cleanup_sys struct sys sys = { .root_fd = -1 };
	cleanup_error struct error err = { 0 };
	cleanup_free char *state_dir = NULL;
	struct hook h = { .options = &options, .sys = &sys };
	int timeout_ms = DEADLINE_MS, r;
	const char *fault = NULL;
	size_t stage = 0;

	/* It lives for a millisecond: memory given back to the kernel and taken again costs more than it frees. */
	mallopt(M_TOP_PAD, HEAP_PAD);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	set_signals();
	if (fill_standard_fds() < 0)
		return 1;
	if (parse_options(argc, argv, &options, &timeout_ms, &fault) < 0) {
		fputs("Try cotenant-hook --help, or cotenant-hook(8).\n", stderr);
		return 2;
	}
	if (!options.state_dir)
		options.state_dir = state_dir = sys_default_state_dir();
	if (!options.state_dir)
		return 1;
	while (stage < ARRAY_LEN(stages) && !str_eq(stages[stage].name, options.stage))
		stage++;
	if (stage == ARRAY_LEN(stages)) {
		complain(options.stage, "is none of the stages prestart, createRuntime, poststart, poststop");
		return 2;
	}
	r = sys_open(options.root, &sys, &err);
	sys.fault = fault;
	if (r == 0 && !sys.acting)
		r = error_set(&err, EROFS, "root directory %s: is not this machine's, and nothing is changed elsewhere",
			      options.root);
	if (r == 0)
		r = arm_deadline(&sys, timeout_ms, &err);
	if (r == 0)
		r = run(&h, stage, &err);
	if (r < 0)
		hook_say(&h, error_text(&err));
	arena_done(&h.arena);
	return r < 0 ? 1 : 0;
}
