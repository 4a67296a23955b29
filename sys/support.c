#include "sys.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>

#define VERSION_PARTS 5

/*
 * Kernels on which cookies are known to hang the host. Only such: to refuse isolation over anything less, on a wide
 * range of releases that distributions have patched, would do more harm than the bug.
 */
static const struct {
	const char *vendor; /* as in the release string */
	unsigned last[VERSION_PARTS];
	const char *why;
} bad_kernels[] = {
	{ ".an", { 5, 10, 134, 16, 1 }, "hard lockup when cookies meet its group identity scheduler" }, /* Anolis OS */
};

/* "5.10.134-16.1.an8.x86_64" → 5 10 134 16 1: the leading numbers, missing ones 0. */
static void parse_release(const char *text, unsigned ret[VERSION_PARTS])
{
	memset(ret, 0, VERSION_PARTS * sizeof(*ret));
	for (size_t i = 0; i < VERSION_PARTS && isdigit((unsigned char) *text); i++) {
		char *end;

		ret[i] = (unsigned) strtoul(text, &end, 10);
		text = end;
		if (*text == '.' || *text == '-')
			text++;
	}
}

static bool release_at_most(const unsigned version[VERSION_PARTS], const unsigned last[VERSION_PARTS])
{
	for (size_t i = 0; i < VERSION_PARTS; i++)
		if (version[i] != last[i])
			return version[i] < last[i];
	return true;
}

static bool kernel_is_bad(const struct sys *s, char **ret_detail)
{
	cleanup_free char *release = NULL;
	unsigned version[VERSION_PARTS];

	if (file_readf(s, &release, "/proc/sys/kernel/osrelease") < 0)
		return false;
	release[strcspn(release, "\n")] = '\0';
	parse_release(release, version);
	for (size_t i = 0; i < ARRAY_LEN(bad_kernels); i++) {
		if (!strstr(release, bad_kernels[i].vendor) || !release_at_most(version, bad_kernels[i].last))
			continue;
		if (ret_detail && asprintf(ret_detail, "kernel %s: %s", release, bad_kernels[i].why) < 0)
			*ret_detail = NULL;
		return true;
	}
	return false;
}

/*
 * A scheduler loaded by BPF decides itself whether it heeds cookies; most do not, and with some the host hangs
 * (sched-ext/scx issue 3715). "enabling" is as good as enabled.
 */
static bool sched_ext_is_on(const struct sys *s, char **ret_detail)
{
	cleanup_free char *state = NULL, *ops = NULL;

	if (file_readf(s, &state, "/sys/kernel/sched_ext/state") < 0 || !str_starts(state, "enabl"))
		return false;
	if (!ret_detail)
		return true;
	if (file_readf(s, &ops, "/sys/kernel/sched_ext/root/ops") == 0)
		ops[strcspn(ops, "\n")] = '\0';
	if (asprintf(ret_detail, "sched_ext scheduler %s", ops && *ops ? ops : "of unknown name") < 0)
		*ret_detail = NULL;
	return true;
}

/* A foreign root cannot be asked: what its sysfs says of SMT decides, and a kernel with the option is assumed. */
static enum coresched_support probe_files(const struct sys *s)
{
	cleanup_free char *active = NULL;

	return file_readf(s, &active, "/sys/devices/system/cpu/smt/active") == 0 && *active == '0' ?
		       CORESCHED_NO_SIBLINGS :
		       CORESCHED_SUPPORTED;
}

static enum coresched_support probe_call(const struct sys *s)
{
	uint64_t cookie;

	switch (s->ops->cookie_get(0, &cookie)) {
	case 0:
		return CORESCHED_SUPPORTED;
	case -EINVAL:
		return CORESCHED_NO_KERNEL_OPTION;
	case -ENODEV:
		return CORESCHED_NO_SIBLINGS;
	case -EROFS:
		return probe_files(s);
	default:
		return CORESCHED_DENIED; /* EPERM, or what else a seccomp filter on this process answers */
	}
}

enum coresched_support coresched_probe(const struct sys *s, char **ret_detail)
{
	enum coresched_support support = probe_call(s);

	if (ret_detail)
		*ret_detail = NULL;
	if (support == CORESCHED_SUPPORTED && (sched_ext_is_on(s, ret_detail) || kernel_is_bad(s, ret_detail)))
		return CORESCHED_KNOWN_BAD;
	return support;
}
