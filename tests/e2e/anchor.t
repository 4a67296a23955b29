#!/bin/bash
# cotenant-anchor and cotenant-topology as programs: options, the keeper's socket, and where all of them look for it.
. tests/e2e/lib.bash
anchor=$bin/cotenant-anchor
keeper=
end_keeper() {
	[ -z "$keeper" ] || { kill -CONT "$keeper" && kill -9 "$keeper" && wait "$keeper"; } 2>/dev/null
	keeper=
}
trap 'end_keeper; clean_up' EXIT

# ---- options -------------------------------------------------------------------------------------------------------

is "$("$anchor" --help 2>&1 </dev/null | head -n 1)" "usage: cotenant-anchor --keep [--state-dir DIR]" "--help"
like "$("$anchor" --help)" "^Holds the core scheduling cookie" "--help says what it is for"
usage_error() { # NAME ERE [ARGUMENT…]
	local name=$1 want=$2
	shift 2
	timeout -s KILL 10 "$anchor" "$@" >"$work/out" 2>"$work/err" </dev/null
	is "$? $(cat "$work/out")" "2 " "$name: wrong usage"
	like "$(<"$work/err")" "$want" "$name: and it says what is wrong"
}
usage_error "nothing" "^usage: "
usage_error "a word" "^usage: " red
usage_error "an unknown option" "unrecognized option '--kept'" --kept
usage_error "the keeper with a word" "^usage: " --keep --state-dir "$state_dir" red
usage_error "the keeper's unknown option" "unrecognized option '--nonsense'" --keep --state-dir "$state_dir" --nonsense
usage_error "two lives" "^usage: " --keep --hold red
usage_error "--hold without a name" "option '--hold' requires an argument" --hold
ok "none of them made a state directory" test ! -e "$state_dir"

# A group may have any name.
for name in --keep --help red; do
	timeout -s KILL 10 "$anchor" --hold "$name" >"$work/out" 2>&1 </dev/null
	is "$? $(<"$work/out")" "1 cotenant-anchor: no cookie to hold: with --hold this program is started by cotenant" \
		"a group named $name: its anchor is an anchor"
done

# ---- the default state directory -----------------------------------------------------------------------------------

if [ "$(id -u)" = 0 ]; then
	chmod 711 "$work"
	chmod -R a+rX "$bin"
	home=$work/user
	mkdir -m 700 "$home" && chown 65534 "$home"
	as_user=(setpriv --reuid 65534 --regid 65534 --clear-groups env XDG_RUNTIME_DIR="$home")
	"${as_user[@]}" "$anchor" --keep >"$work/out" 2>&1 </dev/null &
	keeper=$!
	ok "a user's keeper listens below XDG_RUNTIME_DIR" wait_for test -S "$home/cotenant/keeper"
	is "$(stat -c '%u %a' "$home/cotenant" "$home/cotenant/keeper" | tr '\n' ' ')" "65534 700 65534 600 " "which is the user's alone"
	end_keeper
	"${as_user[@]}" "$bin/cotenant-topology" >"$work/out" 2>&1
	is "$? $(<"$work/out")" "0 " "a user's facts can be found out"
	ok "a user's facts lie below XDG_RUNTIME_DIR" test -f "$home/cotenant/topology"
else
	skip "root, to become somebody else" "a user's state directory"
fi
