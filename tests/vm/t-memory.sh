#!/bin/sh
# Guest script: where a container runs and where its memory lies. Node 2 stands for CXL memory behind node 0.
set -u
# shellcheck source=tests/vm/cotenant.sh
. tests/vm/cotenant.sh
write_policy
mib=64 pages=16384

# Within 2 % of the whole, as the policy's ratio says.
near() { # GOT WANT NAME
	if [ "${1:-0}" -ge $(($2 - pages / 50)) ] && [ "${1:-0}" -le $(($2 + pages / 50)) ]; then
		pass "$3"
	else
		fail "$3" "got $1 pages, wanted about $2"
	fi
}

on_node() { # ID NODE
	said "$1" "pages $2"
}

# A container's cgroup has what the ledger says was planned.
as_planned() { # WHAT ID
	planned_pid=$(pid_of "$2")
	is "$(effective "$planned_pid" cpus)" "$(entry_of "$2" .plan.cpus)" "$1: effective CPUs of $2 are the planned ones"
	is "$(effective "$planned_pid" mems)" "$(entry_of "$2" .plan.mems)" "$1: effective nodes of $2 are the planned ones"
	is "$(said "$2" allowed-cpus)" "$(entry_of "$2" .plan.cpus)" "$1: $2 sees these CPUs from inside"
}

for runtime in $(runtimes); do
	on="memory $runtime"
	before=$(weights)

	if started "$on" "$runtime" w weighted red "touch=$mib threads=2"; then
		is "$(entry_of w .plan.cpus)" 0-3 "$on: the first container is planned on node 0's CPUs"
		is "$(entry_of w .plan.mems)" 0,2 "$on: and on node 0 and the CXL node behind it"
		as_planned "$on" w
		is "$(said w policy)" "weighted interleave=static:0,2" "$on: the entrypoint's numa_maps show the policy"
		is "$(policies_of "$(pid_of w)")" \
			"weighted interleave=static:0,2" "$on: and so do all of its mappings from outside"
		is "$(weights)" "3 3 1" "$on: the kernel's weights are the policy's: DRAM 3, CXL 1"
		near "$(on_node w 0)" $((pages * 3 / 4)) "$on: three quarters of $mib MiB lie on node 0"
		near "$(on_node w 2)" $((pages / 4)) "$on: one quarter lies on node 2"
		is "$(on_node w 1)" "" "$on: nothing lies on node 1"
		is "$(said w first)" "$(cookies_of "$(anchor_of red)")" "$on: it has its cookie beside the memory policy"
	fi
	started "$on" "$runtime" w2 weighted blue "" &&
		is "$(said w2 policy)" "weighted interleave=static:1-2" "$on: a second one goes to node 1 and the CXL node"
	stop "$runtime" w2
	is "$(weights)" "3 3 1" "$on: the weights stay while a container relies on them"
	stop "$runtime" w
	is "$(weights)" "$before" "$on: and are what they were before after the last such container"

	if started "$on" "$runtime" i interleave red "touch=$mib"; then
		as_planned "$on" i
		is "$(said i policy)" "interleave=static:0,2" "$on: interleave over both tiers"
		near "$(on_node i 0)" $((pages / 2)) "$on: half of the pages on node 0"
		near "$(on_node i 2)" $((pages / 2)) "$on: half of the pages on node 2"
		stop "$runtime" i
	fi
	if started "$on" "$runtime" b bind red "touch=$mib"; then
		as_planned "$on" b
		is "$(entry_of b .plan.mems)" 0 "$on: bind: the cpuset has the DRAM node only"
		is "$(said b policy)" "bind=static:0" "$on: bind to the DRAM node"
		is "$(on_node b 0)" $pages "$on: bind: every page on node 0"
		stop "$runtime" b
	fi
	if started "$on" "$runtime" p preferred red "touch=$mib"; then
		as_planned "$on" p
		is "$(said p policy)" "prefer=static:2" "$on: preferred: the CXL node"
		is "$(on_node p 2)" $pages "$on: preferred: every page on node 2 while it has room"
		stop "$runtime" p
	fi
	if started "$on" "$runtime" l local red "touch=$mib"; then
		as_planned "$on" l
		is "$(said l policy)" local "$on: local"
		is "$(on_node l 0)" $pages "$on: local: every page on the node of its CPUs"
		stop "$runtime" l
	fi

	# What others decided stands: CPUs and nodes of the OCI spec.
	if started "$on" "$runtime" g bind red "touch=1" '.linux.resources.cpu = {cpus: "5-6", mems: "1"}'; then
		as_planned "$on" g
		is "$(effective "$(pid_of g)" cpus)" 5-6 "$on: CPUs that the OCI spec names are kept"
		is "$(effective "$(pid_of g)" mems)" 1 "$on: nodes that the OCI spec names are kept"
		is "$(said g policy)" "bind=static:1" "$on: and bound to"
		stop "$runtime" g
	fi
	refused "$on: nodes that the OCI spec excludes" \
		'placement: container x: class "preferred" wants memory on tiers cxl, but the OCI spec allows nodes 1 only' \
		"$runtime" x preferred red "" '.linux.resources.cpu = {mems: "1"}'
	is "$(weights)" "$before" "$on: no other policy touched the weights"
	stop_all "$on"
done
finish
