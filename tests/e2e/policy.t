#!/bin/bash
# shellcheck disable=SC2013,SC2016,SC2119 # programs of jq and templates in single quotes; words without spaces
# Bad policies: the hook refuses with exactly one line and changes nothing; `cotenant check` says the same.
. tests/e2e/lib.bash
init_start "bad policies" || exit 0
write_bundle
write_policy
state warm "$init" "$bundle" | hook createRuntime
over warm | hook poststop
red="cotenant-hook: container red: createRuntime: policy"

# The file as it is. Both programs say REASON.
bad() { # NAME REASON [EXIT-OF-CHECK]
	local before
	state red "$init" "$bundle" | refused "$1" "$red: $2" createRuntime
	before=$(snapshot)
	is "$(timeout 20 "$bin/cotenant" check "$policy" 2>&1; echo "$?")" "cotenant: $2"$'\n'"${3-1}" "check: $1"
	is "$(snapshot)" "$before" "check: $1: nothing changed"
}
bad_text() { # NAME PLACE-AND-REASON TEXT
	rm -rf "$policy"
	printf '%s' "$3" >"$policy"
	bad "$1" "$policy:$2"
}
bad_edit() { # NAME PLACE-AND-REASON JQ-EDIT
	write_policy "$3"
	bad "$1" "$policy:$2"
}

# ---- the file ----------------------------------------------------------------------------------------------------

rm -f "$policy"
bad "missing" "$policy: there is none: write one (cotenant-policy(5)) or name one with --policy"
: >"$policy"
bad "empty" "$policy: is empty; the least that says something is in cotenant-policy(5)"
rm "$policy" && mkdir "$policy"
bad "a directory" "$policy: is a directory; name the policy in it"
rmdir "$policy" && mkfifo "$policy"
bad "a FIFO" "$policy: is not a regular file"
rm "$policy" && truncate -s 200M "$policy"
bad "200 MB" "$policy: is larger than 1048576 bytes"
write_policy
for mode in 0646 0664; do
	chmod "$mode" "$policy"
	bad "mode $mode" "$policy: mode $mode lets others change it: chmod go-w $policy" 4
done
if [ "$(id -u)" = 0 ]; then
	write_policy
	chown 65534 "$policy"
	bad "another's" "$policy: belongs to user 65534, and must be root's: chown root $policy" 4
else
	skip "root" "another's"
fi
write_policy
mkdir -m 777 "$work/open"
chmod 777 "$work/open"
cp "$policy" "$work/open/"
state red "$init" "$bundle" | refused "in a directory that others can write" \
	"$red: $work/open/: mode 0777 lets others change it: chmod go-w $work/open/" createRuntime --policy "$work/open/policy.json"

# ---- drop-ins ----------------------------------------------------------------------------------------------------

mkdir "$work/policy.d"
echo '{"version": 1, "classes": {"own": {}}}' >"$work/policy.d/10.json"
bad "drop-in that defines a class again" \
	"$work/policy.d/10.json:1:28: classes.own: class \"own\" is defined twice; the first is at $policy:4:5"
: >"$work/policy.d/10.json"
bad "empty drop-in" "$work/policy.d/10.json: is empty; the least that says something is in cotenant-policy(5)"
rm "$work/policy.d/10.json" && mkfifo "$work/policy.d/10.json"
bad "drop-in that is a FIFO" "$work/policy.d/10.json: is not a regular file"
rm "$work/policy.d/10.json"
chmod 777 "$work/policy.d"
bad "drop-ins that others can write" "$work/policy.d: mode 0777 lets others change it: chmod go-w $work/policy.d" 4
rm -r "$work/policy.d"

# ---- the text ----------------------------------------------------------------------------------------------------

bad_text "only spaces" "2:1: empty: a JSON document is expected" $' \n'
bad_text "cut short" "3:1: cut short: a key in double quotes or '}' expected (the object from 2:13 is still open)" \
	$'{\n\t"classes": {\n'
bad_text "malformed" "2:12: ':' after the key expected, found '1'" $'{\n\t"version" 1\n}'
bad_text "open comment" "1:15: a comment that is not closed by */" '{"version": 1 /* '
bad_text "text after the end" "1:15: text after the end of the document: x" '{"version":1} x'
bad_text "10,000 levels" "1:33: nested deeper than 32 arrays and objects" "$(printf '%010000d' 0 | tr 0 '[')"
bad_text "invalid UTF-8" "1:14: byte \\xff is not UTF-8" $'{"version": "\xff"}'
bad_text "a key twice" '2:2: key "version" again: it stands at 1:2 already' $'{"version": 1,\n "version": 1}'
bad_text "an array" "1:1: the document: found an empty array, expected an object" '[]'
bad_text "no version" '1:1: the document: key "version" is missing' '{}'

# ---- keys and values -----------------------------------------------------------------------------------------------

bad_edit "another version" "2:14: version: found 2, expected the number 1" '.version = 2'
bad_edit "unknown key" '20:3: clases: unknown key "clases"; known here: $schema, version, node, classes, rules, on_error (did you mean "classes"?)' '.clases = {}'
bad_edit "unknown key within a class" '7:9: classes.own.isolation.mod: unknown key "mod"; known here: mode, scope, on_unsupported, guard, exec (did you mean "mode"?)' \
	'.classes.own.isolation.mod = "cores"'
bad_edit "wrong type" "6:17: classes.own.isolation.mode: found 1, expected one of: cookie, cores, auto, none" \
	'.classes.own.isolation.mode = 1'
bad_edit "wrong word" '6:17: classes.own.isolation.mode: found "core", expected one of: cookie, cores, auto, none (did you mean "cores"?)' \
	'.classes.own.isolation.mode = "core"'
bad_edit "weight 0" "22:15: node.weights.dram: found 0, expected a weight from 1 to 255" '.node.weights = {dram: 0}'
bad_edit "weight 256" "22:15: node.weights.dram: found 256, expected a weight from 1 to 255" '.node.weights = {dram: 256}'
bad_edit "weights by tier and by node" "23:7: node.weights.0: weights are either all by tier or all by node number" \
	'.node.weights = {dram: 2, "0": 3}'
bad_edit "reserved CPUs that are no list" '21:22: node.reserved_cpus: found "zz", expected a list of CPUs such as "0-3,8"' \
	'.node.reserved_cpus = "zz"'
bad_edit "reserved CPU beyond all" '21:22: node.reserved_cpus: "5000" names a CPU above 4095, the highest that is supported' \
	'.node.reserved_cpus = "5000"'
bad_edit "node beyond all" '13:18: classes.own.memory.nodes: "64" names a node above 63, the highest that is supported' \
	'.classes.own.memory = {policy: "bind", nodes: "64"}'
bad_edit "no rule" '1:1: the document: there is no rule, so no container could start; a last rule with "match": {} is for all others' \
	'.rules = []'
bad_edit "unknown class" '17:16: rules[0].class: there is no class "ownn"; defined are: own (did you mean "own"?)' '.rules[0].class = "ownn"'
bad_edit "unknown variable" '16:17: rules[0].tenant: "${nope}": unknown variable; known are: ${id}, ${annotation:KEY}, ${cgroup}, ${image}, ${uid}' \
	'.rules[0].tenant = "${nope}"'
bad_edit "tenant that the container's owner chooses" '16:17: rules[0].tenant: a.b is chosen by whoever starts the container, who could thus join any tenant; use what the runtime writes, such as io.kubernetes.cri.sandbox-namespace or io.kubernetes.pod.namespace, or say "trust": true' \
	'.rules[0].tenant = "${annotation:a.b}"'
bad_edit "bad regular expression" '17:20: rules[0].match.id.regex: not a POSIX extended regular expression: Unmatched ( or \(' \
	'.rules[0].match = {id: {regex: "("}}'
bad_edit "regular expression that would take gigabytes" '17:20: rules[0].match.id.regex: at its byte 19: a regular expression may come to 128 characters with its repeats written out; shorten the repeats, use a glob, or make several rules of it' \
	'.rules[0].match = {id: {regex: "((((a{1,20}){1,20}){1,20}){1,20}){1,20}"}}'

# ---- right in itself, but not here -----------------------------------------------------------------------------------

online=$(</sys/devices/system/cpu/online)
nodes=$(cat /sys/devices/system/node/has_memory 2>/dev/null || echo 0)
not_here() { # NAME REASON JQ-EDIT
	write_policy "$3"
	bad "$1" "$2" 1
}
not_for_red() { # NAME REASON JQ-EDIT
	write_policy "$3"
	state red "$init" "$bundle" | refused "$1" "$red: $2" createRuntime
	like "$("$bin/cotenant" check "$policy" 2>&1)" "right: 1 class, 1 rule$" "check: $1"
}
not_here "node that does not exist" "$policy:13:18: classes.own.memory.nodes: this machine has no NUMA node 62; it has: $nodes" \
	'.classes.own.memory = {policy: "bind", nodes: "62"}'
not_here "tier of a node that does not exist" "$policy:22:14: node.tiers.cxl: this machine has no NUMA node 62; it has: $nodes" \
	'.node.tiers = {cxl: "62"}'
for reserved in 0-4095 "$online"; do
	not_here "reserved CPUs $reserved" \
		"$policy:21:22: node.reserved_cpus: leaves no CPU for containers: the machine's online CPUs are $online" \
		".node.reserved_cpus = \"$reserved\""
done
not_for_red "no rule for this container" \
	"container red: none of the 1 rules of $policy matches; add a rule for it, or a last one with \"match\": {}" \
	'.rules[0].match = {id: "blue"}'
not_for_red "annotation that the container lacks" \
	"$policy:16:17: rules[0].tenant: container red has no annotation a.b, so its tenant cannot be told; add a condition for it, or a rule before this one" \
	'.rules[0].tenant = "${annotation:a.b}" | .rules[0].trust = true'

# Conditions on what the hook finds out itself, each by a rule that matches and one that does not.
matches() { # NAME CONDITION OTHER-CONDITION
	write_policy ".rules[0].match = $2"
	state red "$init" "$bundle" | hook createRuntime
	is "$status $out$err" "0 " "rule by $1: matches"
	over red | hook poststop
	not_for_red "rule by $1: does not match" \
		"container red: none of the 1 rules of $policy matches; add a rule for it, or a last one with \"match\": {}" \
		".rules[0].match = $3"
}
matches cgroup "{cgroup: \"/${cgroup##*/}\"}" '{cgroup: "/none/*"}'
matches uid '{uid: {min: 0, max: 0}}' '{uid: {min: 1, max: 9}}'
matches stage '{stage: "createRuntime"}' '{stage: "prestart"}'

# A machine that has core scheduling, and denies it to cotenant.
if strace -o /dev/null true 2>/dev/null; then
	denied() { # ON-UNSUPPORTED
		write_policy ".classes.own.isolation = {mode: \"cookie\", on_unsupported: \"$1\", guard: false}"
		state red "$init" "$bundle" | { strace -qq -o /dev/null -e inject=prctl:error=EPERM "$bin/cotenant-hook" createRuntime \
			--policy "$policy" --state-dir "$state_dir" 2>&1; echo "$?"; }
	}
	like "$(denied refuse)" 'wants a core-scheduling cookie: .* \(denied\); run cotenant as root with CAP_SYS_PTRACE' "core scheduling denied: refused"
	is "$(denied cores) $(jq -r .plan.mechanism "$state_dir/containers/red.json")" "0 cores" "core scheduling denied: whole cores in its place"
	over red | hook poststop
	is "$(denied degrade) $(jq -r '[.state, .plan.mechanism] | join(" ")' "$state_dir/containers/red.json")" "0 degraded none" \
		"core scheduling denied: degraded"
	over red | hook poststop
else
	skip "strace" "core scheduling denied"
fi

write_policy '.classes.own.cpu.count = 500'
state red "$init" "$bundle" | hook createRuntime
is "$status" 1 "more CPUs than there are"
like "$err" '^cotenant-hook: container red: createRuntime: placement: no room for container red: class "own" wants whole cores for 500.00 CPUs within node, and the most to be had is [0-9.]+ \(node [0-9]+\); the rest is reserved, owned by others, or the last that a neighbour may run on. Stop a container, ask for fewer CPUs, or widen cpu.span$' \
	"more CPUs than there are: message"
case $("$bin/cotenant" --state-dir "$state_dir" support | grep '^Core') in
*no-kernel-option*)
	write_policy '.classes.own.isolation.mode = "cookie"'
	state red "$init" "$bundle" | refused "cookie on a kernel without core scheduling" \
		'cotenant-hook: container red: createRuntime: placement: container red: class "own" wants a core-scheduling cookie: this kernel is built without core scheduling (no-kernel-option); boot a kernel with CONFIG_SCHED_CORE=y, or set isolation.on_unsupported to cores or degrade' \
		createRuntime
	;;
*) skip "a kernel without core scheduling" "cookie on a kernel without core scheduling" ;;
esac
