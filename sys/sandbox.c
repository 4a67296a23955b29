#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PRCTL_SCHED_CORE 62 /* PR_SCHED_CORE; command GET is 0 */
#define FILTER_MAX (64u << 10)

static void filter_release(scmp_filter_ctx *ctx)
{
	if (*ctx)
		seccomp_release(*ctx);
}

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

static int add_architectures(scmp_filter_ctx ctx)
{
	uint32_t native = seccomp_arch_native();

	for (size_t i = 0; i < ARRAY_LEN(architectures); i++) {
		if (architectures[i].native != native)
			continue;
		for (size_t k = 0; k < ARRAY_LEN(architectures[i].others) && architectures[i].others[k]; k++) {
			int r = seccomp_arch_add(ctx, architectures[i].others[k]);

			if (r < 0)
				return r;
		}
	}
	return 0;
}

static const struct {
	enum guard guard;
	int call;
} denied_calls[] = {
	{ GUARD_MEMORY, SCMP_SYS(set_mempolicy) },
	{ GUARD_MEMORY, SCMP_SYS(mbind) },
	{ GUARD_MEMORY, SCMP_SYS(set_mempolicy_home_node) },
	{ GUARD_MEMORY, SCMP_SYS(migrate_pages) },
	{ GUARD_MEMORY, SCMP_SYS(move_pages) },
	{ GUARD_AFFINITY, SCMP_SYS(sched_setaffinity) },
};

static int add_rules(scmp_filter_ctx ctx, unsigned guard)
{
	for (size_t i = 0; i < ARRAY_LEN(denied_calls); i++) {
		int r = guard & denied_calls[i].guard ?
				seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), denied_calls[i].call, 0) :
				0;

		if (r < 0)
			return r;
	}
	if (!(guard & GUARD_COOKIE))
		return 0;
	/*
	 * prctl(2) takes its option as an int: the kernel does not see the upper half of the register, so the filter
	 * must not either. The command is truncated too; denying every value but 0 in all 64 bits denies a superset.
	 */
	return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prctl), 2,
				SCMP_A0(SCMP_CMP_MASKED_EQ, UINT32_MAX, PRCTL_SCHED_CORE), SCMP_A1(SCMP_CMP_NE, 0, 0));
}

/* The library exports into a descriptor only. */
static int export_filter(scmp_filter_ctx ctx, struct bpf_filter *ret)
{
	cleanup_fd int fd = memfd_create("seccomp", MFD_CLOEXEC);
	cleanup_free char *data = NULL;
	struct stat st;
	int r = fd < 0 ? -errno : seccomp_export_bpf(ctx, fd);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size <= 0 || st.st_size > FILTER_MAX)
		return -EFBIG;
	data = malloc((size_t) st.st_size);
	if (!data)
		return -ENOMEM;
	if (pread(fd, data, (size_t) st.st_size, 0) != (ssize_t) st.st_size)
		return -EIO;
	ret->data = TAKE_PTR(data);
	ret->len = (size_t) st.st_size;
	return 0;
}

int sandbox_guard_filter(unsigned guard, struct bpf_filter *ret)
{
	cleanup_with(filter_release) scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int r;

	if (!ctx)
		return -ENOMEM;
	/* All architectures of the processor are listed above: there is no other to be allowed. */
	r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(EPERM));
	if (r == 0)
		r = add_architectures(ctx);
	if (r == 0)
		r = add_rules(ctx, guard);
	return r < 0 ? r : export_filter(ctx, ret);
}

/* sigsuspend(2) to wait with, what resumes it after a stop, and the way out. */
int sandbox_anchor(void)
{
	static const int allowed[] = { SCMP_SYS(rt_sigsuspend), SCMP_SYS(restart_syscall), SCMP_SYS(exit_group) };
	/* Denied calls fail rather than kill: an anchor that dies takes its tenant's cookie along. */
	cleanup_with(filter_release) scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = ctx ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(allowed); i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
	return r < 0 ? r : seccomp_load(ctx);
}
