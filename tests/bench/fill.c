/* fill STATE-DIR N PID: a ledger with N placed containers, all of them claimed to be the process PID. */
#include "ledger.h"

#include <stdio.h>

static int put_one(struct sys *sys, struct ledger *ledger, unsigned i, pid_t pid, struct error *err)
{
	cleanup_free char *id = NULL, *tenant = NULL;
	struct plan plan = { .mechanism = MECHANISM_NONE, .set_cpus = true, .mcpu = 1000 };
	struct entry entry = { .class = (char[]){ "web" }, .bundle = (char[]){ "/none" }, .cgroup = (char[]){ "/none" },
			       .pid = pid,	.actor = pid,	.state = ENTRY_DONE,
			       .policy_digest = (char[]){ "0" }, .plan = &plan };
	int r = proc_start_time(sys, pid, &entry.start_time);

	if (r < 0 || asprintf(&id, "filled-%u", i) < 0 || asprintf(&tenant, "tenant-%u", i % 100) < 0)
		return r < 0 ? r : -1;
	entry.actor_start_time = entry.start_time;
	entry.id = id;
	entry.tenant = entry.group = tenant;
	mask_set(&plan.cpus, i % 2);
	plan.wish = plan.cpus;
	plan.mems = 1;
	r = ledger_lock(ledger, err);
	if (r == 0)
		r = ledger_put(ledger, &entry, err);
	ledger_unlock(ledger);
	return r;
}

int main(int argc, char **argv)
{
	cleanup_sys struct sys sys = { .root_fd = -1 };
	cleanup_error struct error err = { 0 };
	cleanup_ledger struct ledger *ledger = NULL;
	int r = argc == 4 ? sys_open(NULL, &sys, &err) : -1;

	if (r == 0)
		r = ledger_open(&sys, argv[1], &ledger, &err);
	for (unsigned i = 0; r == 0 && i < (unsigned) atoi(argv[2]); i++)
		r = put_one(&sys, ledger, i, atoi(argv[3]), &err);
	if (r < 0)
		fprintf(stderr, "fill: %s\n", error_text(&err));
	return r < 0;
}
