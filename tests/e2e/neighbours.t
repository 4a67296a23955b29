#!/bin/bash
# shellcheck disable=SC2016,SC2119 # programs of jq; functions of lib.bash that take options
# Containers that own their cores, and those that must keep off them: whatever fails or dies in between, what the
# ledger says of a cpuset is what the kernel says, or the next hook makes it so.
# shellcheck source=tests/e2e/lib.bash
. tests/e2e/lib.bash
missing=
[ "$(cat /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list 2>/dev/null | sort -u | wc -l)" -gt 1 ] ||
	missing="a machine with two cores"
[ -z "$missing" ] && [ -z "$(cpuset_mount)" ] && missing="a cpuset hierarchy"
[ -z "$missing" ] && ! strace -o /dev/null true 2>/dev/null && missing="strace"
if [ -n "$missing" ]; then
	skip "$missing" "neighbours"
	exit 0
fi

declare -A pids
dir_of() { echo "$(cpuset_mount)/cotenant-nb-$$-$1"; }
park() { # ID [PROGRAM…]: a process in a cpuset of its own
	local dir id=$1
	shift
	[ $# -gt 0 ] || set -- busybox sleep 600
	dir=$(dir_of "$id")
	mkdir -p "$dir" && fill_cpuset "$dir"
	# shellcheck disable=SC2217 # it must not hold the pipe that the test's lines go to
	"$@" </dev/null >/dev/null 2>&1 &
	pids[$id]=$!
	echo $! >"$dir/cgroup.procs"
}
stop() { # ID…: as a runtime does, poststop included
	local id
	for id in "$@"; do
		{ kill -9 "${pids[$id]}" && wait "${pids[$id]}"; } 2>/dev/null
		run "$id" poststop
		find "$(dir_of "$id")" -depth -type d 2>/dev/null | while read -r sub; do wait_for rmdir "$sub"; done
		unset "pids[$id]"
	done
}
stop_all() {
	stop "${!pids[@]}" 2>/dev/null
	clean_up
}
trap stop_all EXIT
run() { # ID STAGE [OPTION…]
	local text
	text=$(state "$1" "${pids[$1]-1}" "$bundle")
	# shellcheck disable=SC2086 # a list of words
	timeout -s KILL 60 ${tracing:+strace -qq -o /dev/null $tracing} "$bin/cotenant-hook" "$2" --policy "$policy" \
		--state-dir "$state_dir" --timeout 30 "${@:3}" <<<"$text" >"$work/out" 2>"$work/err.$1"
	status=$? err=$(<"$work/err.$1")
}
cpus_of() { cat "$(dir_of "$1")/cpuset.cpus"; }
entry() { jq -r "$2" "$state_dir/containers/$1.json" 2>/dev/null; }
all=$(machine_cpus)
disjoint() { ! grep -qwE "$(expand "$(cpus_of "$1")" | paste -sd '|')" <(expand "$(cpus_of "$2")"); }
expand() { tr , '\n' <<<"$1" | while IFS=- read -r from to; do seq "$from" "${to:-$from}"; done; }

# Ids that begin with n share, those that begin with v own a core.
two_classes() { # [JQ-EDIT]
	write_policy '.classes = {
			plain: {isolation: {mode: "none"}, cpu: {span: "machine"}},
			own: {isolation: {mode: "cores", guard: false}, cpu: {span: "machine", count: 0.5}}}
		| .rules = [{match: {id: "v*"}, tenant: "${id}", class: "own"}, {match: {}, tenant: "${id}", class: "plain"}]'"${1:+ | $1}"
}
write_bundle
two_classes

# ---- a hook that dies, or fails, while it moves a neighbour ------------------------------------------------------------

park n
run n createRuntime
is "$status $err $(cpus_of n)" "0  $all" "the neighbour has the whole machine"
for call in renameat:2 renameat:3 write:3 write:4 write:5 write:6; do
	on="killed at ${call%:*}(2) number ${call#*:}"
	park v1
	tracing="-e inject=${call%:*}:signal=KILL:when=${call#*:}"
	run v1 createRuntime
	tracing=
	is "$status" 137 "$on"
	stop v1
	park v2
	run v2 createRuntime
	is "$status $err" "0 " "$on: the next one is placed"
	ok "$on: and the neighbour is off its core ($(cpus_of n), $(cpus_of v2))" disjoint n v2
	is "$(entry n .plan.cpus)" "$(cpus_of n)" "$on: as the ledger says"
	stop v2
	is "$(cpus_of n) $(entry n .plan.cpus) $(entry n .unsynced)" "$all $all false" "$on: in the end it has everything again"
done
for when in 1 2 4; do # the third takes a mark off, which the next one can do as well
	on="no space at renameat(2) number $when"
	park v1
	tracing="-e inject=renameat:error=ENOSPC:when=$when"
	run v1 createRuntime
	tracing=
	like "$status $err" '^1 cotenant-hook: container v1: createRuntime: ledger: .*No space left on device' "$on: refused"
	stop v1
	park v2
	run v2 createRuntime
	is "$status $err" "0 " "$on: the next one is placed"
	ok "$on: and the neighbour is off its core" disjoint n v2
	stop v2
	is "$(cpus_of n) $(entry n .plan.cpus)" "$all $all" "$on: in the end it has everything again"
done

# ---- a neighbour that cannot be moved ----------------------------------------------------------------------------------

# The kernel lets no cpuset of v1 shrink below its children. One of v2 shrinks always.
if [ -e "$(cpuset_mount)/cpuset.cpus" ]; then
	mkdir "$(dir_of n)/child" && cat "$(dir_of n)/cpuset.cpus" >"$(dir_of n)/child/cpuset.cpus"
	park v1
	run v1 createRuntime
	like "$err" "^cotenant-hook: container v1: createRuntime: neighbours: must leave the cores that v1 takes: container n: cgroup .*: cpuset.cpus: the kernel refused .*a child cgroup or a deadline task needs more" \
		"a neighbour that cannot be moved: refused"
	stop v1
	two_classes '.on_error = "admit"'
	park v1
	run v1 createRuntime
	is "$status $(entry v1 '[.state, .plan.mechanism, .plan.exclusive] | join(" ")')" "0 degraded none false" \
		"a neighbour that cannot be moved, on_error admit: starts, and owns nothing"
	is "$(entry n .plan.cpus)" "$all" "on_error admit: the neighbour has everything, also in the ledger"
	two_classes
	park v2
	run v2 createRuntime
	is "$status" 1 "the next owner does not believe that the neighbour has moved"
	stop v1 v2
	rmdir "$(dir_of n)/child"
	park v2
	run v2 createRuntime
	is "$status $err" "0 " "and is placed once it can"
	ok "and alone" disjoint n v2
	stop v2
	is "$(cpus_of n)" "$all" "the neighbour has everything again"
fi

# ---- a neighbour that is being placed meanwhile -------------------------------------------------------------------------

# n2 has decided to stay where it is, v1 decides that it must not, n2 writes its result.
park n2
park v1
two_classes '.classes.plain.isolation.guard = ["memory"]'
(
	tracing="-e inject=ptrace:delay_enter=1500000:when=1"
	run n2 createRuntime
	echo "$status $err" >"$work/n2"
) &
placing=$!
has_intent() { [ "$(entry n2 .state)" = intent ]; }
wait_for has_intent
run v1 createRuntime
is "$status $err" "0 " "an owner comes while another is being placed"
wait "$placing"
is "$(<"$work/n2")" "0 " "both are placed"
ok "and apart ($(cpus_of n2), $(cpus_of v1))" disjoint n2 v1
is "$(entry n2 .plan.cpus)" "$(cpus_of n2)" "and the ledger says where"
stop v1 n2
two_classes

# ---- what is taken for dead --------------------------------------------------------------------------------------------

# A program whose main thread ends while another runs on is no dead one.
if cc -x c -o "$work/headless" - -pthread 2>/dev/null <<-'END'; then
	#include <pthread.h>
	#include <unistd.h>
	static void *other(void *p) { for (;;) pause(); return p; }
	int main(void) { pthread_t t; pthread_create(&t, 0, other, 0); pause(); pthread_exit(0); }
	#include <signal.h>
	static void on(int s) { (void) s; }
	__attribute__((constructor)) static void first(void) { signal(SIGUSR1, on); }
END
	park v1 "$work/headless"
	run v1 createRuntime
	is "$status $err" "0 " "a program with two threads owns a core"
	# The signal goes to the main thread alone, whose pause() it ends.
	kill -USR1 "${pids[v1]}"
	is_headless() {
		kill -USR1 "${pids[v1]}"
		grep -q '^State:.Z' "/proc/${pids[v1]}/status"
	}
	wait_for is_headless
	park v2
	run v2 createRuntime
	[ "$status" != 0 ] || ok "its main thread has ended: nobody gets its core" disjoint v1 v2
	is "$(entry v1 .state)" "done" "its main thread has ended: it is on record"
	stop v2 v1
else
	skip "a C compiler" "a program whose main thread has ended"
fi

# ---- one id ------------------------------------------------------------------------------------------------------------

park v1
park v2
first=${pids[v1]}
run v1 createRuntime
mine=$(cpus_of v1)
# A second container of the id v1, and the runtime cleans up after the refusal as runc does: with poststop.
state v1 "${pids[v2]}" "$bundle" | hook createRuntime
like "$err" "ledger: another container of this id runs \\(process $first\\)" "a second container of one id is refused"
state v1 0 /elsewhere | hook poststop
is "$status $(entry v1 .pid) $(cpus_of v1)" "0 $first $mine" "and its poststop takes nothing from the first"
run v2 createRuntime
[ "$status" != 0 ] || ok "whose core stays its own" disjoint v1 v2
stop v2 v1

# Two hooks at once with one id: one wins, and has what it was given.
for round in 1 2 3 4 5 6; do
	park v1
	park v2
	for other in v1 v2; do
		state same "${pids[$other]}" "$bundle" | (hook createRuntime; echo "$status" >"$work/status.$other") &
	done
	wait %+ %- 2>/dev/null
	wait_for test -s "$work/status.v1"
	wait_for test -s "$work/status.v2"
	is "$(cat "$work"/status.v[12] | sort | paste -sd ' ')" "0 1" "round $round: one id, two hooks: one is refused"
	winner=$([ "$(<"$work/status.v1")" = 0 ] && echo v1 || echo v2)
	is "$(entry same .pid) $(entry same .plan.cpus)" "${pids[$winner]} $(cpus_of "$winner")" "round $round: the other is on record"
	rm "$work"/status.v[12]
	kill -9 "${pids[v1]}" "${pids[v2]}"
	wait "${pids[v1]}" "${pids[v2]}" 2>/dev/null
	state same 0 "$bundle" | hook poststop
	stop v1 v2
done

stop n
is "$(ls "$state_dir/containers")" "" "in the end the ledger is empty"
