#!/bin/bash
# shellcheck disable=SC2016,SC2119 # programs of jq and templates in single quotes
# containerd itself with the example's configuration, and containers of the example's base spec through it and its shim.
# ctr(1) makes no containers of the CRI, so what the CRI adds to the spec is put in here: a root, a program, a cgroup, and
# the annotations.

# containerd keeps its shims' sockets and runc's states at one place, whatever it is told.
if [ -z "${OWN_MOUNTS-}" ] && unshare -m true 2>/dev/null; then
	OWN_MOUNTS=1 exec unshare -m sh -c 'mkdir -p /run/containerd && mount -t tmpfs none /run/containerd && exec "$0"' "$0"
fi
. tests/e2e/lib.bash
missing=
for program in containerd ctr runc busybox jq; do
	command -v "$program" >/dev/null || missing=$program
done
[ "$(id -u)" = 0 ] && [ -n "${OWN_MOUNTS-}" ] || missing="root"
[ -n "$(cpuset_mount)" ] || missing="a cpuset hierarchy"
if [ -n "$missing" ]; then
	skip "$missing" "containerd"
	exit 0
fi
parent=cotenant-containerd-$$
daemon=

of_daemon() { timeout -s KILL 120 ctr --address "$work/socket" --namespace cotenant "$@"; }
start_daemon() {
	containerd --config "$work/config.toml" --root "$work/root" --state "$work/run" --address "$work/socket" \
		</dev/null >"$work/containerd.log" 2>&1 &
	daemon=$!
	wait_for of_daemon version >"$work/out"
}
stop_daemon() {
	[ -z "$daemon" ] || { kill "$daemon" && wait "$daemon"; } 2>/dev/null
	daemon=
}
parents_gone() {
	local ours=(find /sys/fs/cgroup -depth -type d -path "*/$parent*")
	"${ours[@]}" -exec rmdir {} + 2>/dev/null
	[ -z "$("${ours[@]}" 2>/dev/null)" ]
}
remove_all() {
	if [ -n "$daemon" ]; then
		of_daemon task kill --signal KILL red
		of_daemon task delete --force red
	fi >/dev/null 2>&1
	stop_daemon
	wait_for parents_gone || echo "# cgroup $parent is left behind"
	clean_up
}
trap remove_all EXIT

# ---- the configuration -------------------------------------------------------------------------------------------------

jq --arg hook "$bin/cotenant-hook" --arg policy "$policy" --arg dir "$state_dir" \
	'(.hooks[][] | select(.path == "/usr/local/sbin/cotenant-hook")) |= (.path = $hook
		| .args += ["--policy", $policy, "--state-dir", $dir, "--timeout", "50"] | .timeout = 60)' \
	oci-examples/containerd/base_runtime_spec.json >"$work/base.json"
configure() { # BASE-SPEC
	sed "s|/etc/containerd/cotenant-base-spec.json|$1|" oci-examples/containerd/config-1.7.toml >"$work/config.toml"
	printf '[plugins."io.containerd.internal.v1.opt"]\n  path = "%s/opt"\n' "$work" >>"$work/config.toml"
}
cri_status() { of_daemon plugins ls | awk '$2 == "cri" { print $NF }'; }

configure "$work/nowhere.json"
start_daemon
is "$?" 0 "containerd starts"
is "$(cri_status)" error "the CRI reads the file that base_runtime_spec names: without it, it does not start"
like "$(<"$work/containerd.log")" "$work/nowhere.json" "and says so"
stop_daemon
configure "$work/base.json"
start_daemon
is "$?" 0 "containerd starts with the example"
is "$(cri_status)" ok "with the example the CRI starts"

# ---- containers of the base spec -------------------------------------------------------------------------------------------

mkdir -p "$work/rootfs/bin" "$work/rootfs/proc" "$work/rootfs/sys" "$work/rootfs/dev" "$work/rootfs/run"
cp "$(command -v busybox)" "$work/rootfs/bin/busybox"
jq --arg root "$work/rootfs" --arg cgroup "/$parent/red" '.root.path = $root | .linux.cgroupsPath = $cgroup
	| .process.args = ["/bin/busybox", "sleep", "6000"]
	| .annotations = {"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": "p1",
		"io.kubernetes.cri.sandbox-namespace": "shop"}' "$work/base.json" >"$work/spec.json"
launch() {
	of_daemon run --detach --config "$work/spec.json" red </dev/null >"$work/out" 2>&1
	status=$? err=$(sed 's/\\"/"/g' "$work/out")
}
entry() { jq -r "$1" "$state_dir/containers/red.json"; }
ids() { (cd "$state_dir/containers" && echo *); }

own='.rules = [{match: {annotation: {"io.kubernetes.cri.sandbox-namespace": "*"}},
	tenant: "${annotation:io.kubernetes.cri.sandbox-namespace}", class: "own"}]
	| .classes.own += {cpu: {span: "machine", count: 1}, memory: {policy: "bind", tiers: ["dram"]}}'
write_policy "$own"
launch
is "$status $err" "0 " "a container starts"
pid=$(of_daemon task ls | awk '$1 == "red" { print $2 }')
is "$(entry '[.state, .started, .tenant, .plan.mechanism] | join(" ")')" "done true shop cores" "its tenant is its namespace"
cpus=$(entry .plan.cpus)
dir=$(find "$(cpuset_mount)" -type d -path "*/$parent/red")
is "$(cat "$dir/cgroup.procs") $(effective_cpus "$dir")" "$pid $cpus" "its cpuset holds the planned CPUs"
is "$([ "$cpus" != "$(machine_cpus)" ]; echo $?)" 0 "which are not the whole machine"
is "$(sed -n 's/^Seccomp_filters:.//p' "/proc/$pid/status")" 1 "the guard is on"
if [ -r "/proc/$pid/numa_maps" ]; then
	is "$(awk '{ print $2 }' "/proc/$pid/numa_maps" | sort -u)" "bind=static:$(entry .plan.memory_nodes)" "it has its memory policy"
else
	skip "numa_maps" "it has its memory policy"
fi
is "$(of_daemon task exec --exec-id 1 red /bin/busybox sh -c 'grep Seccomp_filters: /proc/self/status; grep Cpus_allowed_list: /proc/self/status')" \
	"Seccomp_filters:	0"$'\n'"Cpus_allowed_list:	$cpus" "exec: has the container's CPUs and no guard"

of_daemon task kill --signal KILL red
ended() { [ "$(of_daemon task ls | awk '$1 == "red" { print $3 }')" = STOPPED ]; }
ok "it ends" wait_for ended
of_daemon task delete red >/dev/null 2>&1
is "$(ids)" '*' "containerd's delete of the task forgets it"
of_daemon container delete red

write_policy "$own | .classes.own.cpu.count = 4096"
launch
like "$status $err" '^1 ctr: failed to create shim task: OCI runtime create failed: runc create failed: .*stderr: cotenant-hook: container red: createRuntime: placement: no room for container red: class "own" wants whole cores for 4096\.00 CPUs' \
	"refused: the reason comes through shim and containerd"
is "$(of_daemon task ls | grep -c red) $(ids) $(ls "$state_dir/groups")" "0 * " "refused: no task and no entry"
