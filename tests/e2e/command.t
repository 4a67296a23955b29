#!/bin/bash
# shellcheck disable=SC2013,SC2016,SC2119 # programs of jq and templates in single quotes; words without spaces
# cotenant-hook as a program: options, deadline, closed descriptors, and state directories that must not be used.
. tests/e2e/lib.bash
init_start "the hook as a program" || exit 0
write_policy
write_bundle

# ---- options -------------------------------------------------------------------------------------------------------

usage_error() { # NAME MESSAGE [ARGUMENT…]; MESSAGE is all of it but for the hint
	local name=$1 want=$2 before
	shift 2
	before=$(snapshot)
	"$bin/cotenant-hook" "$@" >"$work/out" 2>"$work/err" </dev/null
	is "$? $(cat "$work/out" "$work/err")" "2 $want" "$name"
	is "$(snapshot)" "$before" "$name: nothing changed"
}
try=$'\nTry cotenant-hook --help, or cotenant-hook(8).'
usage_error "no stage" "cotenant-hook: no stage was given$try"
usage_error "two stages" "cotenant-hook: poststop: one stage is needed, not more$try" createRuntime poststop
usage_error "unknown stage" \
	'cotenant-hook: createruntime: is none of the stages prestart, createRuntime, poststart, poststop' createruntime
usage_error "unknown option" "cotenant-hook: --polici: there is no such option$try" createRuntime --polici x
usage_error "unknown letter" "cotenant-hook: -x: there is no such option$try" createRuntime -xh
usage_error "option without its value" "cotenant-hook: --policy: needs a value$try" createRuntime --policy
for option in --policy --state-dir --root --timeout; do
	usage_error "$option ''" "cotenant-hook: $option: must not be empty$try" $option "" createRuntime
	usage_error "$option=" "cotenant-hook: $option=: must not be empty$try" createRuntime $option=
done
for seconds in 0 -1 nan inf 61 1x; do
	usage_error "--timeout '$seconds'" \
		"cotenant-hook: $seconds: --timeout takes a number of seconds from 0.001 to 60$try" createRuntime --timeout "$seconds"
done
red=$'x\e[31m'
usage_error "terminal codes for a stage" \
	'cotenant-hook: x\x1b[31m: is none of the stages prestart, createRuntime, poststart, poststop' "$red"
usage_error "terminal codes for a second stage" 'cotenant-hook: x\x1b[31m: one stage is needed, not more'"$try" poststop "$red"
usage_error "terminal codes for an option" 'cotenant-hook: --x\x1b[31m: there is no such option'"$try" "--$red"
usage_error "terminal codes for a number" \
	'cotenant-hook: x\x1b[31m: --timeout takes a number of seconds from 0.001 to 60'"$try" poststop --timeout "$red"
is "$(cd "$work" && "$bin/cotenant-topology" --state-dir "" 2>&1 | head -n 1; ls -d "$work/containers" "$work/topology" 2>/dev/null)" \
	"usage: cotenant-topology [--root DIR] [--state-dir DIR] [--refresh | --print]" "cotenant-topology: --state-dir ''"
is "$("$bin/cotenant-hook" --help 2>&1 </dev/null | head -n 1)" \
	"usage: cotenant-hook STAGE [--policy FILE] [--state-dir DIR] [--root DIR] [--timeout SECONDS]" "--help"

mkdir "$work/root"
for stage in createRuntime poststop; do
	state red "$init" "$bundle" | refused "--root DIR refuses to act: $stage" \
		"cotenant-hook: $stage: root directory $work/root: is not this machine's, and nothing is changed elsewhere" \
		"$stage" --root "$work/root"
done
is "$(ls -A "$work/root")" "" "--root DIR: nothing was written there"
state red "$init" "$bundle" | refused "--root that is missing" \
	"cotenant-hook: createRuntime: root directory $work/none: No such file or directory" createRuntime --root "$work/none"

# ---- the deadline --------------------------------------------------------------------------------------------------

# Ends by itself: `hook` would report 137 of a hook that had to be killed.
mkfifo "$work/never"
exec 7<>"$work/never"
refused "standard input that is never closed" \
	"cotenant-hook: createRuntime: container state: standard input was not closed in time" createRuntime --timeout 0.3 <&7
state red "$init" "$bundle" >&7
refused "standard input that is never closed after a whole state" \
	"cotenant-hook: createRuntime: container state: standard input was not closed in time" createRuntime --timeout 0.3 <&7
exec 7<&-

# The machine must be looked at anew when there is no cache: by a helper, which is not trusted to end.
facts="cotenant-hook: container red: createRuntime: facts: the machine's topology cannot be found out"
helper() { # NAME REASON SHELL-SCRIPT
	printf '#!/bin/sh\n%s\n' "$3" >"$work/helper" && chmod +x "$work/helper"
	mv "$work/helper" "$bin/cotenant-topology"
	state red "$init" "$bundle" | refused "helper that $1" "$facts: $2" createRuntime --timeout 1
}
state red "$init" "$bundle" | hook createRuntime
over red | hook poststop
rm "$state_dir/topology"
cp "$bin/cotenant-topology" "$work/topology"
helper "does not end" "cotenant-topology did not finish in time and was killed" "exec sleep 600"
helper "fails in silence" "cotenant-topology failed with status 3 and said nothing" "exit 3"
helper "says why it fails" 'why it failed \x1b[31m' "echo first >&2; printf 'why it failed \\033[31m\n' >&2; exit 1"
helper "is killed" "cotenant-topology was killed by signal 9 (Killed)" "kill -9 \$\$"
helper "writes nothing" "$state_dir/topology: No such file or directory" "exit 0"
mv "$work/topology" "$bin/cotenant-topology"

# ---- descriptors -----------------------------------------------------------------------------------------------------

state red "$init" "$bundle" >"$work/red"
bare() { # STAGE; standard descriptors as the caller left them
	"$bin/cotenant-hook" "$1" --policy "${2-$policy}" --state-dir "$state_dir"
}
ids() { (cd "$state_dir/containers" && echo *); }
before=$(snapshot)
is "$(bare createRuntime <&- 2>&1)" \
	"cotenant-hook: createRuntime: container state: empty: the runtime gave nothing on standard input" "standard input closed"
(bare createRuntime /nowhere <"$work/red" >&- 2>&-)
is $? 1 "standard output and error closed: a failure is one"
bare createRuntime /nowhere <"$work/red" >/dev/full 2>&1
is $? 1 "standard error full: a failure is one"
is "$(snapshot)" "$before" "and nothing changed"
(bare createRuntime <"$work/red" >&- 2>&-)
is "$? $(ids)" "0 red.json" "standard output and error closed: placed"
over red >/dev/null
(bare poststop <"$work/red" >&- 2>&-)
is "$? $(ids)" "0 *" "standard output and error closed: forgotten"
bare createRuntime /nowhere <"$work/red" 2>&1 | true
is "${PIPESTATUS[0]}" 1 "standard error that nobody reads: a failure is one"
# Nothing that outlives the hook may hold the runtime's pipes: the end of file must come.
is "$(timeout 20 "$bin/cotenant-hook" createRuntime --policy "$policy" --state-dir "$state_dir" <"$work/red" 2>&1 | cat; echo "${PIPESTATUS[0]}")" \
	0 "the pipe of a runtime is closed when the hook ends"
over red >/dev/null
bare poststop <"$work/red"

# ---- what a runtime may have left behind ---------------------------------------------------------------------------------

# Nothing that is inherited may end the hook half-way, or keep it from ending.
before=$(snapshot)
like "$(ulimit -f 0; bare createRuntime <"$work/red" 2>&1; echo "$?")" \
	"^cotenant-hook: container red: createRuntime: ledger: $state_dir/.*: File too large$" "a limit on the size of files"
is "$(snapshot)" "$before" "a limit on the size of files: nothing changed"
mkfifo "$work/full"
exec 8<>"$work/full"
timeout 5 dd if=/dev/zero of="$work/full" oflag=nonblock bs=4096 2>/dev/null
timeout -s KILL 20 env --block-signal=ALRM "$bin/cotenant-hook" createRuntime --policy /nowhere --state-dir "$state_dir" \
	--timeout 0.5 <"$work/red" 2>&8
is $? 1 "SIGALRM blocked, and nobody reads what the hook says: it ends all the same"
exec 8>&-

# Without --timeout: two seconds, whatever keeps the hook waiting.
mkfifo "$work/open"
exec 8<>"$work/open"
timeout -s KILL 15 "$bin/cotenant-hook" createRuntime --policy "$policy" --state-dir "$state_dir" <&8 >"$work/out" 2>&1
is "$? $(<"$work/out")" \
	"1 cotenant-hook: createRuntime: container state: standard input was not closed in time" "the deadline that nobody named"
exec 8>&-

# ---- a step that fails -------------------------------------------------------------------------------------------------

# The cpuset is written by then: it must be as before, and the entry gone. The kernel allows one tracer only.
cpuset() { cat "$cgroup/cpuset.cpus"; }
if [ "$(nproc --all)" -gt 1 ] && strace -o /dev/null true 2>/dev/null; then
	strace -qq -o /dev/null -p "$init" &
	tracer=$!
	is_traced() { ! grep -q '^TracerPid:.0$' "/proc/$init/status"; }
	wait_for is_traced
	traced="thread $init of process $init is traced by process $tracer (strace), and a thread has one tracer: detach that one first"
	fill_cpuset "$cgroup"
	state red "$init" "$bundle" | refused "a step that fails is undone" \
		"cotenant-hook: container red: createRuntime: guard: $traced" createRuntime
	before=$(cpuset)
	write_policy '.on_error = "admit"'
	state red "$init" "$bundle" | hook createRuntime
	is "$status $out$err" "0 " "on_error admit: a step that fails is left out"
	is "$(jq -r '[.state, .plan.mechanism, .plan.guard, .why] | join(" ")' "$state_dir/containers/red.json")" \
		"degraded cores 0 guard: not applied: $traced" "on_error admit: the ledger says which, and the other steps hold"
	ok "on_error admit: the cpuset is written" test "$(cpuset)" != "$before"
	over red | hook poststop
	write_policy
	kill "$tracer"
	wait "$tracer" 2>/dev/null
else
	skip "strace and two CPUs" "a step that fails is undone"
fi

# ---- what is in the state directory ------------------------------------------------------------------------------------

echo '{"key": "no such machine"' >"$state_dir/topology"
state red "$init" "$bundle" | hook createRuntime
is "$status $out$err $(ids)" "0  red.json" "a damaged topology cache is made anew"
is "$(jq -s 'length > 0' "$state_dir/topology")" true "and is right again"
echo '{"id": ' >"$state_dir/containers/green.json"
head -c 1000 /dev/urandom >"$state_dir/index"
over red | hook poststop
is "$status $out$err" "0 " "a damaged entry and index of others do not stop poststop"
state red "$init" "$bundle" | hook createRuntime
is "$status $out$err" "0 " "nor createRuntime"
over red | hook poststop

# ---- state directories -------------------------------------------------------------------------------------------------

ledger="cotenant-hook: container red: createRuntime: ledger: state directory $state_dir"
bad_state_dir() { # NAME REASON
	state red "$init" "$bundle" | refused "state directory: $1" "$ledger: $2" createRuntime
	rm -rf "$state_dir"
}
rm -rf "$state_dir"
: >"$state_dir"
bad_state_dir "a file" "is no directory (symbolic links are not followed); give another with --state-dir"
mkdir "$work/elsewhere" && ln -s "$work/elsewhere" "$state_dir"
bad_state_dir "a symbolic link" "is no directory (symbolic links are not followed); give another with --state-dir"
is "$(ls -A "$work/elsewhere")" "" "state directory: nothing behind the link"
for mode in 0777 0720; do
	mkdir "$state_dir" && chmod "$mode" "$state_dir"
	bad_state_dir "mode $mode" "mode $mode lets others plant entries: chmod go-w $state_dir, after a look at what is in it"
done
if [ "$(id -u)" = 0 ]; then
	mkdir "$state_dir" && chown 65534 "$state_dir"
	bad_state_dir "another's" "belongs to user 65534, who could plant entries: remove it, or give another with --state-dir"
else
	skip "root" "state directory: another's"
fi
state red "$init" "$bundle" | refused "state directory: cannot be created" \
	"cotenant-hook: container red: createRuntime: ledger: state directory /proc/none/x: cannot be created: No such file or directory; give another with --state-dir" \
	createRuntime --state-dir /proc/none/x
state red "$init" "$bundle" | refused "state directory: below a file" \
	"cotenant-hook: container red: createRuntime: ledger: state directory $policy/x: is no directory (symbolic links are not followed); give another with --state-dir" \
	createRuntime --state-dir "$policy/x"
state red "$init" "$bundle" | refused "state directory: poststop says so too" \
	"cotenant-hook: container red: poststop: state directory /proc/none/x: cannot be created: No such file or directory; give another with --state-dir" \
	poststop --state-dir /proc/none/x
