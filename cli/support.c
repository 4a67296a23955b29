/* cotenant support: what this machine can enforce, in plain sentences. */
#include "cli.h"

#include <stdio.h>

static void say_machine(const struct topology *t)
{
	size_t far = 0;

	for (size_t i = 0; i < t->n_nodes; i++)
		far += !t->nodes[i].has_cpus && t->nodes[i].memory > 0;
	printf("This machine has %zu %s on %u %s (%u %s a core), %u %s, %zu NUMA %s, %zu of them without CPUs.\n",
	       t->n_cpus, t->n_cpus == 1 ? "CPU" : "CPUs", t->n_cores, t->n_cores == 1 ? "core" : "cores", t->smt,
	       t->smt == 1 ? "thread" : "threads", t->n_packages, t->n_packages == 1 ? "package" : "packages",
	       t->n_nodes, t->n_nodes == 1 ? "node" : "nodes", far);
}

static int support_code(enum coresched_support support)
{
	switch (support) {
	case CORESCHED_SUPPORTED:
	case CORESCHED_NO_SIBLINGS:
		return CLI_YES;
	case CORESCHED_DENIED:
		return CLI_DENIED;
	case CORESCHED_NO_KERNEL_OPTION:
	case CORESCHED_KNOWN_BAD:
		break;
	}
	return CLI_UNSUPPORTED;
}

int verb_support(const struct cli_options *o, int argc, char **argv)
{
	cleanup_sys struct sys sys = { .root_fd = -1 };
	cleanup_error struct error err = { 0 };
	cleanup_facts struct facts facts = { 0 };
	cleanup_free char *detail = NULL;
	enum coresched_support support;
	int r = sys_open(o->root, &sys, &err);

	(void) argc;
	(void) argv;
	r = r < 0 ? r : facts_look(&sys, o->root, &facts, &err);
	if (r < 0)
		return cli_fail(r, &err);
	say_machine(facts.topo);
	if (!sys.acting) {
		puts("The root directory is not this machine's: what its kernel can do is not asked.");
		return CLI_YES;
	}
	support = coresched_probe(&sys, &detail);
	printf("Core scheduling: %s: %s%s%s\n", coresched_support_name(support), coresched_support_text(support),
	       detail ? ": " : "", detail ? detail : "");
	printf("cpusets: %s\n", facts.cgroup.cpuset_mount ?
					(facts.cgroup.cpuset_v2 ? "cgroup v2." : "cgroup v1.") :
					"no cpuset controller: containers cannot be kept on their CPUs.");
	printf("Weighted interleave: %s\n", mempolicy_has_weighted(&sys) ?
						    "known to this kernel." :
						    "not known to this kernel (Linux 6.9 has it).");
	return support_code(support);
}
