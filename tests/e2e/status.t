#!/bin/bash
# shellcheck disable=SC2016,SC2119 # templates in single quotes
# cotenant status: what it shows, what it does not hide, and that it changes nothing.
. tests/e2e/lib.bash
tool() { timeout 60 "$bin/cotenant" --state-dir "$state_dir" "$@" 2>&1; echo "$?"; }
none="no ledger at $state_dir: either nothing was placed since boot, or the hooks use another --state-dir"
is "$(tool status)" "cotenant: $none"$'\n'1 "a state directory that is not there"
is "$(tool status red)" "cotenant: $none"$'\n'1 "a state directory that is not there: one container"
mkdir -m 700 "$state_dir"
is "$(tool status)" "cotenant: $none"$'\n'1 "a directory that is no ledger"
is "$(ls -A "$state_dir")" "" "nothing is created in it"
mkdir -p "$work/other" && mkdir -m 700 "$work/other/state"
like "$(tool --root "$work/other" --state-dir /state status)" "no ledger at /state" "below another root"
is "$(find "$work/other")" "$work/other"$'\n'"$work/other/state" "below another root: nothing is created"
init_start "a container" || exit 0
write_policy
write_bundle
state red "$init" "$bundle" | hook createRuntime
before=$(snapshot)
echo kept >"$state_dir/topology"
row="^red +red +own +done +cores +$(cat "$cgroup/cpuset.cpus") +[0-9,-]+ +[a-z-]+ +-$"
like "$(tool status)" "$row" "a container"
like "$(tool status red)" "^red +red +own +done " "one container"
is "$(tool status nope)" "cotenant: container nope: not in the ledger $state_dir"$'\n'1 "unknown container"
tool --root "$work/other" --state-dir "$state_dir" status >/dev/null
tool --root "$work/other" --state-dir "$state_dir" support >/dev/null
tool support >/dev/null
is "$(<"$state_dir/topology")" kept "the hooks' topology is left alone"
"$bin/cotenant-topology" --state-dir "$state_dir" --refresh
is "$(snapshot | grep -v topology)" "$(grep -v topology <<<"$before")" "nothing changed"
"$bin/cotenant" --state-dir "$state_dir" status >/dev/full 2>"$work/err"
is "$? $(<"$work/err")" "1 cotenant: standard output: No space left on device" "what cannot be written was not said"

fill_cpuset "$cgroup"
like "$(tool status red)" "^red +red +own +[a-z]+ +cores +$(cat "$cgroup/cpuset.cpus") " "shows the kernel's CPUs, not the ledger's"
if [ "$(nproc)" -gt 1 ]; then
	like "$(tool status)" "^red +red +own +violated " "a cpuset that somebody changed"
	like "$(tool status)" "^red: its cpuset has been changed: it may leave the cores that it owns$" "and what is wrong"
	like "$(tool status)" "^1$" "a violation is not success"
	machine_cpus | cut -c1 >"$cgroup/cpuset.cpus"
	jq --arg id green '.id = $id | .group = $id | .tenant = $id' "$state_dir/containers/red.json" >"$state_dir/containers/green.json"
	like "$(tool status)" "^red: container green may run on its cores too$" "another on an owner's cores"
	rm "$state_dir/containers/green.json"
fi

# ---- the table -----------------------------------------------------------------------------------------------------------

entry=$state_dir/containers/red.json
column() { LC_ALL=C awk -v word="$2" '{ at = index($0, word); if (at) { print at; exit } }' <<<"$1"; } # TEXT WORD
long=$(printf '%0150d' 0)
jq --arg id "$long" '.id = $id' "$entry" >"$state_dir/containers/$long.json"
like "$(tool status)" "^$long " "a long id is shown whole"
like "$(tool status "$long")" "^$long " "and can be asked for"
rm "$state_dir/containers/$long.json"
edit() { jq "$1" "$entry" >"$work/entry" && cat "$work/entry" >"$entry"; } # JQ-EDIT
for tenant in täglich 日本 'e\u0301cole' 'a\u001b[31mb'; do
	edit ".tenant = \"$tenant\""
	shown=$(tool status red)
	# What a terminal shows: wide characters twice, marks that stand on others not at all.
	shown=$(sed "s/日本/ffff/; s/täglich/taglich/; s/e$(printf '\u0301')cole/ecole/" <<<"$shown")
	is "$(column "$(sed -n 2p <<<"$shown")" " own ")" "$(($(column "$shown" CLASS) - 1))" "columns are even: tenant $tenant"
done
like "$shown" '^red +a\\x1b\[31mb +own ' "control characters do not reach the terminal"
edit '.tenant = "red"'

edit '.why = "one thing; another thing" | .state = "degraded" | .plan.reasons = ["one thing", "another thing", "a third"]'
is "$(tool status red | sed -n '3,$p')" "red: one thing; another thing
  a third
0" "what a container lacks is said once"
is "$(tool status | sed -n '3,$p')" "red: one thing; another thing"$'\n'0 "and below the whole table"

# ---- what cannot be read ---------------------------------------------------------------------------------------------------

echo '{"id": ' >"$state_dir/containers/blue.json"
out=$(tool status)
like "$out" "^blue +- +- +unreadable +- +- +- +- +-$" "a damaged entry has a row"
like "$out" "^blue: $state_dir/containers/blue.json cannot be read: entry:" "a damaged entry: why"
like "$out" "^red +red " "a damaged entry: the others are shown"
is "${out##*$'\n'}" 1 "a damaged entry: status"
like "$(tool status blue)" "^blue: $state_dir/containers/blue.json cannot be read: entry:" "a damaged entry alone: why"
is "$(tool status blue | tail -n 1)" 1 "a damaged entry alone: status"
is "$(tool status red | tail -n 1)" 0 "the other one alone: status"
ok "a damaged entry is left where it is" test -e "$state_dir/containers/blue.json"
rm "$state_dir/containers/blue.json"

kill -9 "$init"
wait "$init" 2>/dev/null
init=
like "$(tool status red)" '^red +red +own +ended +cores +- ' "a container that ended"
mv "$state_dir/containers/red.json" "$work/"
is "$(tool status)" "CONTAINER  TENANT  CLASS  STATE  MECHANISM  CPUS  NODES  MEMORY  COOKIE"$'\n'0 "an empty ledger"

# ---- denied ------------------------------------------------------------------------------------------------------------------

if [ "$(id -u)" = 0 ]; then
	chmod 711 "$work"
	chmod -R a+rX "$bin"
	user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$bin/cotenant" "$@" 2>&1; echo "$?"; }
	mkdir -m 700 "$work/closed"
	is "$(user --state-dir "$state_dir" status)" "cotenant: state directory $state_dir: Permission denied: it is root's alone"$'\n'4 "denied: status"
	for verb in check status support; do
		like "$(user --root "$work/closed/x" "$verb")" "^4$" "denied: the root, $verb"
	done
else
	skip "root, to become somebody else" "denied"
fi
