/* prctl(PR_SCHED_CORE), for the two files that call it. */
#pragma once

#include <errno.h>
#include <sys/prctl.h>

#include "sys.h"

/* uapi/linux/prctl.h, Linux 5.14; the scopes' names came with 5.18. */
#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#define PR_SCHED_CORE_GET 0
#define PR_SCHED_CORE_CREATE 1
#define PR_SCHED_CORE_SHARE_TO 2
#define PR_SCHED_CORE_SHARE_FROM 3
#endif
#ifndef PR_SCHED_CORE_SCOPE_THREAD
#define PR_SCHED_CORE_SCOPE_THREAD 0
#define PR_SCHED_CORE_SCOPE_THREAD_GROUP 1
#endif

/* pid 0: the caller. cookie: for GET, else NULL. */
static inline int core_prctl(unsigned long command, pid_t pid, unsigned long scope, uint64_t *cookie)
{
	return prctl(PR_SCHED_CORE, command, (unsigned long) pid, scope, (unsigned long) cookie) < 0 ? -errno : 0;
}
