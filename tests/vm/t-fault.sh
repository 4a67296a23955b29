#!/bin/sh
# Guest script: the hook is killed (SIGKILL) after each of its steps. The runtime must report a failure, the ledger must
# tell what may be half done, and whoever comes next must clean up: another container's hook, or poststop.
set -u
build=$PWD/build/fault
# shellcheck source=tests/vm/cotenant.sh
. tests/vm/cotenant.sh
build=$PWD/build/fault hook=$PWD/build/fault/cotenant-hook
write_policy
before=$(weights)

poststop() { # ID [OPTION]...
	poststop_id=$1
	shift
	# shellcheck disable=SC2086 # options
	echo "{\"ociVersion\": \"1.0.2\", \"id\": \"$poststop_id\", \"status\": \"stopped\"}" |
		"$hook" poststop --policy "$policy" --state-dir "$state" $hook_options "$@"
}

# Nothing of container v, whose hook died, is left; the neighbour n has what it had.
cleaned() { # WHAT
	is "$(entry_of v .state)" "" "$1: the ledger has no entry of the dead container"
	is "$(anchor_of victim)" "" "$1: its group is off the record"
	is "$(anchors | grep -vc "^anchor $(anchor_of neighbour)\$")" "${2-0}" "$1: no orphaned anchor runs"
	is "$(weights)" "$before" "$1: the interleave weights are what they were"
	ok "$1: no saved weights are kept" [ ! -e "$state/weights.json" ]
	is "$(effective "$(pid_of n)" cpus)" 0-7 "$1: the neighbour runs on the whole machine again"
	is "$(entry_of n .plan.cpus)" 0-7 "$1: and the ledger says so"
}

# poststop is not wired: what the hook left is looked at before anybody cleans up.
unwired='.hooks |= {createRuntime: .createRuntime}'

after_create() { # RUNTIME FAULT
	on="fault $1 $2"
	bundle v everything victim "" "$(wired --fault "$2")" "$unwired"
	if launch "$1" v; then
		fail "$on: the runtime reports that the hook was killed" "it started the container: $(log v)"
	else
		pass "$on: the runtime reports that the hook was killed"
	fi
	"$1" delete --force v >/dev/null 2>&1 # what a failed start leaves
	case $2 in
	result) is "$(entry_of v .state)" "done" "$on: the ledger says what was finished" ;;
	*) is "$(entry_of v .state)" intent "$on: the ledger says that it may be half applied" ;;
	esac
	ok "$on: an anchor that was not put on record, or not told so, ends by itself" wait_for \
		"case '$2' in 'anchor spawned' | 'anchor recorded') [ \"\$(anchors | wc -l)\" = 1 ] ;; esac" 30
}

create_faults="intent,cpuset,neighbours,anchor spawned,anchor recorded,anchor,cookie,weights,memory policy,guard,result"

for runtime in $(runtimes); do
	started "fault $runtime" "$runtime" n cookie neighbour "" || continue
	IFS=,
	for fault in $create_faults; do
		unset IFS
		after_create "$runtime" "$fault"
		# The two ways of cleaning up take turns over the runtimes: the hook's part is the same for both.
		if [ "$runtime" = runc ]; then
			if started "$on, then another container" "$runtime" next node other ""; then
				cleaned "$on, then another container" 1
				stop "$runtime" next
			fi
		else
			poststop v
			ok "$on, then poststop: succeeds"
			cleaned "$on, then poststop"
		fi
	done
	unset IFS

	for fault in "anchor ended" leaving "given back"; do
		on="fault $runtime poststop $fault"
		if started "$on" "$runtime" v everything victim "" "$unwired"; then
			"$runtime" delete --force v
			is "$(entry_of v .state)" "done" "$on: before poststop the ledger has the entry"
			is "$(effective "$(pid_of n)" cpus)" 2-7 "$on: and the neighbour keeps off its cores"
			poststop v --fault "$fault" 2>/dev/null
			isnt $? 0 "$on: the hook is killed"
			is "$(anchor_of victim)$(anchors | grep -v "^anchor $(anchor_of neighbour)\$")" "" \
				"$on: its anchor is gone already"
			is "$(entry_of v .state)" "$([ "$fault" = "anchor ended" ] && echo "done" || echo leaving)" \
				"$on: the ledger says how far it came"
			poststop v
			ok "$on: poststop once more succeeds"
			cleaned "$on, then poststop"
		fi
	done
	stop_all "fault $runtime"
done
finish
