/* cotenant: the operator's tool. See cotenant(1). */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <stdio.h>

enum { OPT_POLICY = 256, OPT_STATE_DIR, OPT_ROOT, OPT_HELP_POLICY, OPT_JSON, OPT_SVG, OPT_STRATEGY, OPT_VERSION };

static const struct {
	const char *name;
	int (*run)(const struct cli_options *o, int argc, char **argv);
	int least, most; /* arguments */
	const char *args, *help;
} verbs[] = {
	{ "check", verb_check, 0, 1, "[FILE]", "say whether a policy is right, and where it is not" },
	{ "simulate", verb_simulate, 1, 1, "SCENARIO",
	  "play a scenario on a machine that need not be there, and compare strategies" },
	{ "status", verb_status, 0, 1, "[ID]", "what every container was promised and what the kernel says" },
	{ "support", verb_support, 0, 0, "", "what this machine can enforce, and what is used instead" },
};

static void usage(FILE *to)
{
	fputs("usage: cotenant [OPTION...] VERB [ARGUMENT]\n\n", to);
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		fprintf(to, "  %-8s %-8s %s\n", verbs[i].name, verbs[i].args, verbs[i].help);
	fputs("  help              print this\n"
	      "\n"
	      "  --policy FILE    the policy (default " CLI_POLICY ")\n"
	      "  --state-dir DIR  where the hooks keep what they did (default /run/cotenant, or $XDG_RUNTIME_DIR/cotenant\n"
	      "                   when not root)\n"
	      "  --root DIR       look at the machine of which DIR holds /proc and /sys (default /)\n"
	      "  --help-policy    with check: list every key of a policy\n"
	      "  --strategy NAME  with simulate: this one only; may be given several times\n"
	      "  --json           with simulate: the results as JSON\n"
	      "  --svg FILE       with simulate: draws who had which CPU when\n"
	      "  -h, --help       print this\n"
	      "  --version        print the version\n"
	      "\n"
	      "Exit status: 0 yes, 1 no, 2 usage, 3 not supported here, 4 denied.\n",
	      to);
}

int cli_fail(int r, const struct error *err)
{
	fprintf(stderr, "cotenant: %s\n", error_text(err));
	return r == -EACCES || r == -EPERM ? CLI_DENIED : CLI_NO;
}

/* What standard output did not take was not said. */
static int finish(int code)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	fprintf(stderr, "cotenant: standard output: %s\n", errno ? strerror(errno) : "write error");
	return CLI_NO;
}

static int complain(const char *verb, const char *argument, const char *why)
{
	cleanup_free char *shown = printable(argument, strlen(argument), strlen(argument));

	fprintf(stderr, "cotenant%s%s: %s: %s\n", verb ? " " : "", verb ? verb : "", shown ? shown : "", why);
	return CLI_USAGE;
}

static const char *option_name(int c)
{
	switch (c) {
	case OPT_POLICY:
		return "--policy";
	case OPT_ROOT:
		return "--root";
	case OPT_SVG:
		return "--svg";
	case OPT_STRATEGY:
		return "--strategy";
	default:
		return "--state-dir";
	}
}

static int choose_strategy(const char *name, struct cli_options *o)
{
	cleanup_free char *shown = printable(name, strlen(name), strlen(name));

	for (unsigned i = 0; i < SIM_STRATEGIES; i++)
		if (str_eq(name, sim_strategy_name((enum sim_strategy) i))) {
			o->strategies[i] = o->strategies_given = true;
			return -1;
		}
	fprintf(stderr, "cotenant: %s: is none of the strategies ", shown ? shown : "");
	for (unsigned i = 0; i < SIM_STRATEGIES; i++)
		fprintf(stderr, "%s%s", i ? ", " : "", sim_strategy_name((enum sim_strategy) i));
	fputs("\n", stderr);
	return CLI_USAGE;
}

/* -1: go on. Options may stand anywhere. */
static int parse_options(int argc, char **argv, struct cli_options *o)
{
	static const struct option table[] = {
		{ "policy", required_argument, NULL, OPT_POLICY },
		{ "state-dir", required_argument, NULL, OPT_STATE_DIR },
		{ "root", required_argument, NULL, OPT_ROOT },
		{ "help-policy", no_argument, NULL, OPT_HELP_POLICY },
		{ "json", no_argument, NULL, OPT_JSON },
		{ "svg", required_argument, NULL, OPT_SVG },
		{ "strategy", required_argument, NULL, OPT_STRATEGY },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, OPT_VERSION },
		{ 0 },
	};

	for (int c; (c = getopt_long(argc, argv, "h", table, NULL)) != -1;) {
		if (optarg && !*optarg)
			return complain(NULL, option_name(c), "must not be empty");
		switch (c) {
		case OPT_POLICY:
			o->policy_path = optarg;
			break;
		case OPT_STATE_DIR:
			o->state_dir = optarg;
			break;
		case OPT_ROOT:
			o->root = optarg;
			break;
		case OPT_HELP_POLICY:
			o->help_policy = true;
			break;
		case OPT_JSON:
			o->json = true;
			break;
		case OPT_SVG:
			o->svg = optarg;
			break;
		case OPT_STRATEGY:
			if (choose_strategy(optarg, o) >= 0)
				return CLI_USAGE;
			break;
		case 'h':
			usage(stdout);
			return CLI_YES;
		case OPT_VERSION:
			puts("cotenant " VERSION);
			return CLI_YES;
		default:
			fputs("Try cotenant --help, or cotenant(1).\n", stderr);
			return CLI_USAGE;
		}
	}
	return -1;
}

/* An option that a verb does not look at would seem to have been obeyed. */
static int check_options(const struct cli_options *o, const char *verb, bool checks, bool simulates)
{
	if (o->help_policy && !checks)
		return complain(verb, "--help-policy", "is for check");
	if (o->json && !simulates)
		return complain(verb, "--json", "is not there yet, the table is all there is");
	if (o->svg && !simulates)
		return complain(verb, "--svg", "is for simulate");
	if (o->strategies_given && !simulates)
		return complain(verb, "--strategy", "is for simulate");
	if (o->policy_path && simulates)
		return complain(verb, "--policy", "the scenario says which policy");
	if (o->root && simulates)
		return complain(verb, "--root", "the scenario says which machine");
	return -1;
}

static int run_verb(const struct cli_options *o, int argc, char **argv)
{
	const char *name = argv[0];
	int code;

	if (str_eq(name, "help")) {
		usage(stdout);
		return CLI_YES;
	}
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
		if (!str_eq(name, verbs[i].name))
			continue;
		if (argc - 1 > verbs[i].most)
			return complain(name, argv[1 + verbs[i].most], "one argument too many");
		if (argc > 1 && !*argv[1])
			return complain(name, "''", "must not be empty");
		if (argc - 1 < verbs[i].least)
			return complain(name, verbs[i].args, "is missing");
		code = check_options(o, name, verbs[i].run == verb_check, verbs[i].run == verb_simulate);
		return code >= 0 ? code : verbs[i].run(o, argc - 1, argv + 1);
	}
	complain(NULL, name, "is no verb");
	usage(stderr);
	return CLI_USAGE;
}

static int run(int argc, char **argv)
{
	struct cli_options o = { 0 };
	cleanup_free char *state_dir = NULL;
	int code = parse_options(argc, argv, &o);

	if (code >= 0)
		return code;
	if (!o.state_dir)
		o.state_dir = state_dir = sys_default_state_dir();
	if (!o.state_dir)
		return CLI_NO;
	if (optind < argc)
		return run_verb(&o, argc - optind, argv + optind);
	usage(stderr);
	return CLI_USAGE;
}

int main(int argc, char **argv)
{
	/* For the width of characters alone: what is printed is UTF-8, wherever it is read. */
	setlocale(LC_CTYPE, "C.UTF-8");
	return finish(run(argc, argv));
}
