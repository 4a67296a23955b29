#!/bin/bash
# shellcheck disable=SC2016,SC2119 # programs of jq; functions of lib.bash that take options
# A start that is refused at one of its later steps, and a process that lives on: every thread has the CPUs, the nodes
# and the memory policy that it had, and so have the neighbours and the machine.
# shellcheck source=tests/e2e/lib.bash
. tests/e2e/lib.bash
missing=
[ "$(cat /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list 2>/dev/null | sort -u | wc -l)" -gt 1 ] ||
	missing="a machine with two cores"
[ "$(id -u)" = 0 ] || missing="root"
strace -o /dev/null true 2>/dev/null || missing="strace"
[ -e /proc/self/numa_maps ] || missing="numa_maps"
# Two threads, and a memory policy that is neither the default nor a class's: interleave, without flags.
cc -x c -o "$work/parked" - -pthread 2>/dev/null <<-'END' || missing="a C compiler"
	#include <pthread.h>
	#include <sys/syscall.h>
	#include <unistd.h>
	static void *park(void *p) { for (;;) pause(); return p; }
	int main(void)
	{
		pthread_t t;
		unsigned long nodes = 1;

		if (syscall(SYS_set_mempolicy, 3, &nodes, 64UL) < 0 || pthread_create(&t, NULL, park, NULL) != 0)
			return 1;
		park(NULL);
	}
END
if [ -n "$missing" ]; then
	skip "$missing" "a refused start is undone"
	exit 0
fi
chmod 711 "$work"

neighbour=
finish() {
	[ -z "$neighbour" ] || { kill -9 "$neighbour" && wait "$neighbour"; } 2>/dev/null
	find "$(cpuset_mount)/cotenant-undone-$$" -depth -type d 2>/dev/null | while read -r dir; do wait_for rmdir "$dir"; done
	clean_up
}
trap finish EXIT

# As nobody, who may not install a filter without no_new_privs.
init_start "a refused start is undone" setpriv --reuid 65534 --regid 65534 --clear-groups "$work/parked" || exit 0
has_parked() { [ "$(echo "/proc/$init/task"/*)" != "/proc/$init/task/$init" ] && [ "$(memory_policy "/proc/$init")" = interleave:0 ]; }
ok "the init has two threads, and a memory policy of its own" wait_for has_parked

dir=$(cpuset_mount)/cotenant-undone-$$
mkdir "$dir" && fill_cpuset "$dir"
# shellcheck disable=SC2217 # it must not hold the pipe that the test's lines go to
busybox sleep 600 </dev/null >/dev/null 2>&1 &
neighbour=$!
echo "$neighbour" >"$dir/cgroup.procs"

policy_with() { # [JQ-EDIT]
	write_policy '.node.weights = {dram: 7}
		| .classes = {
			plain: {isolation: {mode: "none"}, cpu: {span: "machine"}},
			own: {isolation: {mode: "cores", guard: ["memory"]}, cpu: {span: "machine", exclusive: true, count: 0.5},
				memory: {policy: "bind", nodes: "0"}}}
		| .rules = [{match: {id: "red"}, tenant: "red", class: "own"}, {match: {}, tenant: "${id}", class: "plain"}]'"${1:+ | $1}"
}
write_bundle
policy_with
state n "$neighbour" "$bundle" | hook createRuntime
is "$status $out$err" "0 " "a neighbour is placed"
all=$(effective_cpus "$dir")
# From its first move on, its entry names its CPUs.
state red "$init" "$bundle" | hook createRuntime

# What `refused` compares, and that it was changed meanwhile: the calls by which the hook did it.
undone() { # NAME MESSAGE
	local name=$1 writes
	fill_cpuset "$cgroup"
	state red "$init" "$bundle" | refused "$name" "cotenant-hook: container red: createRuntime: $2" createRuntime
	is "$(effective_cpus "$dir") $(jq -r .plan.cpus "$state_dir/containers/n.json")" "$all $all" "$name: the neighbour has all CPUs, and the ledger says so"
	# Once more, to see that the steps before it were taken: otherwise nothing was undone.
	state red "$init" "$bundle" | strace -qq -f -e trace=openat,write -o "$work/trace" \
		"$bin/cotenant-hook" createRuntime --policy "$policy" --state-dir "$state_dir" >"$work/out" 2>&1
	writes=$(grep -A1 -E 'openat\(.*"cpuset\.cpus", O_WRONLY' "$work/trace" | grep -c 'write(')
	is "$writes" 4 "$name: its own cpuset and the neighbour's were written, and written back"
}

undone "the guard" "guard: guard of process $init cannot be installed: the process has neither no_new_privs nor CAP_SYS_ADMIN in its user namespace"
policy_with '.classes.own.memory = {policy: "preferred", nodes: "0"}'
undone "the guard, after another memory policy" "guard: guard of process $init cannot be installed: the process has neither no_new_privs nor CAP_SYS_ADMIN in its user namespace"
if [ -d /sys/kernel/mm/mempolicy/weighted_interleave ]; then
	policy_with '.classes.own.memory = {policy: "weighted-interleave", nodes: "0"}'
	undone "the guard, after weights" "guard: guard of process $init cannot be installed: the process has neither no_new_privs nor CAP_SYS_ADMIN in its user namespace"
else
	skip "weighted interleave (Linux 6.9)" "the guard, after weights"
fi

policy_with
strace -qq -o /dev/null -p "$init" &
tracer=$!
is_traced() { ! grep -q '^TracerPid:.0$' "/proc/$init/status"; }
wait_for is_traced
undone "the memory policy" "memory policy: thread $init of process $init is traced by process $tracer (strace), and a thread has one tracer: detach that one first"
kill "$tracer"
wait "$tracer" 2>/dev/null

# The last write of the entry, when all else is done: the disk is full. Here without a guard, which nothing takes back.
policy_with '.classes.own.isolation.guard = false'
tracing="-e inject=renameat:error=ENOSPC:when=4"
fill_cpuset "$cgroup"
state red "$init" "$bundle" | refused "the result" \
	"cotenant-hook: container red: createRuntime: ledger: $state_dir/containers/red.json: cannot be written: No space left on device" createRuntime
tracing=

# The kernel lets no cpuset of v1 shrink below its children. One of v2 shrinks always.
if [ -e "$dir/cpuset.effective_cpus" ]; then
	mkdir "$dir/child" && fill_cpuset "$dir/child"
	state red "$init" "$bundle" | refused "the neighbours" \
		"cotenant-hook: container red: createRuntime: neighbours: must leave the cores that red takes: container n: cgroup /${dir##*/}: cpuset.cpus: the kernel refused 1: a child cgroup or a deadline task needs more; the parent cgroup has $all" createRuntime
	rmdir "$dir/child"
fi
