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
create_faults="intent,cpuset,neighbours,anchor spawned,anchor recorded,anchor,cookie,weights,memory policy,guard,result"

# Whether the hook had come as far as STEP when it was killed at FAULT.
reached() { # STEP FAULT
	reached_after=",$create_faults,"
	reached_after=",${reached_after#*",$1,"}"
	[ "$1" = "$2" ] || [ "$reached_after" != "${reached_after#*",$2,"}" ]
}

either() { # STEP FAULT AFTER BEFORE
	if reached "$1" "$2"; then echo "$3"; else echo "$4"; fi
}

# The hook was killed and the runtime waits for its end: what the kernel has of the init is what the steps up to there
# give, and the ledger names all of it. `everything` gives v cores that the neighbour has to leave.
half_applied() { # WHAT FAULT
	half_state=$(either result "$2" "done" intent)
	is "$(entry_of v '"\(.pid) \(.state)"')" "$init $half_state" "$1: the ledger says of this process how far it may be"
	is "$(entry_of v '.plan | "\(.cpus) \(.mems) \(.mechanism) \(.memory_policy) \(.memory_nodes) \(.guard)"')" \
		"0-1 0,2 cookie weighted-interleave 0,2 3" "$1: and what it may have been given"
	is "$(effective "$(pid_of n)" cpus)" "$(either neighbours "$2" 2-7 0-7)" "$1: the neighbour is where it was or where the ledger says"
	is "$(entry_of n .plan.cpus)" 2-7 "$1: which is off these cores"
	is "$(weights)" "$(either weights "$2" "3 3 1" "$before")" "$1: the weights are as they were, or the policy's"
	is "$(jq -r '.node[:3] | join(" ")' "$state/weights.json" 2>/dev/null)" "$(either weights "$2" "$before" "")" \
		"$1: and the old ones are kept where they were changed"
	# Held by the dead hook, it must not go on.
	case $2 in
	"memory policy" | guard)
		ok "$1: the init, which the hook held, is dead" wait_for "ended $init" 30
		return
		;;
	esac
	half_cookie=$(cookies_of "$(anchor_of victim)")
	is "$(given "$init")" "cookie $(either cookie "$2" "$half_cookie" 0x0)
cpus $(either cpuset "$2" 0-1 0-7)
mems $(either cpuset "$2" 0,2 0-2)
memory policy $(either result "$2" "weighted interleave=static:0,2" default)
filters $(either result "$2" 1 0)" "$1: the living init has what was done up to there, in every thread, and no more"
	! reached cookie "$2" || like "$half_cookie" '^0x.*[1-9a-f]' "$1: its cookie is one"
}

after_create() { # RUNTIME FAULT [JQ-EDIT]...
	on="fault $1 $2"
	after_runtime=$1 after_fault=$2
	shift 2
	bundle v everything victim "" "$(wired --fault "$after_fault")" "$held" "$@"
	launch_held "$after_runtime" v
	is "$hook_status" 137 "$on: the hook is killed"
	half_applied "$on" "$after_fault"
	let_go 137
	isnt $? 0 "$on: the runtime reports that the hook was killed"
}

for runtime in $(runtimes); do
	started "fault $runtime" "$runtime" n cookie neighbour "" || continue
	IFS=,
	for fault in $create_faults; do
		unset IFS
		after_create "$runtime" "$fault"
		"$runtime" delete --force v >/dev/null 2>&1 # what a failed start leaves
		# runc runs poststop for a start that failed, crun does not: then somebody else has to.
		is "$(entry_of v .state)" "$([ "$runtime" = runc ] || echo "$half_state")" "$on, then poststop: run by runc itself"
		poststop v
		ok "$on, then poststop: succeeds"
		cleaned "$on, then poststop"

		after_create "$runtime" "$fault" "$unwired"
		"$runtime" delete --force v >/dev/null 2>&1
		is "$(entry_of v .state)" "$half_state" "$on: without poststop the ledger still says so"
		ok "$on: an anchor that was not put on record, or not told so, ends by itself" wait_for \
			"case '$fault' in 'anchor spawned' | 'anchor recorded') [ \"\$(anchors | wc -l)\" = 1 ] ;; esac" 30
		if started "$on, then another container" "$runtime" next node other ""; then
			cleaned "$on, then another container" 1
			stop "$runtime" next
		fi
	done
	unset IFS

	# The runtime may take the hook's end for a success.
	on="fault $runtime cookie, and the container runs all the same"
	bundle v everything victim "try" "$(wired --fault cookie)" "$held"
	launch_held "$runtime" v
	let_go 0 && wait_report v
	ok "$on: it does"
	is "$(said v first)" "$(cookies_of "$(anchor_of victim)")" "$on: with its cookie"
	is "$(said v "try create")" ok "$on: without its guard"
	is "$(said v policy)" default "$on: without its memory policy"
	is "$(entry_of v .state)" intent "$on: the ledger says that it may be half applied"
	if started "$on" "$runtime" next node other ""; then
		is "$(entry_of v .state)" degraded "$on: and the next hook, that it is degraded"
		like "$(entry_of v .why)" "the hook died before it finished" "$on: with the reason"
		stop "$runtime" next
	fi
	stop "$runtime" v
	cleaned "$on, then poststop"

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
