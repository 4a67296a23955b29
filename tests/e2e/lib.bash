# shellcheck shell=bash
# What the fixture tests share: TAP lines, a place to work, a parked "init", and the assertion that matters most here:
# refused with exactly this line, and nothing changed. Sourced by tests/e2e/*.t, which run from the top:
#
#   . tests/e2e/lib.bash
#   init_start
#   state red "$init" "$bundle" | refused "no policy" "…" createRuntime --policy /nowhere
set -u
shopt -s lastpipe # so that `state … | hook …` sets variables here

bin=${BUILD:-build}
work=$(mktemp -d /tmp/cotenant-e2e.XXXXXX)
state_dir=$work/state
bundle=$work/bundle
policy=$work/policy.json
init=
cgroup=
tracing= # how strace(1) disturbs the next hook
containers=

# ---- TAP ---------------------------------------------------------------------------------------------------------

pass() { echo "ok - $1"; }
skip() { echo "ok - $2 # SKIP $1"; } # WHAT-IS-MISSING NAME
fail() {                             # NAME [WHAT HAPPENED]
	echo "not ok - $1"
	[ -z "${2-}" ] || printf '%s\n' "$2" | sed 's/^/# /'
}
is() { # GOT WANT NAME
	if [ "$1" = "$2" ]; then pass "$3"; else fail "$3" "got:  $1"$'\n'"want: $2"; fi
}
like() { # GOT ERE NAME; some line of GOT matches
	if grep -Eq -- "$2" <<<"$1"; then pass "$3"; else fail "$3" "got:  $1"$'\n'"want: a line like $2"; fi
}
ok() { # NAME COMMAND…
	local name=$1 text
	shift
	if text=$("$@" 2>&1); then pass "$name"; else fail "$name" "$* ended with $?: $text"; fi
}

# ---- a place to work, and no trace of it -------------------------------------------------------------------------

# Copies, so that a process of this test can be told from everybody else's by its program file.
mkdir "$work/bin"
cp "$bin"/cotenant "$bin"/cotenant-hook "$bin"/cotenant-anchor "$bin"/cotenant-topology "$work/bin/" || exit 1
bin=$work/bin

clean_up() {
	local id
	trap - EXIT
	for id in $containers; do
		runc delete --force "$id" >/dev/null 2>&1
	done
	[ -z "$init" ] || { kill -9 "$init" && wait "$init"; } 2>/dev/null
	if [ -n "$cgroup" ]; then
		# A killed process leaves its cgroup a moment later.
		wait_for rmdir "$cgroup" || echo "# $cgroup is left behind"
	fi
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

wait_for() { # COMMAND…: until it succeeds, 10 s at most
	local i
	for ((i = 0; i < 200; i++)); do
		"$@" 2>/dev/null && return 0
		sleep 0.05
	done
	return 1
}

# ---- a container without a runtime -------------------------------------------------------------------------------

# Where cpusets are mounted, version 1 or 2; nothing where they are not.
cpuset_mount() {
	local mount
	mount=$(awk '$3 == "cgroup" && $4 ~ /(^|,)cpuset(,|$)/ { print $2; exit }' /proc/mounts)
	if [ -z "$mount" ]; then
		mount=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
		[ -n "$mount" ] && grep -qw cpuset "$mount/cgroup.controllers" &&
			{ grep -qw cpuset "$mount/cgroup.subtree_control" || echo +cpuset >"$mount/cgroup.subtree_control"; } 2>/dev/null ||
			mount=
	fi
	echo "$mount"
}

first_of() { cat "$1" 2>/dev/null || cat "$2"; } # FILE-OF-V1 FILE-OF-V2
# What the machine has, as a cpuset of either version says it.
machine_cpus() { first_of "$(cpuset_mount)"/cpuset.cpus{,.effective}; }
machine_mems() { first_of "$(cpuset_mount)"/cpuset.mems{,.effective}; }
fill_cpuset() { machine_cpus >"$1/cpuset.cpus" && machine_mems >"$1/cpuset.mems"; } # DIR
effective_cpus() { first_of "$1"/cpuset.effective_cpus "$1"/cpuset.cpus.effective; } # DIR

# A process that waits, in a cpuset of its own: what a runtime has ready when it calls the hook. False, with a SKIP
# line for NAME, where that cannot be had.
init_start() { # NAME [PROGRAM…]
	local mount name=$1
	shift
	[ $# -gt 0 ] || set -- busybox sleep 600
	mount=$(cpuset_mount)
	if [ -z "$mount" ] || ! mkdir "$mount/cotenant-e2e-$$" 2>/dev/null; then
		skip "a cpuset hierarchy that can be written" "$name"
		return 1
	fi
	cgroup=$mount/cotenant-e2e-$$
	fill_cpuset "$cgroup" || fail "$name: a cpuset of its own cannot be filled"
	# shellcheck disable=SC2217 # it must not hold the pipe that the test's lines go to
	"$@" </dev/null >/dev/null 2>&1 &
	init=$!
	echo "$init" >"$cgroup/cgroup.procs"
}

write_policy() { # [JQ-EDIT]: the least policy that places something on any machine, changed
	rm -rf "$policy"
	jq -n '{version: 1, classes: {own: {isolation: {mode: "cores"}, cpu: {count: 1}}},
		rules: [{match: {}, tenant: "${id}", class: "own"}]}'"${1:+ | $1}" >"$policy"
}

write_bundle() { # [JQ-EDIT]
	rm -rf "$bundle"
	mkdir "$bundle"
	jq -n "{ociVersion: \"1.0.2\"} ${1:+| $1}" >"$bundle/config.json"
}

state() { # ID PID BUNDLE
	printf '{"ociVersion": "1.0.2", "id": "%s", "status": "creating", "pid": %s, "bundle": "%s"}' "$1" "$2" "$3"
}

# The state that poststop gets of a container whose process has ended, as far as the ledger can tell: the number is
# another process's by now.
over() { # ID [STATE-DIR]
	local entry=${2-$state_dir}/containers/$1.json
	[ ! -f "$entry" ] || { jq '.start_time = 1' "$entry" >"$work/entry" && cat "$work/entry" >"$entry"; }
	state "$1" "$init" "$bundle"
}

# As the kernel shows it for the first mapping; without a word where it knows none.
memory_policy() { awk 'NR == 1 { print $2 }' "$1/numa_maps" 2>/dev/null; } # /proc/PID[/task/TID]

# ---- the hook ----------------------------------------------------------------------------------------------------

# All that cotenant could have changed. What is in the lock file only names who holds it, and the index is no more than
# the entries say: it may have been written anew.
snapshot() {
	local thread
	echo "state directory"
	if [ -d "$state_dir" ]; then
		(cd "$state_dir" && find . -printf '%p %y %m\n' | sort && find . -type f ! -name lock ! -name index -print0 | sort -z | xargs -0r cksum)
	else
		stat -c '%F %a' "$state_dir" 2>/dev/null
	fi
	if [ -n "$cgroup" ]; then
		echo "cgroup" && grep . "$cgroup/cpuset.cpus" "$cgroup/cpuset.mems" && find "$cgroup" -type d
		echo "init"
		for thread in "/proc/$init/task"/*; do
			grep -E '^(Cpus_allowed_list|Mems_allowed_list|Seccomp|TracerPid|State)' "$thread/status"
			echo "memory policy $(memory_policy "$thread")"
		done
		echo "address space" && cksum <"/proc/$init/maps"
	fi
	echo "weights" && cat /sys/kernel/mm/mempolicy/weighted_interleave/* 2>/dev/null
	echo "processes" && find /proc/[0-9]*/exe -lname "$bin/*" 2>/dev/null
}

# Runs the hook with the standard input of the caller: sets status, out, err.
hook() { # STAGE [OPTION…]; policy and state directory are added
	# shellcheck disable=SC2086 # options, or none
	timeout -s KILL 30 ${tracing:+strace -qq -o /dev/null $tracing} \
		"$bin/cotenant-hook" --policy "$policy" --state-dir "$state_dir" "$@" >"$work/out" 2>"$work/err"
	status=$?
	out=$(<"$work/out") err=$(<"$work/err")
}

# The hook must end with 1, say exactly MESSAGE, and leave everything as it was.
refused() { # NAME MESSAGE STAGE [OPTION…]
	local name=$1 message=$2 before after
	shift 2
	before=$(snapshot)
	hook "$@"
	after=$(snapshot)
	if [ "$status" != 1 ] || [ -n "$out" ]; then
		fail "$name" "status $status, stdout: $out"$'\n'"stderr: $err"
	elif [ "$err" != "$message" ]; then
		fail "$name" "says:  $err"$'\n'"wants: $message"
	elif [ "$before" != "$after" ]; then
		fail "$name: nothing changed" "$(diff <(echo "$before") <(echo "$after"))"
	else
		pass "$name"
	fi
}
