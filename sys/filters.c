/*
 * filters ARCHITECTURE: prints the seccomp filters that cotenant installs, as C, for sys/sandbox.c. Run while cotenant
 * is built: a container waits for the hook, and to have libseccomp make its filter took longer than to install it.
 * The only user of libseccomp.
 */
#include "sys.h"

#include <errno.h>
#include <linux/filter.h>
#include <seccomp.h>
#include <stdio.h>
#include <sys/mman.h>

#define PRCTL_SCHED_CORE 62 /* PR_SCHED_CORE; command GET is 0 */

static void filter_release(scmp_filter_ctx *ctx)
{
	if (*ctx)
		seccomp_release(*ctx);
}
#define cleanup_filter cleanup_with(filter_release)

/* What else the processor runs beside its native system calls; a filter that forgets one can be walked around. */
static const struct {
	uint32_t native;
	uint32_t others[2];
} architectures[] = {
	{ SCMP_ARCH_X86_64, { SCMP_ARCH_X86, SCMP_ARCH_X32 } },
	{ SCMP_ARCH_AARCH64, { SCMP_ARCH_ARM } },
	{ SCMP_ARCH_S390X, { SCMP_ARCH_S390 } },
	{ SCMP_ARCH_PPC64, { SCMP_ARCH_PPC } },
};

/* Of all that the target runs, or of its native calls alone. */
static scmp_filter_ctx new_filter(uint32_t default_action, uint32_t target, bool all)
{
	cleanup_filter scmp_filter_ctx ctx = seccomp_init(default_action);

	if (!ctx)
		return NULL;
	if (target != seccomp_arch_native() &&
	    (seccomp_arch_add(ctx, target) < 0 || seccomp_arch_remove(ctx, seccomp_arch_native()) < 0))
		return NULL;
	for (size_t i = 0; all && i < ARRAY_LEN(architectures); i++) {
		if (architectures[i].native != target)
			continue;
		for (size_t k = 0; k < ARRAY_LEN(architectures[i].others) && architectures[i].others[k]; k++)
			if (seccomp_arch_add(ctx, architectures[i].others[k]) < 0)
				return NULL;
	}
	return TAKE_PTR(ctx);
}

/* ---- the guard of a container ---- */

static const struct {
	enum guard guard;
	const char *call;
} denied_calls[] = {
	{ GUARD_MEMORY, "set_mempolicy" },
	{ GUARD_MEMORY, "mbind" },
	{ GUARD_MEMORY, "set_mempolicy_home_node" },
	{ GUARD_MEMORY, "migrate_pages" },
	{ GUARD_MEMORY, "move_pages" },
	{ GUARD_AFFINITY, "sched_setaffinity" },
};

static int number_of(const char *call)
{
	int nr = seccomp_syscall_resolve_name(call);

	if (nr == __NR_SCMP_ERROR)
		fprintf(stderr, "filters: this libseccomp does not know the system call %s: 2.5.2 does\n", call);
	return nr;
}

static int add_denied(scmp_filter_ctx ctx, unsigned guard)
{
	for (size_t i = 0; i < ARRAY_LEN(denied_calls); i++) {
		int nr = number_of(denied_calls[i].call), r;

		if (nr == __NR_SCMP_ERROR)
			return -ENOSYS;
		r = guard & denied_calls[i].guard ? seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), nr, 0) : 0;
		if (r < 0)
			return r;
	}
	if (!(guard & GUARD_COOKIE))
		return 0;
	/*
	 * prctl(2) takes its option as an int: the kernel does not see the upper half of the register, so the filter
	 * must not either. The command is truncated too; denying every value but 0 in all 64 bits denies a superset.
	 */
	return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), number_of("prctl"), 2,
				SCMP_A0(SCMP_CMP_MASKED_EQ, UINT32_MAX, PRCTL_SCHED_CORE), SCMP_A1(SCMP_CMP_NE, 0, 0));
}

/* ---- the anchor: sigsuspend(2) to wait with, what resumes it after a stop, and the way out ---- */

static int add_allowed(scmp_filter_ctx ctx)
{
	static const char *const calls[] = { "rt_sigsuspend", "restart_syscall", "exit_group" };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(calls); i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, number_of(calls[i]), 0);
	return r;
}

/* ---- printing ---- */

/* The library exports into a descriptor only. */
static int print_filter(scmp_filter_ctx ctx, const char *name)
{
	cleanup_fd int fd = memfd_create("seccomp", MFD_CLOEXEC);
	struct sock_filter line;
	int r = fd < 0 ? -errno : seccomp_export_bpf(ctx, fd);

	if (r < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return r < 0 ? r : -errno;
	printf("static const struct sock_filter %s[] = {\n", name);
	for (ssize_t n; (n = read(fd, &line, sizeof(line))) != 0;) {
		if (n != (ssize_t) sizeof(line))
			return -EIO;
		printf("\t{ 0x%02x, %u, %u, 0x%08x },\n", line.code, line.jt, line.jf, line.k);
	}
	printf("};\n\n");
	return 0;
}

static int print_guard(uint32_t target, unsigned guard)
{
	cleanup_filter scmp_filter_ctx ctx = new_filter(SCMP_ACT_ALLOW, target, true);
	cleanup_free char *name = NULL;
	int r = ctx ? 0 : -ENOMEM;

	/* All architectures of the processor are listed above: there is no other to be allowed. */
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(EPERM));
	if (r == 0)
		r = add_denied(ctx, guard);
	if (r == 0 && asprintf(&name, "guard_%u", guard) < 0)
		r = -ENOMEM;
	return r < 0 ? r : print_filter(ctx, name);
}

static int print_all(uint32_t target)
{
	/* Denied calls fail rather than kill: an anchor that dies takes its tenant's cookie along. */
	cleanup_filter scmp_filter_ctx anchor = new_filter(SCMP_ACT_ERRNO(EPERM), target, false);
	int r = anchor ? add_allowed(anchor) : -ENOMEM;

	if (r == 0)
		r = print_filter(anchor, "anchor");
	for (unsigned guard = 1; r == 0 && guard <= GUARD_ALL; guard++)
		r = print_guard(target, guard);
	printf("static const struct bpf_filter guards[] = {\n");
	for (unsigned guard = 1; guard <= GUARD_ALL; guard++)
		printf("\t[%u] = { guard_%u, ARRAY_LEN(guard_%u) },\n", guard, guard, guard);
	printf("};\n");
	return r;
}

int main(int argc, char **argv)
{
	uint32_t target = argc == 2 ? seccomp_arch_resolve_name(argv[1]) : 0;
	int r = target ? print_all(target) : -EINVAL;

	if (r == 0 && fflush(stdout) != 0)
		r = -errno;
	if (r < 0)
		fprintf(stderr, "filters %s: %s\n", argc > 1 ? argv[1] : "", strerror(-r));
	return r < 0;
}
