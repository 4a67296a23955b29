#include "sys.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/syscall.h>

/* The program and its filter behind it, as they lie in the process's scratch memory. */
static int write_filter(struct held *h, const struct bpf_filter *filter, unsigned long *ret_address)
{
	const size_t size = filter->len * sizeof(*filter->code);
	struct sock_fprog program = { .len = (unsigned short) filter->len };
	unsigned long address;
	int r = held_scratch(h, sizeof(program) + size, &address);

	if (r < 0)
		return r;
	program.filter = (struct sock_filter *) (address + sizeof(program)); /* the process's address, not ours */
	r = held_write(h, address, &program, sizeof(program));
	if (r == 0)
		r = held_write(h, address + sizeof(program), filter->code, size);
	if (r == 0)
		*ret_address = address;
	return r;
}

static const char *install_cause(long result)
{
	switch (result) {
	case -EACCES:
		return "the process has neither no_new_privs nor CAP_SYS_ADMIN in its user namespace";
	case -EINVAL:
	case -ENOSYS:
		return "the kernel is built without seccomp filters";
	default:
		return strerror((int) -result);
	}
}

static int install(struct held *h, unsigned long address, struct error *err)
{
	const unsigned long args[6] = { SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, address };
	long result;
	int r = held_call(h, 0, SYS_seccomp, args, &result);

	if (r < 0)
		return error_set(err, -r, "guard of process %d: seccomp(2) could not be run in thread %d: %s",
				 held_pid(h), held_tid(h, 0), strerror(-r));
	if (result > 0)
		return error_set(err, EBADE, "guard of process %d: its thread %ld has a seccomp filter of its own",
				 held_pid(h), result);
	if (result < 0)
		return error_set(err, (int) -result, "guard of process %d cannot be installed: %s", held_pid(h),
				 install_cause(result));
	return 0;
}

/* "Seccomp:\t2" is filter mode; the count of filters is there since Linux 5.9. */
static int read_back(struct held *h, pid_t tid, struct error *err)
{
	static const char filter_mode[] = "\nSeccomp:\t2\n", no_filters[] = "\nSeccomp_filters:\t0\n";
	cleanup_free char *status = NULL;
	int r = file_readf(held_sys(h), &status, "/proc/%d/task/%d/status", held_pid(h), tid);

	if (r < 0)
		return error_set(err, -r, "guard of thread %d cannot be read back: %s", tid, strerror(-r));
	if (!strstr(status, filter_mode) || strstr(status, no_filters))
		return error_set(err, EBADE, "thread %d of process %d has no seccomp filter after one was installed", tid,
				 held_pid(h));
	return 0;
}

int guard_inject(struct held *h, unsigned guard, struct error *err)
{
	const struct bpf_filter *filter = sandbox_guard_filter(guard);
	unsigned long address = 0;
	int r;

	if (!guard)
		return 0;
	if (!filter)
		return error_set(err, EINVAL, "guard: %#x is no set of guards", guard);
	r = write_filter(h, filter, &address);
	if (r < 0)
		return error_set(err, -r, "guard of process %d: the filter cannot be handed over: %s", held_pid(h),
				 strerror(-r));
	r = install(h, address, err);
	for (size_t i = 0; r == 0 && i < held_threads(h); i++)
		r = read_back(h, held_tid(h, i), err);
	return r;
}
