/* What is true of every topology, whichever machine it is and wherever it came from. */
#pragma once

#include "topology.h"

/* Every CPU in one core, cache, package and node; masks and counts right; the same again after its own text form. Ends
 * the test otherwise. */
void topology_check(const char *name, const struct topology *t);

#define check(what) \
	do { \
		if (!(what)) \
			fail_msg("%s: %s", name, #what); \
	} while (0)
