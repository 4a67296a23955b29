/* cotenant: the operator's tool. */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>

static const struct {
	const char *name;
	int (*run)(const struct cli_options *o, int argc, char **argv);
	int most; /* arguments */
	const char *args, *help;
} verbs[] = {
	{ "check", verb_check, 1, "[FILE]", "say whether a policy is right, and where it is not" },
	{ "status", verb_status, 1, "[ID]", "what every container was promised and what the kernel says" },
	{ "support", verb_support, 0, "", "what this machine can enforce, and what is used instead" },
};

static void usage(FILE *to)
{
	fputs("usage: cotenant [--policy FILE] [--state-dir DIR] [--root DIR] VERB [ARGUMENT]\n\n", to);
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		fprintf(to, "  %-8s %-7s %s\n", verbs[i].name, verbs[i].args, verbs[i].help);
	fputs("\nExit status: 0 yes, 1 no, 2 usage, 3 not supported here, 4 denied.\n", to);
}

int cli_fail(int r, const struct error *err)
{
	fprintf(stderr, "cotenant: %s\n", error_text(err));
	return r == -EACCES || r == -EPERM ? CLI_DENIED : CLI_NO;
}

int main(int argc, char **argv)
{
	static const struct option table[] = {
		{ "policy", required_argument, NULL, 'p' },
		{ "state-dir", required_argument, NULL, 's' },
		{ "root", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct cli_options o = { .policy_path = "/etc/cotenant/policy.json" };
	cleanup_free char *state_dir = NULL;

	for (int c; (c = getopt_long(argc, argv, "+h", table, NULL)) != -1;) {
		switch (c) {
		case 'p':
			o.policy_path = optarg;
			break;
		case 's':
			o.state_dir = optarg;
			break;
		case 'r':
			o.root = optarg;
			break;
		case 'h':
			usage(stdout);
			return CLI_YES;
		default:
			return CLI_USAGE;
		}
	}
	if (!o.state_dir)
		o.state_dir = state_dir = sys_default_state_dir();
	if (!o.state_dir)
		return CLI_NO;
	for (size_t i = 0; optind < argc && i < ARRAY_LEN(verbs); i++) {
		int n = argc - optind - 1;

		if (!str_eq(argv[optind], verbs[i].name))
			continue;
		if (n <= verbs[i].most)
			return verbs[i].run(&o, n, argv + optind + 1);
		fprintf(stderr, "cotenant %s: %s: one argument too many\n", verbs[i].name, argv[optind + 1 + verbs[i].most]);
		return CLI_USAGE;
	}
	if (optind < argc)
		fprintf(stderr, "cotenant: \"%s\" is no verb\n", argv[optind]);
	usage(stderr);
	return CLI_USAGE;
}
