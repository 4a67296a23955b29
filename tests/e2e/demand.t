#!/bin/bash
# shellcheck disable=SC2016,SC2119 # templates in single quotes; functions of lib.bash that take options
# What config.json and the state say of a container decides what it gets: by the kernel, its effective cpuset and its
# memory policy.
# shellcheck source=tests/e2e/lib.bash
. tests/e2e/lib.bash
cores=$(cat /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list 2>/dev/null | sort -u | wc -l)
missing=
[ "$cores" -gt 1 ] || missing="a machine with two cores"
[ -e /proc/self/numa_maps ] || missing="numa_maps"
if [ -n "$missing" ]; then
	skip "$missing" "what a container asks for"
	exit 0
fi
init_start "what a container asks for" || exit 0
all=$(effective_cpus "$cgroup")
expand() { tr , '\n' <<<"$1" | while IFS=- read -r from to; do seq "$from" "${to:-$from}"; done; }
cores_of() { # LIST
	local cpu
	for cpu in $(expand "$1"); do cat "/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list"; done | sort -u | wc -l
}
threads=$(($(expand "$all" | wc -l) / cores)) # of a core
first=$(expand "$all" | head -n 1)

# As createRuntime places it; `forget` ends it and gives the cpuset back.
place() { # [JQ-EDIT-OF-CONFIG [ANNOTATIONS-OF-STATE]]
	write_bundle "${1-}"
	fill_cpuset "$cgroup"
	state red "$init" "$bundle" | jq -c ". + {annotations: ${2-null}}" | hook createRuntime
	got=$(effective_cpus "$cgroup")
}
forget() { over red | hook poststop; }
gets() { # NAME CORES JQ-EDIT
	place "$3"
	is "$status $out$err $(cores_of "$got")" "0  $2" "$1: $2 of $cores cores"
	forget
}

# ---- how many CPUs -----------------------------------------------------------------------------------------------------

write_policy '.classes.own = {isolation: {mode: "cores", guard: false}, cpu: {span: "machine", exclusive: true}}'
gets "nothing said" 1 '.'
gets "cpu.shares of one CPU" 1 '.linux.resources.cpu.shares = 1024'
gets "cpu.shares of two cores" 2 ".linux.resources.cpu.shares = $((2 * threads * 1024))"
gets "cpu.shares a bit above one core" 2 ".linux.resources.cpu.shares = $((threads * 1024 + 10))"
gets "cpu.shares 2, which is none" 1 '.linux.resources.cpu.shares = 2'
gets "a quota of one CPU" 1 '.linux.resources.cpu = {quota: 50000, period: 50000}'
gets "a quota of two cores" 2 ".linux.resources.cpu = {quota: $((2 * threads * 50000)), period: 50000}"
gets "a quota, and shares of less" 2 ".linux.resources.cpu = {quota: $((2 * threads * 100000)), shares: 10}"
gets "a quota, and shares of more" 1 ".linux.resources.cpu = {quota: 100000, shares: $((2 * threads * 1024))}"
place ".linux.resources.cpu.shares = $(((cores + 1) * threads * 1024))"
like "$status $err" "^1 .*: placement: no room for container red: " "cpu.shares of more than the machine: refused"
is "$got" "$all" "cpu.shares of more than the machine: its cpuset is what it was"

# ---- reserved CPUs, and those that the runtime was told -----------------------------------------------------------------

for mode in cores none; do
	write_policy '.node.reserved_cpus = "'"$first"'"
		| .classes.own = {isolation: {mode: "'$mode'", guard: false}, cpu: {span: "machine"}}'
	for asks in . ".linux.resources.cpu.cpus = \"$all\""; do
		place "$asks"
		is "$status $out$err $(expand "$got" | grep -cx "$first")" "0  0" "reserved CPU $first, mode $mode, config.json $asks: not on it (on $got)"
		is "$([ -n "$got" ]; echo $?)" 0 "reserved CPU $first, mode $mode, config.json $asks: but somewhere"
		forget
	done
done
write_policy '.classes.own = {isolation: {mode: "none"}, cpu: {span: "machine"}}'
place
is "$status $got" "0 $all" "no reserved CPU: on all"
forget

# By then the runtime has written them.
place_given() { # CPUS
	write_bundle ".linux.resources.cpu.cpus = \"$1\""
	echo "$1" >"$cgroup/cpuset.cpus"
	state red "$init" "$bundle" | hook createRuntime
	got=$(effective_cpus "$cgroup")
}
last=$(expand "$all" | tail -n 1)
write_policy '.classes.own = {isolation: {mode: "none"}, cpu: {span: "machine"}}'
for cpu in "$first" "$last"; do
	place_given "$cpu"
	is "$status $got" "0 $cpu" "config.json names CPU $cpu: on that one"
	forget
done
write_policy '.node.reserved_cpus = "'"$first"'" | .classes.own = {isolation: {mode: "none"}, cpu: {span: "machine"}}'
place_given "$first"
is "$status $err" "1 cotenant-hook: container red: createRuntime: placement: container red: all CPUs that it may use ($first) are reserved by node.reserved_cpus" \
	"config.json names the reserved CPU: refused"

# ---- annotations: the state's, or config.json's where it has none ----------------------------------------------------------

write_policy '.classes = {
		one: {isolation: {mode: "none"}, memory: {policy: "bind", nodes: "0"}},
		two: {isolation: {mode: "none"}, memory: {policy: "interleave", nodes: "0"}},
		other: {isolation: {mode: "none"}, memory: {policy: "local"}}}
	| .rules = [
		{match: {annotation: {class: "one"}}, tenant: "${annotation:owner}", class: "one", trust: true},
		{match: {annotation: {class: "two"}}, tenant: "${annotation:owner}", class: "two", trust: true},
		{match: {}, tenant: "nobody", class: "other"}]'
chosen() { # NAME WANT CONFIG STATE
	place ".annotations = $3" "$4"
	is "$status $out$err, $(memory_policy "/proc/$init"), $(jq -r '[.tenant, .class] | join(" ")' "$state_dir/containers/red.json")" \
		"0 , $2" "annotations: $1"
	forget
}
one='{"class": "one", "owner": "blue"}' two='{"class": "two", "owner": "green"}'
chosen "config.json's alone" "bind=static:0, blue one" "$one" null
chosen "the state's alone" "interleave=static:0, green two" null "$two"
chosen "the state's win" "interleave=static:0, green two" "$one" "$two"
chosen "the state's win, the other way round" "bind=static:0, blue one" "$two" "$one"
chosen "the state's that say nothing of it: config.json's are not looked at" "local, nobody other" "$one" '{"a": "b"}'
chosen "the state's are empty: config.json's" "bind=static:0, blue one" "$one" '{}'
chosen "none" "local, nobody other" null null
