#!/bin/sh
# Guest script: is the guest what the tests take it for?
#
#   tests/vm/run tests/vm/smoke.sh [NAME=VALUE]...
#
#   core=ok|EINVAL|ENODEV   what prctl(PR_SCHED_CORE) says      [ok]
#   threads=N               threads of a core                   [2]
#   cpus=N                                                      [8]
#   sockets=N               each a NUMA node; one more for CXL  [2]
#   cgroup=v2|v1|hybrid                                         [v2]
set -u
# shellcheck source=tests/vm/lib.sh
. tests/vm/lib.sh

core=ok threads=2 cpus=8 sockets=2 cgroup=v2
for arg; do
	case $arg in
	core=* | threads=* | cpus=* | sockets=* | cgroup=*) eval "${arg%%=*}=\${arg#*=}" ;;
	*)
		diag "unknown argument $arg"
		exit 2
		;;
	esac
done
probe=$PWD/build/tests/vm/probe
cxl=$sockets
node=/sys/devices/system/node

diag "$(uname -r), up $(cut -d ' ' -f 1 /proc/uptime) s"

# CPUs
is "$(nproc)" "$cpus" "$cpus CPUs"
siblings=$(cat /sys/devices/system/cpu/cpu0/topology/thread_siblings_list)
case $threads in
1) is "$siblings" 0 "CPU 0 has no sibling" ;;
2) is "$siblings" 0-1 "CPU 0 and 1 are siblings" ;;
*) is "$siblings" "0-$((threads - 1))" "CPU 0 has $threads siblings" ;;
esac
is "$(cat /sys/devices/system/cpu/smt/active)" "$((threads > 1))" "smt/active"
is "$(cat /sys/devices/system/cpu/cpu*/topology/physical_package_id | sort -u | wc -l)" "$sockets" "packages"
diag "last-level cache of CPU 0 is shared by $(cat /sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list 2>&1)"

# NUMA
is "$(cat $node/online)" "0-$cxl" "nodes 0-$cxl"
is "$(cat $node/node0/cpulist)" "0-$((cpus / sockets - 1))" "node 0 holds the CPUs of socket 0"
is "$(cat $node/node"$cxl"/cpulist)" "" "node $cxl has no CPUs"
is "$(cat $node/has_memory)" "0-$cxl" "every node has memory"
diag "distances of node 0: $(cat $node/node0/distance)"
fast=$(cat $node/node0/access0/initiators/read_bandwidth)
slow=$(cat $node/node"$cxl"/access0/initiators/read_bandwidth)
diag "read bandwidth: node 0 $fast MB/s, node $cxl $slow MB/s"
ok "HMAT: node 0 is faster than node $cxl" [ "${slow:-0}" -gt 0 -a "${fast:-0}" -gt "${slow:-0}" ]
ok "HMAT: node 0 has the lower latency" [ "$(cat $node/node0/access0/initiators/read_latency)" \
	-lt "$(cat $node/node"$cxl"/access0/initiators/read_latency)" ]
is "$(cd /sys/kernel/mm/mempolicy/weighted_interleave && echo node*)" \
	"$(seq -f 'node%g' -s ' ' 0 "$cxl")" "a weight file for each node"
for tier in /sys/devices/virtual/memory_tiering/memory_tier*; do
	diag "${tier##*/}: nodes $(cat "$tier/nodelist")"
done

# Core scheduling
is "$("$probe" core-get)" "$([ "$core" = ok ] && echo 0x0 || echo "$core")" "PR_SCHED_CORE_GET: $core"
if [ "$core" = ok ]; then
	like "$("$probe" core-create)" '^0x[0-9a-f]*[1-9a-f]' "a cookie can be had"
	like "$("$probe" core-create "$probe" core-get)" '^0x[0-9a-f]*[1-9a-f]' "and survives exec"
else
	is "$("$probe" core-create)" "$core" "PR_SCHED_CORE_CREATE: $core"
fi

# cgroups
is "$(stat -f -c %T /sys/fs/cgroup)" "$([ "$cgroup" = v2 ] && echo cgroup2fs || echo tmpfs)" "cgroup $cgroup"
case $cgroup in
v2) files=/sys/fs/cgroup/cgroup.controllers ;;
hybrid) files="/sys/fs/cgroup/cpuset/cpuset.cpus /sys/fs/cgroup/unified/cgroup.procs" ;;
v1) files=/sys/fs/cgroup/cpuset/cpuset.cpus ;;
esac
for f in $files; do
	ok "$f" [ -r "$f" ]
done

# Ways out and in
echo kept >/out/smoke && is "$(cat /out/smoke)" kept "/out is writable"
ok "the host's tree looks writable" touch tests/vm/.smoke
ok "tracefs" [ -e /sys/kernel/tracing/events/sched/sched_switch ]

# Containers. Evidence of the cgroup comes from outside and of the rest from inside.
inside='nproc; cat /proc/self/cpuset; grep Mems_allowed_list /proc/self/status; probe core-get; hostname'
for runtime in runc crun; do
	if ! command -v $runtime >/dev/null; then
		skip "no $runtime" "$runtime"
		continue
	fi
	make_bundle -b "$probe" /tmp/$runtime smoke-$runtime "$inside" \
		'.linux.resources.cpu.cpus = "0-1" | .linux.resources.cpu.mems = "0"' ||
		fail "bundle for $runtime"
	got=$($runtime run -b /tmp/$runtime smoke-$runtime 2>&1)
	ok "$runtime runs a container"
	like "$got" '^2$' "$runtime: cpuset.cpus holds"
	like "$got" '^Mems_allowed_list:.0$' "$runtime: cpuset.mems holds"
	like "$got" "^smoke-$runtime\$" "$runtime: own UTS namespace"
	[ "$core" != ok ] || like "$got" '^0x0$' "$runtime: cookie 0 to begin with"
	diag "$got"

	make_bundle /tmp/$runtime-hook smoke-$runtime 'sleep 600' \
		'.hooks.createRuntime = [{path: "/bin/sh", args: ["sh", "-c", "cat > /tmp/state"]}]'
	$runtime run -d -b /tmp/$runtime-hook smoke-$runtime </dev/null >/dev/null 2>&1
	ok "$runtime starts a container in the background"
	ok "$runtime: its hook saw the state" wait_for "jq -e '.id == \"smoke-$runtime\"' /tmp/state" 20
	is "$($runtime exec smoke-$runtime hostname 2>&1)" smoke-$runtime "$runtime exec"
	$runtime delete -f smoke-$runtime
	ok "$runtime delete"
	rm -f /tmp/state
done

diag "up $(cut -d ' ' -f 1 /proc/uptime) s"
finish
