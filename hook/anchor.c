/*
 * cotenant-anchor: with --hold, holds a group's core scheduling cookie and does nothing else, so that the group keeps
 * its cookie while its containers come and go. Started by cotenant with the cookie already set; ends on SIGTERM or
 * SIGKILL. With --keep it is the keeper, which starts anchors for hooks (hook/keeper.c).
 */
#include "anchor.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define CAPABILITY_WORDS 2 /* _LINUX_CAPABILITY_VERSION_3 */
#define CAPABILITY_MAX 63

/* The ledger knows of this process when a byte has come. A starter that died before that closed the pipe. */
static bool told_to_stay(void)
{
	char byte;
	ssize_t n;

	do
		n = read(STDIN_FILENO, &byte, 1);
	while (n < 0 && errno == EINTR);
	return n == 1 && dup2(STDOUT_FILENO, STDIN_FILENO) == STDIN_FILENO; /* /dev/null */
}

static bool write_file(const char *path, const char *text)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t) strlen(text);
}

/*
 * With cgroup v1 there is no being born elsewhere: leave the hook's cgroup, which may be the pod's, in each hierarchy.
 * Lines are "ID:CONTROLLERS:PATH"; the unified one ("0::") was seen to by the starter.
 */
static void leave_v1_cgroups(void)
{
	char *line = NULL;
	size_t size = 0;
	FILE *f = fopen("/proc/self/cgroup", "re");

	while (f && getline(&line, &size, f) > 0) {
		cleanup_free char *procs = NULL;
		char *save = NULL, *name = strtok_r(line, ":", &save);

		name = strtok_r(NULL, ":", &save);
		if (!name || *name == '/' || !save || str_eq(save, "/\n"))
			continue;
		if (str_starts(name, "name="))
			name += strlen("name=");
		if (asprintf(&procs, "/sys/fs/cgroup/%s/cgroup.procs", name) < 0) {
			procs = NULL;
			continue;
		}
		if (!write_file(procs, "0"))
			continue; /* mounted elsewhere, or not ours to write: it stays */
	}
	free(line);
	if (f)
		fclose(f);
}

/*
 * Who may take this cookie? SHARE_FROM asks for PTRACE_MODE_READ on the anchor, and kill(2) for its user id, so a tenant
 * that sees host pids (hostPID) must be refused both, as far as that goes:
 *
 * - The user id stays 0. As "nobody" (65534) any process of that widely used id could signal the anchor and, were it
 *   dumpable, read it; uid 0 with hostPID and CAP_KILL could anyway.
 * - Not dumpable: same id is no longer enough then, CAP_SYS_PTRACE in the anchor's user namespace is asked for
 *   (__ptrace_may_access() in kernel/ptrace.c). Without this, a capability-less uid 0 in a container could read a
 *   capability-less anchor. Where cotenant itself lacks that capability, the anchor must stay dumpable, or cotenant
 *   could not share its cookie: without root, all tenants are the same user to the kernel anyway.
 * - No capability, no way to gain one, and no system call but waiting: an anchor is worth nothing once taken over.
 */
static int drop_privileges(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[CAPABILITY_WORDS] = { { 0 } };
	bool can_trace;

	if (syscall(SYS_capget, &header, data) < 0)
		return -errno;
	can_trace = data[CAP_SYS_PTRACE / 32].effective >> CAP_SYS_PTRACE % 32 & 1;
	for (int cap = 0; cap <= CAPABILITY_MAX && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
		;
	memset(data, 0, sizeof(data));
	if (syscall(SYS_capset, &header, data) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	/* Last: to lose capabilities makes a process not dumpable by itself (commit_creds() in kernel/cred.c). */
	return prctl(PR_SET_DUMPABLE, can_trace ? 0 : 1, 0, 0, 0) < 0 ? -errno : 0;
}

static bool has_cookie(void)
{
	uint64_t cookie = 0;

	return sys_real_ops.cookie_get(0, &cookie) == 0 && cookie != 0;
}

int anchor_prepare(void)
{
	if (chdir("/") < 0)
		return -errno;
	/* Best effort: the OOM killer would take the tenant's cookie with it. Needs CAP_SYS_RESOURCE. */
	if (!write_file("/proc/self/oom_score_adj", "-1000"))
		errno = 0;
	leave_v1_cgroups();
	return drop_privileges();
}

int anchor_hold(void)
{
	sigset_t none;

	sigemptyset(&none);
	if (!told_to_stay() || sandbox_anchor() < 0)
		return 1;
	for (;;)
		sigsuspend(&none);
}

static int anchor_main(void)
{
	if (!has_cookie()) {
		fputs("cotenant-anchor: no cookie to hold: with --hold this program is started by cotenant\n", stderr);
		return 1;
	}
	return anchor_prepare() < 0 ? 1 : anchor_hold();
}

static const char usage[] =
	"usage: cotenant-anchor --keep [--state-dir DIR]\n"
	"       cotenant-anchor --hold NAME\n"
	"\n"
	"Holds the core scheduling cookie of a group of containers, so that the group keeps it while they come and go.\n"
	"\n"
	"  --keep           be the keeper: start such processes for cotenant-hook, so that no runtime waits for them\n"
	"  --state-dir DIR  where the keeper listens, the same as cotenant-hook's: default /run/cotenant, or\n"
	"                   $XDG_RUNTIME_DIR/cotenant when not root\n"
	"  --hold NAME      be such a process. For cotenant-hook alone, which gives it its cookie; NAME is the group's,\n"
	"                   for ps(1)\n"
	"  --help           show this\n";

struct options {
	bool keep, help;
	const char *name, *state_dir;
};

static int parse_options(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {
		{ "keep", no_argument, NULL, 'k' },
		{ "state-dir", required_argument, NULL, 's' },
		{ "hold", required_argument, NULL, 'o' }, /* whatever the name begins with */
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};

	for (int c; (c = getopt_long(argc, argv, "h", known, NULL)) != -1;) {
		if (c == 'k')
			o->keep = true;
		else if (c == 's')
			o->state_dir = optarg;
		else if (c == 'o')
			o->name = optarg;
		else if (c == 'h')
			o->help = true;
		else
			return -EINVAL;
	}
	return optind < argc || (!o->help && (o->name ? o->keep || o->state_dir : !o->keep)) ? -EINVAL : 0;
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	sigset_t none;
	int r = parse_options(argc, argv, &o);

	if (r < 0 || o.help) {
		fputs(usage, r < 0 ? stderr : stdout);
		return r < 0 ? 2 : 0;
	}
	/* Whatever the starter blocked or ignored: a shutdown must not wait for this process. */
	sigemptyset(&none);
	signal(SIGTERM, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	return o.name ? anchor_main() : keeper_main(o.state_dir);
}
