#!/bin/bash
# shellcheck disable=SC2013,SC2016,SC2119,SC2217 # programs of jq and templates in single quotes; words without spaces
# Bad container state and bad bundles: refused with exactly one line, and nothing changed.
. tests/e2e/lib.bash
init_start "bad container states" || exit 0
write_policy
write_bundle
state warm "$init" "$bundle" | hook createRuntime
is "$status $out$err" "0 " "a right state is placed"
over warm | hook poststop
is "$status $out$err" "0 " "and forgotten"

long=$(printf '%05000d' 0)
nested=$(printf '%010000d' 0 | tr 0 '[')
# At every stage, while a container of the id that the states name is on record.
state red "$init" "$bundle" | hook createRuntime
is "$status $out$err" "0 " "a container is on record"
stages=${STAGES-prestart createRuntime poststart poststop}
bad_state() { # NAME REASON TEXT [STAGE…]
	local name=$1 reason=$2 text=$3
	shift 3
	# shellcheck disable=SC2086 # a list of words
	[ $# -gt 0 ] || set -- $stages
	for stage; do
		printf '%s' "$text" | refused "state: $name: $stage" "cotenant-hook: $stage: container state$reason" "$stage"
	done
}
# What the stages before the start cannot do without.
bad_before_start() { bad_state "$@" prestart createRuntime; }

bad_state "empty" ": empty: the runtime gave nothing on standard input" ""
bad_state "cut short" ":1:18: cut short: ':' after the key expected (the object from 1:1 is still open)" '{"id":"red","pid"'
bad_state "not an object" ":1:1: an object expected, found an array" '[]'
bad_state "no id" ': no "id"' '{"pid": 1, "bundle": "/x"}'
bad_state "empty id" ":1:8: id: empty" '{"id": ""}'
bad_state "id with a slash" ":1:8: id \"a/b\": '/' is not allowed, only letters, digits and _+-. are" '{"id": "a/b"}'
bad_state "id of two dots" ':1:8: id ".." names a directory, not a container' '{"id": ".."}'
bad_state "id with control characters" \
	":1:8: id \"a\\x07\\x1b[31m\": '\\x07' is not allowed, only letters, digits and _+-. are" '{"id": "a\u0007\u001b[31m"}'
bad_state "id with a NUL" ":1:8: \\u0000 is not allowed in a string" '{"id": "a\u0000b"}'
bad_state "id of 5,000 bytes" ":1:8: id \"${long:0:64}...\": 5000 bytes, more than the 255 that are allowed" "{\"id\": \"$long\"}"
bad_state "id that is no string" ":1:8: id: a string expected, found an integer" '{"id": 5}'
bad_before_start "no pid" ": no \"pid\" (or 0), but this stage acts on the container's process" '{"id": "red", "bundle": "/x"}'
bad_before_start "pid 0" ": no \"pid\" (or 0), but this stage acts on the container's process" '{"id": "red", "pid": 0, "bundle": "/x"}'
bad_state "negative pid" ":1:22: pid: -4 is out of range (0 to 2147483647)" '{"id": "red", "pid": -4}'
bad_state "pid beyond 32 bits" ":1:22: pid: 4294967297 is out of range (0 to 2147483647)" '{"id": "red", "pid": 4294967297}'
bad_state "pid as text" ":1:22: pid: an integer expected, found a string" '{"id": "red", "pid": "1"}'
bad_before_start "no bundle" ": no \"bundle\", but this stage reads its config.json" '{"id": "red", "pid": 1}'
bad_before_start "relative bundle" ": \"bundle\" is not an absolute path" '{"id": "red", "pid": 1, "bundle": "x"}'
bad_state "invalid UTF-8" ":1:10: byte \\xff is not UTF-8" $'{"id": "a\xff"}'
bad_state "a key twice" ':1:13: key "id" again: it stands at 1:2 already' '{"id": "a", "id": "b"}'
bad_state "10,000 levels" ":1:65: nested deeper than 64 arrays and objects" "$nested"
bad_state "text after the end" ":1:5: text after the end of the document: x" '{}  x'
bad_state "10,000 annotations" ":1:49: annotations: 10000 entries, more than the 4096 that are allowed" \
	"$(jq -nc '{id: "red", pid: 1, bundle: "/x", annotations: [range(10000) | {key: "a\(.)", value: ""}] | from_entries}')"
bad_state "annotation that is no string" ":1:56: annotations[\"a.b\"]: a string expected, found an integer" \
	'{"id":"red","pid":1,"bundle":"/x","annotations":{"a.b":1}}'

# What cannot be read cannot fill the memory: the limit on the address space is below the size of the state.
huge() { printf '{"id": "' && head -c 100M /dev/zero | tr '\0' a; } 2>/dev/null
for stage in $stages; do
	huge | (
		ulimit -v 65536
		refused "state: 100 MB are not read: $stage" "cotenant-hook: $stage: container state: larger than 1024 KiB" "$stage"
	)
done

# And what those after it can.
over red >/dev/null
for says in '' ', "pid": 0' ', "pid": null, "bundle": null' ', "bundle": "x"' ', "annotations": null'; do
	state red "$init" "$bundle" | hook createRuntime
	is "$status $(jq .started "$state_dir/containers/red.json")" "0 false" "state: {\"id\": \"red\"$says}: it is on record"
	printf '{"id": "red"%s}' "$says" | hook poststart
	is "$status $out$err $(jq .started "$state_dir/containers/red.json")" "0  true" "state: {\"id\": \"red\"$says}: poststart"
	over red >/dev/null
	printf '{"id": "red"%s}' "$says" | hook poststop
	is "$status $out$err $(cd "$state_dir/containers" && echo *)" "0  *" "state: {\"id\": \"red\"$says}: poststop"
done

# ---- processes ---------------------------------------------------------------------------------------------------

red="cotenant-hook: container red: createRuntime: facts"
state red 2147483647 "$bundle" |
	refused "process: never was" "$red: process 2147483647: gone: the container ended before it could be placed" createRuntime
sleep 0.01 &
gone=$!
wait "$gone"
state red "$gone" "$bundle" |
	refused "process: ended" "$red: process $gone: gone: the container ended before it could be placed" createRuntime
bash -c 'sleep 0.01 & echo $!; exec sleep 60' >"$work/zombie" &
parent=$!
zombie_is_there() { [ -s "$work/zombie" ] && grep -q '^State:.*Z' "/proc/$(<"$work/zombie")/status"; }
wait_for zombie_is_there
zombie=$(<"$work/zombie")
state red "$zombie" "$bundle" |
	refused "process: a zombie" "$red: process $zombie: gone: the container ended before it could be placed" createRuntime
kill "$parent"
wait "$parent" 2>/dev/null

# The number of a process that is gone may be another's by now: an entry of the same id and pid is a leftover then.
state red "$init" "$bundle" | hook createRuntime
started=$(jq .start_time "$state_dir/containers/red.json")
jq '.start_time = 1' "$state_dir/containers/red.json" >"$work/entry" && cat "$work/entry" >"$state_dir/containers/red.json"
rm "$state_dir/index" # is made anew from the entries
like "$("$bin/cotenant" --state-dir "$state_dir" status red)" '^red .* ended ' "process: a number used again is not the container"
state red "$init" "$bundle" | hook createRuntime
is "$status $out$err" "0 " "process: an entry of an earlier process with the same number is a leftover"
is "$(jq .start_time "$state_dir/containers/red.json")" "$started" "process: the entry is the new one's"
like "$("$bin/cotenant" --state-dir "$state_dir" status red)" '^red .* done ' "process: and is done"
over red | hook poststop

# A leftover's cores are free for others.
state red "$init" "$bundle" | hook createRuntime
jq '.start_time = 1' "$state_dir/containers/red.json" >"$work/entry" && cat "$work/entry" >"$state_dir/containers/red.json"
rm "$state_dir/index"
state blue "$init" "$bundle" | hook createRuntime
is "$status $out$err" "0 " "process: a leftover's cores can be had"
is "$(cd "$state_dir/containers" && echo *)" blue.json "process: the leftover is gone"
over blue | hook poststop

# Two runtimes may have given one id to two containers: the first keeps its entry, whatever on_error says.
state red "$init" "$bundle" | hook createRuntime
busybox sleep 60 </dev/null >/dev/null 2>&1 &
other=$!
state red "$other" "$bundle" |
	refused "process: the id of another that lives" "${red%facts}ledger: another container of this id runs (process $init): give \
this one another id, or the runtimes' hooks different state directories (--state-dir)" createRuntime
write_policy '.on_error = "admit"'
state red "$other" "$bundle" |
	refused "process: the same under admit" "${red%facts}ledger: another container of this id runs (process $init): give \
this one another id, or the runtimes' hooks different state directories (--state-dir)" createRuntime
is "$(jq .pid "$state_dir/containers/red.json")" "$init" "process: the entry is still the first one's"
kill "$other"
wait "$other" 2>/dev/null
write_policy
over red | hook poststop

# ---- bundles -----------------------------------------------------------------------------------------------------

config=$bundle/config.json
bad_config() { # NAME REASON; $config as the test left it
	state red "$init" "$bundle" | refused "config.json: $1" "$red: $2" createRuntime
	rm -rf "$config"
}
bad_text() { # NAME PLACE-AND-REASON TEXT
	printf '%s' "$3" >"$config"
	bad_config "$1" "$bundle: config.json:$2"
}

state red "$init" "$bundle/none" |
	refused "bundle: missing" "$red: $bundle/none/config.json: No such file or directory" createRuntime
state red "$init" "$bundle\\nsecond line\\u001b[31m" |
	refused "bundle: control characters stay on one line" \
		"$red: $bundle\\x0asecond line\\x1b[31m/config.json: No such file or directory" createRuntime
rm "$config"
bad_config "missing" "$config: No such file or directory"
mkdir "$config"
bad_config "a directory" "$config: Is a directory"
mkfifo "$config"
bad_config "a FIFO" "$bundle: config.json:1:1: empty: a JSON document is expected"
ln -s config.json "$config"
bad_config "a link to itself" "$config: Too many levels of symbolic links"
truncate -s 200M "$config"
(ulimit -v 131072 && bad_config "200 MB" "$config: larger than 16 MiB")
ln -s /dev/zero "$config"
bad_config "without an end" "$config: larger than 16 MiB"
bad_text "empty" "1:1: empty: a JSON document is expected" ""
bad_text "cut short" "1:12: cut short: a key in double quotes or '}' expected (the object from 1:11 is still open)" '{"linux": {'
bad_text "wrong type" "1:11: linux: an object expected, found an integer" '{"linux": 3}'
bad_text "10,000 levels" "1:65: nested deeper than 64 arrays and objects" "$nested"
bad_text "invalid UTF-8" "1:16: byte \\xff is not UTF-8" $'{"hostname": "a\xff"}'
bad_text "a key twice" '1:17: key "linux" again: it stands at 1:2 already' '{"linux": null, "linux": null}'
jq -nc '{annotations: [range(10000) | {key: "a\(.)", value: ""}] | from_entries}' >"$config"
bad_config "10,000 annotations" "$bundle: config.json:1:16: annotations: 10000 entries, more than the 4096 that are allowed"

# What the runtime sets itself wins, and is told.
write_policy '.classes.own.memory = {policy: "bind", nodes: "0"}'
write_bundle '.linux.memoryPolicy = {mode: "MPOL_INTERLEAVE", nodes: "0"}'
state red "$init" "$bundle" | hook createRuntime
is "$status $out$err" "0 " "linux.memoryPolicy in the spec"
is "$(awk 'NR == 1 { print $2 }' "/proc/$init/numa_maps")" default "linux.memoryPolicy: the class's policy is not set"
like "$(jq -r '.plan.reasons[]' "$state_dir/containers/red.json")" "linux.memoryPolicy" "linux.memoryPolicy: and why"
over red | hook poststop
write_policy

# ---- the end of a container ----------------------------------------------------------------------------------------

forgets() { # NAME STATE
	printf '%s' "$2" | hook poststop
	is "$status $out$err" "0 " "poststop: $1"
}
forgets "unknown id" '{"id": "nobody", "pid": 1, "bundle": "/x"}'
forgets "unknown id, no pid" '{"id": "nobody", "status": "stopped"}'
printf '{"id": "nobody"}' | hook poststart
is "$status $out$err" "0 " "poststart: unknown id"
write_bundle
state red "$init" "$bundle" | hook createRuntime
is "$(cd "$state_dir/containers" && echo *)" red.json "poststop: there is an entry"
# The process of red lives: whoever calls poststop then has another container of this id in mind.
printf '{"id": "red", "bundle": "/elsewhere"}' | hook poststop
is "$status $out$err $(cd "$state_dir/containers" && echo *)" \
	"0 cotenant-hook: container red: poststop: the container that is on record by this id still runs: its place stays its own red.json" \
	"poststop: over a container that runs"
over red >/dev/null
forgets "known id, no pid" '{"id": "red"}'
is "$(cd "$state_dir/containers" && echo *)" '*' "poststop: the entry is gone"
printf '{"id": "../red"}' |
	refused "poststop: id that is a path" "cotenant-hook: poststop: container state:1:8: id \"../red\": '/' is not allowed, only letters, digits and _+-. are" poststop
