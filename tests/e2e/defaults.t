#!/bin/bash
# shellcheck disable=SC2016,SC2119 # programs of jq; functions of lib.bash that take options
# No --policy and no --state-dir: the programs and a real runtime's container with the paths that the manuals name. In a
# mount namespace of its own, where /run and /etc can be written without a trace.
if [ "$(id -u)" = 0 ] && [ -z "${DEFAULTS_UNSHARED-}" ]; then
	export DEFAULTS_UNSHARED=1
	exec unshare -m "$0"
fi
# shellcheck source=tests/e2e/lib.bash
. tests/e2e/lib.bash
missing=
command -v runc >/dev/null || missing="runc"
[ "$(id -u)" = 0 ] || missing="root"
[ "$(cat /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list 2>/dev/null | sort -u | wc -l)" -gt 1 ] ||
	missing="a machine with two cores"
private() {
	mkdir "$work/upper" && mount -t tmpfs none "$work/upper" && mkdir "$work/upper/up" "$work/upper/work" &&
		mount -t tmpfs none /run &&
		mount -t overlay overlay -o "lowerdir=/etc,upperdir=$work/upper/up,workdir=$work/upper/work" /etc
}
[ -n "$missing" ] || private || missing="tmpfs and overlayfs"
if [ -n "$missing" ]; then
	skip "$missing" "the default paths"
	exit 0
fi
chmod 755 /run
parent=cotenant-defaults-$$
keeper=
finish() {
	[ -z "$keeper" ] || { kill -9 "$keeper" && wait "$keeper"; } 2>/dev/null
	for id in $containers; do
		runc delete --force "$id" >/dev/null 2>&1
	done
	wait_for sh -c "rmdir /sys/fs/cgroup/*/$parent /sys/fs/cgroup/$parent; ! ls -d /sys/fs/cgroup/*/$parent /sys/fs/cgroup/$parent" >/dev/null
	umount /etc /run "$work/upper"
	clean_up
}
trap finish EXIT
export XDG_RUNTIME_DIR=$work/xdg # root's may be set, too
mkdir -m 700 "$XDG_RUNTIME_DIR"
bare() { timeout -s KILL 30 "$bin/cotenant-hook" "$@" >"$work/out" 2>"$work/err"; status=$? out=$(<"$work/out") err=$(<"$work/err"); }

make_container() { # ID [JQ-EDIT]
	local dir=$work/$1
	mkdir -p "$dir/rootfs/bin" "$dir/rootfs/proc" "$dir/rootfs/sys" "$dir/rootfs/dev"
	cp "$(command -v busybox)" "$dir/rootfs/bin/busybox"
	runc spec -b "$dir"
	jq --arg cgroup "/$parent/$1" --arg path "$bin/cotenant-hook" '.process.terminal = false | .root.readonly = false
		| .process.args = ["/bin/busybox", "sleep", "600"] | .linux.cgroupsPath = $cgroup
		| .hooks = ([("createRuntime", "poststart", "poststop") | {key: ., value: [{path: $path, args: ["cotenant-hook", .]}]}] | from_entries)
		'"${2:+ | $2}" "$dir/config.json" >"$dir/new.json" && mv "$dir/new.json" "$dir/config.json"
}
start() { # ID: sets status and err
	containers="$containers $1"
	timeout -s KILL 60 runc run --detach -b "$work/$1" "$1" >"$work/out" 2>&1 </dev/null
	status=$? err=$(sed 's/\\"/"/g' "$work/out")
}
of_init() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$(runc state "$1" | jq .pid)/status"; } # ID FIELD

# ---- without a policy ------------------------------------------------------------------------------------------------

none="/etc/cotenant/policy.json: there is none: write one (cotenant-policy(5)) or name one with --policy"
write_bundle
state e2e-red $$ "$bundle" | bare createRuntime
is "$status $out$err" "1 cotenant-hook: container e2e-red: createRuntime: policy: $none" "no policy: the hook"
is "$("$bin/cotenant" check 2>&1; echo $?)" "cotenant: $none"$'\n'1 "no policy: check"

# ---- root ------------------------------------------------------------------------------------------------------------

mkdir -p /etc/cotenant/policy.d
write_policy '.classes.own.cpu = {span: "machine", count: 0.5, exclusive: true} | .rules = [{match: {id: "nobody"}, tenant: "x", class: "own"}]'
install -m 600 "$policy" /etc/cotenant/policy.json
echo '{"version": 1, "rules": [{"match": {}, "tenant": "by-drop-in", "class": "own"}]}' >/etc/cotenant/policy.d/10.json
is "$("$bin/cotenant" check 2>&1; echo $?)" "/etc/cotenant/policy.json: right: 1 class, 2 rules"$'\n'0 "check finds policy and drop-in"
"$bin/cotenant-anchor" --keep >"$work/out" 2>&1 </dev/null &
keeper=$!
ok "the keeper listens in /run/cotenant" wait_for test -S /run/cotenant/keeper
rm -f /run/cotenant/topology
"$bin/cotenant-topology" --refresh
is "$? $(stat -c '%u %F' /run/cotenant/topology)" "0 0 regular file" "the facts lie in /run/cotenant"

make_container e2e-red
start e2e-red
is "$status $err" "0 " "a container of runc starts"
entry=/run/cotenant/containers/e2e-red.json
is "$(jq -r '[.tenant, .state, .started, .plan.mechanism] | join(" ")' $entry)" "by-drop-in done true cores" "its entry is in /run/cotenant"
is "$(of_init e2e-red Cpus_allowed_list)" "$(jq -r .plan.cpus $entry)" "the kernel says what its entry says"
ok "which is not the whole machine" test "$(of_init e2e-red Cpus_allowed_list)" != "$(machine_cpus)"
is "$(of_init e2e-red Seccomp)" 2 "it is guarded"
is "$(stat -c '%u %a' /run/cotenant)" "0 700" "/run/cotenant is root's alone"
like "$("$bin/cotenant" status)" "^e2e-red +by-drop-in +own +done +cores +$(jq -r .plan.cpus $entry) " "status looks there"
is "$(ls -A "$XDG_RUNTIME_DIR")" "" "nothing is in root's XDG_RUNTIME_DIR"
runc delete --force e2e-red
is "$(ls /run/cotenant/containers)" "" "poststop forgets it"
kill -9 "$keeper" && wait "$keeper" 2>/dev/null
keeper=

# ---- somebody else ------------------------------------------------------------------------------------------------------

chmod 711 "$work"
chmod -R a+rX "$bin" "$bundle"
chown 65534 "$XDG_RUNTIME_DIR"
as_user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
setpriv --reuid 65534 --regid 65534 --clear-groups busybox sleep 600 </dev/null >/dev/null 2>&1 &
init=$!
user_runs() { [ "$(stat -c %u "/proc/$init")" = 65534 ]; }
wait_for user_runs
user_hook() { # STAGE [PROGRAM…]: below which the hook runs
	"${as_user[@]}" "${@:2}" timeout -s KILL 30 "$bin/cotenant-hook" "$1" >"$work/out" 2>"$work/err"
	status=$? out=$(<"$work/out") err=$(<"$work/err")
}
state red "$init" "$bundle" | user_hook createRuntime
is "$status $out$err" "1 cotenant-hook: container red: createRuntime: policy: /etc/cotenant/policy.json: Permission denied" "a user who cannot read the policy"
echo '{"version": 1, "classes": {"own": {"isolation": {"mode": "none"}, "memory": {"policy": "local"}}},
	"rules": [{"match": {}, "tenant": "users", "class": "own"}]}' >/etc/cotenant/policy.json
rm /etc/cotenant/policy.d/10.json
chmod 644 /etc/cotenant/policy.json
before=$(find /run/cotenant | sort)
state red "$init" "$bundle" | user_hook createRuntime
is "$status $out$err" "0 " "a user's container, by the policy in /etc"
is "$(memory_policy "/proc/$init")" local "which the kernel knows of"
is "$(jq -r .tenant "$XDG_RUNTIME_DIR/cotenant/containers/red.json")" users "its entry is below XDG_RUNTIME_DIR"
is "$(stat -c '%u %a' "$XDG_RUNTIME_DIR/cotenant")" "65534 700" "which is the user's alone"
like "$("${as_user[@]}" "$bin/cotenant" status)" "^red +users +own +done +none " "status looks there"
over red "$XDG_RUNTIME_DIR/cotenant" | user_hook poststop
is "$status $out$err $(ls "$XDG_RUNTIME_DIR/cotenant/containers")" "0  " "poststop forgets it"
is "$(find /run/cotenant | sort)" "$before" "/run/cotenant is as it was"

# By a runtime that the user runs. It hands its environment on, and its init cannot be held, so that nothing is asked of it.
echo '{"version": 1, "classes": {"own": {"isolation": {"mode": "none"}}}, "rules": [{"match": {}, "tenant": "${id}", "class": "own"}]}' \
	>/etc/cotenant/policy.json
make_container e2e-user
chown -R 65534 "$work/e2e-user"
(cd "$work/e2e-user" && mv config.json hooks.json && "${as_user[@]}" runc spec --rootless && jq -s '.[1] * {hooks: .[0].hooks, process: .[0].process,
	root: .[0].root}' hooks.json config.json >new.json && mv new.json config.json)
if "${as_user[@]}" timeout -s KILL 60 runc run --detach -b "$work/e2e-user" e2e-user >"$work/out" 2>&1 </dev/null; then
	entry=$XDG_RUNTIME_DIR/cotenant/containers/e2e-user.json
	is "$(jq -r '[.tenant, .state, .started, .pid] | join(" ")' "$entry")" \
		"e2e-user done true $("${as_user[@]}" runc state e2e-user | jq .pid)" "a user's container of runc: its entry is below XDG_RUNTIME_DIR"
	"${as_user[@]}" runc delete --force e2e-user
	is "$(ls "$XDG_RUNTIME_DIR/cotenant/containers")" "" "a user's container of runc: poststop forgets it"
	is "$(find /run/cotenant | sort)" "$before" "a user's container of runc: /run/cotenant is as it was"
elif grep -q cotenant-hook: "$work/out"; then
	fail "a user's container of runc" "$(<"$work/out")"
else
	skip "a machine on which runc can start a user's container ($(tail -n 1 "$work/out"))" "a user's container of runc"
fi

# Root of a user namespace is nobody's root outside.
if "${as_user[@]}" unshare -Ur true 2>/dev/null; then
	printf '{"id": "red"}' | user_hook poststop unshare -Ur
	is "$status $out$err" "0 " "root of a user namespace: uses the user's directory"
	state red "$init" "$bundle" | user_hook createRuntime unshare -Ur
	is "$status $out$err" "1 cotenant-hook: container red: createRuntime: policy: /etc/cotenant/policy.json: belongs to user 65534, and must be root's: chown root /etc/cotenant/policy.json" \
		"root of a user namespace: the host's root is nobody there, so the policy must be named"
	rm -r "$XDG_RUNTIME_DIR/cotenant"
	printf '{"id": "red"}' | user_hook poststop unshare -Ur
	is "$(stat -c '%u %a' "$XDG_RUNTIME_DIR/cotenant")" "65534 700" "root of a user namespace: makes it, too"
else
	skip "user namespaces for everybody" "root of a user namespace"
fi
unset XDG_RUNTIME_DIR
state red "$init" "$bundle" | user_hook createRuntime
is "$status $out$err" "1 cotenant-hook: container red: createRuntime: ledger: state directory /run/cotenant: Permission denied: it is root's alone" \
	"a user without XDG_RUNTIME_DIR"
