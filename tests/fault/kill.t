#!/bin/bash
# shellcheck disable=SC2016,SC2119 # programs of jq; functions of lib.bash that take options
# The hook is killed (SIGKILL) after each of its steps that need no core scheduling; those that do are killed in the
# test guest (tests/vm/t-fault.sh). The ledger must tell what may be half done, and whoever comes next must clean up.
export BUILD=build/fault
# shellcheck source=tests/e2e/lib.bash
. tests/e2e/lib.bash
missing=
[ "$(cat /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list 2>/dev/null | sort -u | wc -l)" -gt 1 ] ||
	missing="a machine with two cores"
[ -z "$missing" ] && [ -z "$(cpuset_mount)" ] && missing="a cpuset hierarchy"
if [ -n "$missing" ]; then
	skip "$missing" "the hook is killed"
	exit 0
fi

# A neighbour who has the whole machine, and a victim for whom everything must be done.
faults=(intent cpuset neighbours "memory policy" guard result)
memory=bind
if [ -d /sys/kernel/mm/mempolicy/weighted_interleave ]; then
	faults=(intent cpuset neighbours weights "memory policy" guard result)
	memory="weighted-interleave"
else
	skip "weighted interleave (Linux 6.9)" "killed after weights"
fi
write_policy '.node.weights = {dram: 7} | .classes = {
		plain: {isolation: {mode: "none"}, cpu: {span: "machine"}},
		everything: {isolation: {mode: "cores", guard: ["memory"]}, cpu: {span: "machine", exclusive: true, count: 0.5},
			memory: {policy: "'"$memory"'", nodes: "0"}}}
	| .rules = [{match: {id: {regex: "^[vw]$"}}, tenant: "${id}", class: "everything"}, {match: {}, tenant: "${id}", class: "plain"}]'
write_bundle

declare -A pids
stop() { # ID
	[ -n "${pids[$1]-}" ] || return 0
	{ kill -9 "${pids[$1]}" && wait "${pids[$1]}"; } 2>/dev/null # a hook that died while it held the process took it along
	wait_for rmdir "$(cpuset_mount)/cotenant-fault-$$-$1"
	unset "pids[$1]"
}
park() { # ID: a parked process in a cpuset of its own, anew
	stop "$1"
	local dir
	dir=$(cpuset_mount)/cotenant-fault-$$-$1
	mkdir "$dir" && fill_cpuset "$dir"
	# shellcheck disable=SC2217 # it must not hold the pipe that the test's lines go to
	busybox sleep 600 </dev/null >/dev/null 2>&1 &
	pids[$1]=$!
	echo $! >"$dir/cgroup.procs"
}
stop_all() {
	for id in "${!pids[@]}"; do
		stop "$id"
	done 2>/dev/null
	clean_up
}
trap stop_all EXIT

run() { # ID STAGE [OPTION…]
	# In a shell of its own: bash says on stderr that a child was killed.
	state "$1" "${pids[$1]-1}" "$bundle" | (hook "${@:2}" --timeout 20; exit "$status") 2>/dev/null
	status=$? err=$(<"$work/err")
}
entry() { jq -r "$2" "$state_dir/containers/$1.json" 2>/dev/null; }
ids() { find "$state_dir/containers" -type f -printf '%f\n' | sort | tr '\n' ' '; }
cpus_of() { effective_cpus "$(cpuset_mount)/cotenant-fault-$$-$1"; }

cleaned() { # WHAT IDS
	is "$(ids)" "$2" "$1: the ledger has who lives, and no dead container"
	is "$(cpus_of n)" "$all" "$1: the neighbour has the whole machine again"
	is "$(entry n .plan.cpus)" "$all" "$1: and the ledger says so"
	is "$(weights) $(saved_weights)" "$weights " "$1: the interleave weights are what they were"
}

park n
all=$(cpus_of n)
run n createRuntime
is "$status $err" "0 " "the neighbour is placed"

# By the kernel, a line a thread.
kernel_says() { # ID
	local thread
	for thread in "/proc/${pids[$1]}/task"/*; do
		echo "cpus $(sed -n 's/^Cpus_allowed_list:.//p' "$thread/status"), memory $(memory_policy "$thread"), seccomp $(sed -n 's/^Seccomp:.//p' "$thread/status")"
	done
}
weights() { cat /sys/kernel/mm/mempolicy/weighted_interleave/node0 2>/dev/null; }
saved_weights() { [ -e "$state_dir/weights.json" ] && echo kept; }
weights=$(weights)
has_ended() { ! grep -q '^State:.[^Z]' "/proc/${pids[$1]}/status"; } # ID

# No more is done than the steps that came to their end, and where the ledger says more, it says that it may be so.
half_applied() { # WHAT FAULT
	local own
	own=$(entry v .plan.cpus)
	case $2 in
	"memory policy" | guard)
		# It was held, with another call's registers perhaps, and must not go on with them.
		if wait_for has_ended v; then
			wait "${pids[v]}" 2>/dev/null
			is $? 137 "$1: the init is killed with the hook that held it"
		else
			fail "$1: the init is killed with the hook that held it" "$(kernel_says v)"
		fi
		;;
	intent) is "$(kernel_says v)" "cpus $all, memory default, seccomp 0" "$1: the init lives, and nothing was done to it" ;;
	result) is "$(kernel_says v)" "cpus $own, memory ${memory%-*}, seccomp 2" "$1: the init lives, and everything was done to it" ;;
	*) is "$(kernel_says v)" "cpus $own, memory default, seccomp 0" "$1: the init lives, and has its CPUs alone" ;;
	esac
	case $2 in
	intent | cpuset) is "$(cpus_of n), $(entry n '"unsynced \(.unsynced)"')" "$all, unsynced true" "$1: the neighbour is to move, and the ledger says that it may not have" ;;
	*) is "$(cpus_of n), $(entry n '"unsynced \(.unsynced)"')" "$(entry n .plan.cpus), unsynced false" "$1: the neighbour has moved, as the ledger says" ;;
	esac
	is "$([ "$(entry n .plan.cpus)" != "$all" ]; echo $?)" 0 "$1: it is not to have the whole machine"
	[ "$memory" = bind ] || case $2 in
	intent | cpuset | neighbours) is "$(weights) $(saved_weights)" "$weights " "$1: the interleave weights are what they were" ;;
	*) is "$(weights) $(saved_weights) $(entry v .plan.set_weights)" "7 kept true" "$1: the interleave weights have changed, and the old ones are on record" ;;
	esac
}

for fault in "${faults[@]}"; do
	for next in poststop another; do
		on="killed after $fault, then $next"
		park v
		run v createRuntime --fault "$fault" 2>/dev/null # where bash says that the init was killed, too
		is "$status" 137 "$on: killed"
		is "$(entry v .state)" "$([ "$fault" = result ] && echo "done" || echo intent)" "$on: the ledger says how far it may be"
		half_applied "$on" "$fault"
		stop v # as a runtime does when a hook has failed
		if [ $next = poststop ]; then
			run v poststop
			is "$status $err" "0 " "$on: succeeds"
			cleaned "$on" "n.json "
		else
			park other
			run other createRuntime
			is "$status $err" "0 " "$on: succeeds"
			cleaned "$on" "n.json other.json "
			stop other
			run other poststop
		fi
	done
done

# A runtime that starts the container all the same: the next hook says that nobody vouches for it, and gives it the CPUs
# that the ledger counts on, or it would run on those that others are promised.
for fault in intent cpuset neighbours weights; do
	[[ " ${faults[*]} " == *" $fault "* ]] || continue
	on="killed after $fault, and the container runs all the same"
	park v
	run v createRuntime --fault "$fault"
	own=$(entry v .plan.cpus)
	park other
	run other createRuntime
	is "$status $err" "0 " "$on: the next container is placed"
	is "$(entry v '[.state, .unsynced] | join(" ")')" "degraded false" "$on: the next hook marks it"
	like "$(entry v .why)" "the hook died before it finished" "$on: with the reason"
	is "$(kernel_says v)" "cpus $own, memory default, seccomp 0" "$on: and gives it its CPUs"
	is "$(entry n .plan.cpus) $(entry other .plan.cpus)" "$(cpus_of n) $(cpus_of other)" "$on: the others have what the ledger says"
	is "$(cpus_of n; echo "$own")" "$(echo "$all" | tr ,- '\n' | sort -r)" "$on: which is not its core"
	stop v
	run v poststop
	is "$status $err" "0 " "$on: poststop succeeds"
	cleaned "$on, then poststop" "n.json other.json "
	stop other
	run other poststop
done

for fault in "anchor ended" leaving "given back"; do
	on="poststop killed after $fault"
	park v
	run v createRuntime
	is "$status $err" "0 " "$on: the container is placed before"
	[ "$(cpus_of n)" != "$all" ]
	is $? 0 "$on: and the neighbour has moved aside"
	stop v
	run v poststop --fault "$fault"
	is "$status" 137 "$on: killed"
	run v poststop
	is "$status $err" "0 " "$on: once more, succeeds"
	cleaned "$on, once more" "n.json "
done

stop n
run n poststop

# Two owners of cores, and the hook of the first is killed before it has any.
on="an owner whose hook was killed, and another"
park v
run v createRuntime --fault intent
park w
run w createRuntime
is "$status $err" "0 " "$on: is placed"
is "$(cpus_of v) $(cpus_of w)" "$(entry v .plan.cpus) $(entry w .plan.cpus)" "$on: both have the CPUs that the ledger says"
is "$([ "$(cpus_of v)" != "$(cpus_of w)" ]; echo $?)" 0 "$on: which are not the same"
for id in v w; do
	stop $id
	run $id poststop
done
is "$(ids)" "" "in the end the ledger is empty"
