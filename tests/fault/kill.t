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
write_policy '.classes = {
		plain: {isolation: {mode: "none"}, cpu: {span: "machine"}},
		everything: {isolation: {mode: "cores", guard: ["memory"]}, cpu: {span: "machine", exclusive: true, count: 0.5},
			memory: {policy: "bind", nodes: "0"}}}
	| .rules = [{match: {id: "v"}, tenant: "victim", class: "everything"}, {match: {}, tenant: "${id}", class: "plain"}]'
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
}

park n
all=$(cpus_of n)
run n createRuntime
is "$status $err" "0 " "the neighbour is placed"

for fault in intent cpuset neighbours "memory policy" guard result; do
	for next in poststop another; do
		on="killed after $fault, then $next"
		park v
		run v createRuntime --fault "$fault"
		is "$status" 137 "$on: killed"
		is "$(entry v .state)" "$([ "$fault" = result ] && echo "done" || echo intent)" "$on: the ledger says how far it may be"
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

on="killed after cpuset, and the container runs all the same"
park v
run v createRuntime --fault cpuset
park other
run other createRuntime
is "$(entry v .state)" degraded "$on: the next hook marks it"
like "$(entry v .why)" "the hook died before it finished" "$on: with the reason"
stop other
run other poststop
stop v
run v poststop

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
is "$(ids)" "" "in the end the ledger is empty"
