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

# ---- the keeper's socket -------------------------------------------------------------------------------------------

start_keeper() { # [STATE-DIR]
	"$anchor" --keep --state-dir "${1-$state_dir}" >"$work/out" 2>&1 </dev/null &
	keeper=$!
	wait_for test -S "${1-$state_dir}/keeper"
}
keeper_error() { # NAME MESSAGE [STATE-DIR]
	is "$(timeout -s KILL 10 "$anchor" --keep --state-dir "${3-$state_dir}" 2>&1 </dev/null; echo $?)" "cotenant-anchor: $2"$'\n'1 "$1"
}
start_keeper
keeper_error "a second keeper" "$state_dir/keeper: a keeper listens there already: process $keeper"
kill -STOP "$keeper"
keeper_error "a second keeper, the first stopped" "$state_dir/keeper: a keeper listens there already: process $keeper"
end_keeper
ok "the socket of a killed keeper is there" test -S "$state_dir/keeper"
start_keeper
children() { pgrep -P "$keeper" -x cotenant-spare; }
listens() { grep -q "^State:.S" "/proc/$keeper/status" && [ "$(readlink "/proc/$keeper/fd/2")" = /dev/null ]; }
ok "and is taken over" wait_for listens
is "$(stat -c %a "$state_dir/keeper")" 600 "the socket is the owner's alone"
end_keeper

# Many at once: one is left, and it is the one whose socket is there.
keepers=()
for _ in 1 2 3 4 5 6 7 8; do
	"$anchor" --keep --state-dir "$state_dir" >>"$work/many" 2>&1 </dev/null &
	keepers+=($!)
done
one_left() { [ "$(kill -0 "${keepers[@]}" 2>&1 | grep -c 'No such process')" = 7 ]; }
ok "of eight keepers one is left" wait_for one_left
for keeper in "${keepers[@]}"; do kill -0 "$keeper" 2>/dev/null && break; done
ok "and it listens" wait_for listens
keeper_error "as one more is told" "$state_dir/keeper: a keeper listens there already: process $keeper"
end_keeper
wait "${keepers[@]}" 2>/dev/null

# What its starter had open is not kept open, and what was closed is no place for its socket.
exec 7>"$work/lock"
"$anchor" --keep --state-dir "$state_dir" <&- >&- 2>&- &
keeper=$!
exec 7>&-
ok "without standard descriptors" wait_for listens
ok "the next anchor waits to be asked for" wait_for children
is "$(readlink "/proc/$keeper/fd/"* | sed 's/:.*//' | sort | uniq -c | tr -s ' \n' ' ')" " 3 /dev/null 1 pipe 1 socket " \
	"the keeper has its socket open, what that one tells it, and nothing else"
child=$(children)
is "$(readlink "/proc/$child/fd/"* | sed 's/:.*//' | sort | uniq -c | tr -s ' \n' ' ')" " 3 /dev/null 1 pipe 1 socket " \
	"and so has that one"
is "$(grep -E '^(CapPrm|CapEff|CapBnd|NoNewPrivs):' "/proc/$child/status" | tr -d ' \t\n')" \
	"CapPrm:0000000000000000CapEff:0000000000000000CapBnd:0000000000000000NoNewPrivs:1" "which has given up its privileges"
kill -9 "$child"
replaced() { [ -n "$(children)" ] && [ "$(children)" != "$child" ]; }
ok "when it is killed, another takes its place" wait_for replaced
child=$(children)
end_keeper
gone() { ! kill -0 "$child"; }
ok "and with the keeper it goes" wait_for gone

long=$work/$(printf '%0100d' 0)/$(printf '%0100d' 0)
start_keeper "$long"
is "$?" 0 "a state directory with a long path, two levels to be made"
end_keeper
rm -f "$state_dir/keeper"
echo precious >"$state_dir/keeper"
keeper_error "a file in the place of the socket" "$state_dir/keeper: is no socket: remove it"
is "$(<"$state_dir/keeper")" precious "which is left alone"
rm "$state_dir/keeper"
chmod 0777 "$state_dir"
keeper_error "a state directory that others may write" \
	"state directory $state_dir: mode 0777 lets others plant entries: chmod go-w $state_dir, after a look at what is in it"
