/*
 * What the engine takes a machine to be like: the constants of its cost (include/cost.h), in one place. Their defaults
 * are those of the keys node.model (policy/policy_keys.c), by which the operator changes them. In the policy they are
 * plain numbers, here thousandths. Where each comes from:
 *
 * smt_thread     0.6: with SMT off, a CPU-bound load does 0.59 to 0.60 of its work (core scheduling v9, Nov 2020).
 * queueing       0.05: a preference, small beside everything that was measured.
 * stream_spread  1: such a class asks for bandwidth. stream_other 0.1: a preference.
 * llc_stream     0.125: one STREAM worker draws all that the fabric gives a Zen 3 cache of 8 cores, and 16 workers on 16
 *                caches do 580 GB/s (sched/fair "Adjust the allowed NUMA imbalance", v6, Feb 2022).
 * stream_bandwidth  36000 MB/s: 580 GB/s by 16, the same.
 * memory_bound   0.3: numa01 is the extreme at 0.93, 378 s on the wrong node of distance 20 against 196 s on the right
 *                one (AutoNUMA alpha6, Mar 2012); few services come near.
 * hbm_latency 1.1, cxl_latency 2, pmem_latency 3: about 110, 200 and 300 ns against 100 ns of DRAM.
 * memory_short   1: what does not fit is swapped or kills; more than any overload that the container itself can cause.
 * pack_llc 0.1, pack_node 0.2: judgement; hackbench, all communication, loses 8 to 28 % when locality goes (sched/fair
 *                "use dst group while checking imbalance for NUMA balancer", Sep 2020).
 * collision      0.1: nothing for CPU-bound tenants, 0.7 for those that switch all the time (core scheduling v9).
 * burst          0.05: a preference: of two places that are as good, the one with more room beyond the demand.
 * move_gib       1: the kernel's page migration moves one to two GB/s. move_horizon 60: as rebalance.min_dwell.
 */
#pragma once

struct model {
	unsigned smt_thread;       /* what a further thread of a core does beside the first, in cores */
	unsigned queueing;         /* share of its work that a fully used core loses as tasks wait for one another */
	unsigned stream_spread;    /* share of its time for which a container of a class that spreads streams memory */
	unsigned stream_other;     /* the same for all others */
	unsigned llc_stream;       /* streaming CPUs that a last-level cache feeds per core of it; never less than 1 in all */
	unsigned stream_bandwidth; /* MB/s, not thousandths: what one streaming CPU draws */
	unsigned memory_bound;     /* share of its time for which a container waits for memory that is near */
	unsigned hbm_latency, cxl_latency, pmem_latency; /* beside DRAM's, where neither distances nor firmware say more */
	unsigned memory_short;     /* CPUs lost for every GiB for which there is no room */
	unsigned pack_llc;         /* share of its work that a container of a class that packs loses when its threads … */
	unsigned pack_node;        /* … never share a cache, and when they never share a node */
	unsigned collision;        /* share of the time for which different cookies want one core that is lost by waiting */
	unsigned burst;            /* what a container without a hard limit gains from more CPUs, as share of its demand */
	unsigned move_gib;         /* CPU seconds that it takes to move a GiB */
	unsigned move_horizon;     /* seconds within which a move must pay */
};
