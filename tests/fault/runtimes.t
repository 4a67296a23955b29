#!/bin/bash
# shellcheck disable=SC2016,SC2119 # programs of jq; functions of lib.bash that take options
# The hook of a real runtime's container is killed after each of its steps that need no core scheduling: the runtime must
# not start the container, and another container's hook, or poststop, cleans up. With cookies: tests/vm/t-fault.sh.
export BUILD=build/fault
# crun refuses a machine with both cgroup versions: without the second one, in a mount namespace of its own.
if [ -d /sys/fs/cgroup/unified ] && [ "$(id -u)" = 0 ] && [ -z "${FAULT_UNSHARED-}" ]; then
	export FAULT_UNSHARED=1
	exec unshare -m sh -c 'umount /sys/fs/cgroup/unified; exec "$0"' "$0"
fi
# shellcheck source=tests/e2e/lib.bash
. tests/e2e/lib.bash
missing=
[ "$(cat /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list 2>/dev/null | sort -u | wc -l)" -gt 1 ] ||
	missing="a machine with two cores"
[ "$(id -u)" = 0 ] || missing="root"
[ -z "$missing" ] && [ -z "$(cpuset_mount)" ] && missing="a cpuset hierarchy"
if [ -n "$missing" ]; then
	skip "$missing" "the hook of a runtime is killed"
	exit 0
fi

parent=cotenant-fault-$$
runtime=
started=
finish() {
	for id in $started; do
		"$runtime" delete --force "$id" >/dev/null 2>&1
	done
	wait_for sh -c "rmdir /sys/fs/cgroup/*/$parent /sys/fs/cgroup/$parent; ! ls -d /sys/fs/cgroup/*/$parent /sys/fs/cgroup/$parent" >/dev/null
	clean_up
}
trap finish EXIT

faults=(intent cpuset neighbours "memory policy" guard result)
memory=bind
if [ -d /sys/kernel/mm/mempolicy/weighted_interleave ]; then
	faults=(intent cpuset neighbours weights "memory policy" guard result)
	memory=weighted-interleave
fi
write_policy '.node.weights = {dram: 7} | .classes = {
		plain: {isolation: {mode: "none"}, cpu: {span: "machine"}},
		everything: {isolation: {mode: "cores", guard: ["memory"]}, cpu: {span: "machine", exclusive: true, count: 0.5},
			memory: {policy: "'$memory'", nodes: "0"}}}
	| .rules = [{match: {id: "fault-v"}, tenant: "victim", class: "everything"}, {match: {}, tenant: "${id}", class: "plain"}]'

hook_of() { # STAGE [OPTION…]
	printf '%s\n' cotenant-hook "$1" --policy "$policy" --state-dir "$state_dir" --timeout 50 "${@:2}" |
		jq -Rn --arg path "$bin/cotenant-hook" '[{path: $path, timeout: 60, args: [inputs]}]'
}
# The first program writes a file, so that it can be seen whether it ever ran.
make_container() { # ID [JQ-EDIT]
	local dir=$work/$1
	rm -rf "$dir"
	mkdir -p "$dir/rootfs/bin" "$dir/rootfs/proc" "$dir/rootfs/sys" "$dir/rootfs/dev"
	cp "$(command -v busybox)" "$dir/rootfs/bin/busybox"
	"$runtime" spec -b "$dir"
	jq --arg cgroup "/$parent/$1" --argjson create "$(hook_of createRuntime)" --argjson stop "$(hook_of poststop)" \
		'.process.terminal = false | .root.readonly = false | .linux.cgroupsPath = $cgroup
		| .process.args = ["/bin/busybox", "sh", "-c", "echo >/ran; exec /bin/busybox sleep 600"]
		| .hooks = {createRuntime: $create, poststop: $stop}'"${2:+ | $2}" "$dir/config.json" >"$dir/new.json" &&
		mv "$dir/new.json" "$dir/config.json"
}
start() { # ID [JQ-EDIT]
	make_container "$@"
	started="$started $1"
	timeout -s KILL 120 "$runtime" run --detach -b "$work/$1" "$1" >"$work/out" 2>&1 </dev/null
	status=$? err=$(<"$work/out")
}
stop() { # ID
	"$runtime" delete --force "$1" >/dev/null 2>&1
	started=${started/ $1/}
}
poststop() { printf '{"ociVersion": "1.0.2", "id": "%s", "status": "stopped"}' "$1" | hook poststop --timeout 20; } # ID
entry() { jq -r "$2" "$state_dir/containers/$1.json" 2>/dev/null; }
ids() { (cd "$state_dir/containers" && find . -type f | sort | sed 's,.*/fault-,,; s/\.json$//' | paste -sd ' '); }
cpus_of() { effective_cpus "$(cpuset_mount)/$parent/fault-$1"; }
weights() { cat /sys/kernel/mm/mempolicy/weighted_interleave/node0 2>/dev/null; }
has_ended() { ! grep -qs '^State:.[^ZX]' "/proc/$1/status"; } # PID
weights=$(weights)

cleaned() { # WHAT IDS
	is "$(ids)" "$2" "$1: the ledger has who lives"
	is "$(cpus_of n) $(entry fault-n .plan.cpus)" "$all $all" "$1: the neighbour has the whole machine again, and the ledger says so"
	is "$(weights) $(find "$state_dir" -name weights.json)" "$weights " "$1: the interleave weights are what they were"
}

for runtime in runc crun; do
	if ! command -v $runtime >/dev/null; then
		skip "$runtime" "the hook of $runtime is killed"
		continue
	fi
	start fault-try '.hooks = {}'
	stop fault-try
	if [ "$status" != 0 ]; then
		skip "a machine on which $runtime can start a container ($(tail -n 1 <<<"$err"))" "the hook of $runtime is killed"
		continue
	fi
	start fault-n
	all=$(cpus_of n)
	is "$status $all $(ids)" "0 $(machine_cpus) n" "$runtime: a neighbour has the whole machine"
	for fault in "${faults[@]}"; do
		for next in another poststop; do
			on="$runtime killed after $fault, then $next"
			# poststop is not wired: what is left is looked at before anybody cleans up.
			start fault-v ".hooks = {createRuntime: $(hook_of createRuntime --fault "$fault")}"
			is "$([ "$status" != 0 ]; echo $?)" 0 "$on: the runtime reports a failure"
			ok "$on: the program never ran" test ! -e "$work/fault-v/rootfs/ran"
			is "$(entry fault-v .state)" "$([ "$fault" = result ] && echo "done" || echo intent)" "$on: the ledger says how far it may be"
			stop fault-v
			ok "$on: no process of it is left" wait_for has_ended "$(entry fault-v .pid)"
			if [ $next = another ]; then
				start fault-other
				is "$status" 0 "$on: it starts"
				cleaned "$on" "n other"
				stop fault-other
			else
				poststop fault-v
				is "$status $err" "0 " "$on: succeeds"
				cleaned "$on" n
			fi
		done
	done
	# As it is wired: whatever the runtime calls after a hook has failed, and a container of the same id comes next.
	on="$runtime killed after guard, all hooks wired"
	start fault-v ".hooks.createRuntime = $(hook_of createRuntime --fault guard)"
	stop fault-v
	start fault-v
	is "$status $(entry fault-v .state)" "0 done" "$on: the next container of that id starts"
	stop fault-v
	cleaned "$on" n
	stop fault-n
	is "$(ids)" "" "$runtime: in the end the ledger is empty"
done
is "$(find /proc/[0-9]*/exe -lname "$bin/*" 2>/dev/null)" "" "no process of cotenant is left"
