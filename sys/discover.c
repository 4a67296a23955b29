/* In a file of its own: whoever calls it links hwloc, libnuma and libcgroup, and the static hook must not. */
#include "discover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

int facts_discover(const struct sys *s, const char *root, struct facts *ret_facts, struct error *err)
{
	cleanup_facts struct facts f = { 0 };
	int r;

	/* Where hwloc finds nothing, it takes as many CPUs as this machine has. */
	if (!s->acting && faccessat(s->root_fd, "sys/devices/system/cpu", F_OK, 0) < 0)
		return error_set(err, errno, "root directory %s: sys/devices/system/cpu: %s", root, strerror(errno));
	if (s->acting)
		r = topology_from_hwloc(TOPOLOGY_LIVE, NULL, &f.topo, err);
	else
		r = topology_from_hwloc(TOPOLOGY_FSROOT, root, &f.topo, err);
	if (r < 0)
		return r;
	if (s->acting)
		numa_fill(f.topo);
	tiers_fill(s, f.topo);
	r = cgroup_discover(s, &f.cgroup, err);
	if (r < 0)
		return r;
	if (!s->acting)
		r = asprintf(&f.topo->key, "root %s", root) < 0 ? -ENOMEM : 0;
	else
		r = facts_key(s, &f.topo->key);
	if (r < 0) {
		f.topo->key = NULL;
		return error_set(err, -r, "boot id and online CPUs cannot be read: %s", strerror(-r));
	}
	*ret_facts = f;
	f = (struct facts){ 0 };
	return 0;
}
