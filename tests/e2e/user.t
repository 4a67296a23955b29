#!/bin/bash
# shellcheck disable=SC2013,SC2016,SC2119 # programs of jq and templates in single quotes; words without spaces
# Without root: whose policy, whose state directory, and what is refused because it cannot be done.
. tests/e2e/lib.bash
if [ "$(id -u)" != 0 ]; then
	skip "root, to become somebody else" "without root"
	exit 0
fi
user=65534
chmod 711 "$work"
home=$work/user
mkdir -m 700 "$home"
chmod -R a+rX "$bin"
as_user() { setpriv --reuid "$user" --regid "$user" --clear-groups env XDG_RUNTIME_DIR="$home" "$@"; }
user_hook() { # STAGE [OPTION…]; the default state directory
	as_user timeout -s KILL 30 "$bin/cotenant-hook" --policy "$policy" "$@" >"$work/out" 2>"$work/err"
	status=$? out=$(<"$work/out") err=$(<"$work/err")
}
chown "$user" "$home"
# No function here: it would be a shell that outlives its signal, and would hold the pipe that the lines go to.
setpriv --reuid "$user" --regid "$user" --clear-groups busybox sleep 600 </dev/null >/dev/null 2>&1 &
init=$!
user_runs() { [ "$(stat -c %u "/proc/$init")" = "$user" ]; }
wait_for user_runs
policy=$home/policy.json
write_bundle
chmod 755 "$bundle"
write_policy '.classes.own = {isolation: {mode: "none"}}'
chown "$user" "$policy"

state red "$init" "$bundle" | user_hook createRuntime
is "$status $out$err" "0 " "mode none needs no root"
is "$(stat -c '%u %a' "$home/cotenant")" "$user 700" "the state directory is below XDG_RUNTIME_DIR, and the user's alone"
like "$(as_user "$bin/cotenant" status)" '^red +red +own +done +none ' "cotenant status looks there too"
over red "$home/cotenant" | user_hook poststop
is "$status $out$err $(ls "$home/cotenant/containers")" "0  " "poststop"

chown 0 "$policy"
chmod 644 "$policy"
state red "$init" "$bundle" | user_hook createRuntime
is "$status $out$err" "0 " "root's policy will do"
over red "$home/cotenant" | user_hook poststop
# In a user namespace the directories above belong to nobody.
chown "$user" "$policy"
if as_user unshare -Ur true 2>/dev/null; then
	like "$(as_user unshare -Ur "$bin/cotenant" check "$policy" 2>&1)" "^$policy: right: " "in a namespace of his own"
	chmod 757 "$home"
	like "$(as_user unshare -Ur "$bin/cotenant" check "$policy" 2>&1)" "^cotenant: $home/: mode 0757 lets others change it" \
		"in a namespace of his own: a directory that others can write"
	chmod 700 "$home"
else
	skip "user namespaces for everybody" "in a namespace of his own"
fi
chown 1234 "$policy"
state red "$init" "$bundle" | user_hook createRuntime
is "$status $out$err" \
	"1 cotenant-hook: container red: createRuntime: policy: $policy: belongs to user 1234, and must be root's or yours: chown root $policy" \
	"a third user's will not"
chown 0 "$policy"
chmod 600 "$policy"
state red "$init" "$bundle" | user_hook createRuntime
is "$status $out$err" "1 cotenant-hook: container red: createRuntime: policy: $policy: Permission denied" "a policy that cannot be read"

write_policy
chown "$user" "$policy"
state red "$init" "$bundle" | user_hook createRuntime
is "$status $out$err" \
	'1 cotenant-hook: container red: createRuntime: placement: container red: class "own" wants cores of its own, but the container'\''s cpuset cannot be written; give it the cpuset controller, or set isolation.on_unsupported to degrade' \
	"mode cores where the cpuset is root's"
is "$(ls "$home/cotenant/containers")" "" "and nothing is left of it"
write_policy '.classes.own.isolation.on_unsupported = "degrade"'
chown "$user" "$policy"
state red "$init" "$bundle" | user_hook createRuntime
is "$status $out$err" "0 " "on_unsupported degrade"
like "$(as_user "$bin/cotenant" status)" '^red: not isolated: class "own" wants cores of its own, and the container.s cpuset cannot be written$' \
	"on_unsupported degrade: status says what is missing"
over red "$home/cotenant" | user_hook poststop

# A process without no_new_privs takes no filter, and by then its memory policy is set: it must be as before.
if grep -q '^NoNewPrivs:.0$' "/proc/$init/status"; then
	write_policy '.classes.own = {isolation: {mode: "none", guard: ["memory"]}, memory: {policy: "bind", nodes: "0"}}'
	chown "$user" "$policy"
	state red "$init" "$bundle" | user_hook createRuntime
	like "$status $err" '^1 .*: guard: .*the process has neither no_new_privs nor CAP_SYS_ADMIN' "a guard that cannot be had is refused"
	is "$(awk 'NR == 1 { print $2 }' "/proc/$init/numa_maps")" default "and the memory policy that came before it is undone"
	is "$(ls "$home/cotenant/containers")" "" "and nothing is left of it"
	write_policy '.classes.own.isolation.on_unsupported = "degrade"'
	chown "$user" "$policy"
fi

mkdir -m 700 "$state_dir"
state red "$init" "$bundle" | user_hook createRuntime --state-dir "$state_dir"
is "$status $out$err" \
	"1 cotenant-hook: container red: createRuntime: ledger: state directory $state_dir: Permission denied: it is root's alone" \
	"root's state directory"
chmod 755 "$state_dir"
state red "$init" "$bundle" | user_hook createRuntime --state-dir "$state_dir"
is "$status $out$err" \
	"1 cotenant-hook: container red: createRuntime: ledger: state directory $state_dir: belongs to user 0, who could plant entries: remove it, or give another with --state-dir" \
	"root's state directory, readable"
is "$(ls -A "$state_dir")" "" "nothing was written there"
state red 1 "$bundle" | user_hook createRuntime
is "$status" 0 "a process that is not the user's: on_unsupported degrade"
state red 1 "$bundle" | user_hook poststop
