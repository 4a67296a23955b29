#!/bin/sh
# Guest script: the last step fails when all others are done. The container is refused, and nothing of the plan is left
# on its init, which lives until the runtime ends it: no cookie, no memory policy, no CPUs. Nor elsewhere.
set -u
# shellcheck source=tests/vm/cotenant.sh
. tests/vm/cotenant.sh
write_policy
before=$(weights)

# The init has a filter from its runtime that refuses it the guard's.
filtered() { # RUNTIME
	printf '#!/bin/sh\nexec "%s" without-seccomp "%s" "$@"\n' "$probe" "$1" >"$work/filtered-$1"
	chmod +x "$work/filtered-$1"
	echo "$work/filtered-$1"
}

for runtime in $(runtimes); do
	on="undo $runtime"
	# A group that has its anchor already: an anchor cannot do without a filter either.
	started "$on" "$runtime" n cookie red "" || continue
	anchor=$(anchor_of red)
	cookie=$(cookies_of "$anchor")
	is "$(effective "$(pid_of n)" cpus)" 0-7 "$on: a container of the same tenant has the whole machine"

	bundle v everything red "" "$held"
	launch_held "$(filtered "$runtime")" v
	is "$hook_status" 1 "$on: the hook fails"
	is "$(given "$init")" "cookie 0x0
cpus 0-7
mems 0-2
memory policy default
filters 1" "$on: the init lives, and is as it was: no thread has the cookie, no mapping the policy"
	is "$(entry_of v .state)" "" "$on: the ledger has no entry of it"
	is "$(effective "$(pid_of n)" cpus)" 0-7 "$on: the neighbour has its cores back"
	is "$(weights)" "$before" "$on: the interleave weights are what they were"
	is "$(anchors)" "anchor $anchor" "$on: the anchor lives on for the neighbour"
	is "$(cookies_of "$(pid_of n)")" "$cookie" "$on: which keeps its cookie"
	let_go 1
	isnt $? 0 "$on: the runtime reports the failure"
	like "$(log v)" "cotenant-hook: container v: createRuntime: guard: guard of process $init cannot be installed: Operation not permitted" \
		"$on: and its reason"
	ok "$on: and ends the init" wait_for "ended $init" 30

	# The same with on_error admit: what was done stays, and what was not is on record.
	bundle a everything-admit red "try" "$held"
	launch_held "$(filtered "$runtime")" a
	is "$hook_status" 0 "$on admit: the hook succeeds"
	is "$(given "$init")" "cookie $cookie
cpus 0-1
mems 0,2
memory policy weighted interleave=static:0,2
filters 1" "$on admit: the init has all but the guard"
	let_go 0 && wait_report a
	ok "$on admit: the container starts"
	is "$(said a first) $(said a policy)" "$cookie weighted interleave=static:0,2" "$on admit: its first program has it too"
	is "$(said a "try create") $(said a "try set_mempolicy")" "ok ok" "$on admit: and no guard"
	is "$(entry_of a '"\(.state) \(.plan.guard)"')" "degraded 0" "$on admit: which the ledger says"
	like "$(entry_of a .why)" "guard: not applied: guard of process [0-9]* cannot be installed" "$on admit: with the reason"
	stop_all "$on"
done
finish
