/* cotenant check: the policy as it would be read, beside the machine, without touching anything. */
#include "cli.h"

#include <stdio.h>

static int list_keys(void)
{
	cleanup_free char *help = policy_help();

	fputs(help ? help : "", stdout);
	return help ? CLI_YES : CLI_NO;
}

/* A policy may be checked where it will not be used: without a machine to compare it with, what was read counts. */
static int compare(const struct sys *s, const struct cli_options *o, const struct policy *policy, struct error *err)
{
	cleanup_facts struct facts facts = { 0 };
	cleanup_error struct error unknown = { 0 };

	if (facts_look(s, o->root, &facts, &unknown) == 0)
		return policy_check_machine(policy, facts.topo, err);
	printf("not compared with the machine: %s\n", error_text(&unknown));
	return 0;
}

int verb_check(const struct cli_options *o, int argc, char **argv)
{
	cleanup_sys struct sys sys = { .root_fd = -1 };
	cleanup_error struct error err = { 0 };
	cleanup_policy struct policy *policy = NULL;
	const char *path = argc > 0 ? argv[0] : o->policy_path ? o->policy_path : CLI_POLICY;
	int r;

	if (o->help_policy)
		return list_keys();
	r = sys_open(o->root, &sys, &err);
	r = r < 0 ? r : policy_load(&sys, path, &policy, &err);
	if (r < 0)
		return cli_fail(r, &err);
	for (size_t i = 0; i < policy->n_warnings; i++)
		printf("warning: %s\n", policy->warnings[i]);
	r = compare(&sys, o, policy, &err);
	if (r < 0)
		return cli_fail(r, &err);
	printf("%s: right: %zu %s, %zu %s\n", path, policy->n_classes, policy->n_classes == 1 ? "class" : "classes",
	       policy->n_rules, policy->n_rules == 1 ? "rule" : "rules");
	return CLI_YES;
}
