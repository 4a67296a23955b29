#!/bin/bash
# shellcheck disable=SC2013,SC2016,SC2119 # programs of jq and templates in single quotes; words without spaces
# cotenant, what is installed, and whether the documents tell the truth.
. tests/e2e/lib.bash
make=${MAKE:-make}
tool() { timeout 60 "$bin/cotenant" --state-dir "$state_dir" "$@" 2>&1; echo "$?"; }

# ---- check ---------------------------------------------------------------------------------------------------------

for sample in oci-examples/policies/*.json; do
	name=${sample##*/}
	install -m 600 "$sample" "$work/$name"
	like "$(tool check "$work/$name")" "^$work/$name: right: [0-9]+ class(es)?, [0-9]+ rules?$" "check: $sample"
	is "$(tool check "$work/$name" | tail -n 1)" 0 "check: $sample: status"
done
awk '/^```jsonc$/ { on = 1; next } /^```$/ { on = 0 } on' README.md >"$work/readme.json"
is "$(tool check "$work/readme.json")" "$work/readme.json: right: 3 classes, 3 rules"$'\n'0 "check: the policy in README.md"
write_policy '.rules[0].tenant = "${annotation:a.b}" | .rules[0].trust = true'
is "$(tool check "$policy")" "warning: $policy:16:17: rules[0].tenant: a.b is trusted, so whoever starts a container chooses its tenant, that of others included
$policy: right: 1 class, 1 rule
0" "check: a warning is no error"
is "$(tool --policy "$policy" check | tail -n 2)" "$policy: right: 1 class, 1 rule"$'\n'0 "check: --policy"
(cd "$work" && like "$(tool check policy.json)" "^policy.json: right" "check: a relative name")

tool check --help-policy >"$work/help"
jq -r '[paths | select(length > 1 and .[-2] == "properties")] | map(.[-1]) | unique - ["regex"] | .[]' policy/policy.schema.json >"$work/keys" # regex: a form of every pattern
ok "the schema has keys" test "$(wc -l <"$work/keys")" -gt 40
is "$(while read -r key; do grep -qE "(^|\.)[$]?${key#\$}:" "$work/help" || echo "$key"; done <"$work/keys")" "" "check --help-policy: every key of the schema"
is "$(sed -n 's/^\([^ :]*\):.*/\1/p' "$work/help" | sed 's/.*\.//' | while read -r key; do grep -qF -- "$key" policy/cotenant-policy.5 || echo "$key"; done)" \
	"" "cotenant-policy(5): every key of --help-policy"
is "$(tail -n 1 "$work/help")" 0 "check --help-policy: status"

# ---- usage ---------------------------------------------------------------------------------------------------------

is "$(tool check a b)" "cotenant check: b: one argument too many"$'\n'2 "check: two files"
is "$(tool check --help-polici)" "cotenant check: --help-polici: unknown option, only --help-policy is known"$'\n'2 "check: unknown option"
is "$(tool support x)" "cotenant support: x: one argument too many"$'\n'2 "support: an argument"
is "$(tool frob | sed -n '1p;$p')" 'cotenant: "frob" is no verb'$'\n'2 "unknown verb"
is "$(tool --frob)" "$bin/cotenant: unrecognized option '--frob'"$'\n'2 "unknown option"
is "$(tool | sed -n '1p;$p')" "usage: cotenant [--policy FILE] [--state-dir DIR] [--root DIR] VERB [ARGUMENT]"$'\n'2 "no verb"
for verb in $(sed -n 's/^ *cotenant \([a-z]*\) .*#.*/\1/p' README.md); do
	like "$("$bin/cotenant" --help)" "^ +$verb " "README.md: cotenant $verb"
done

# ---- support and status ----------------------------------------------------------------------------------------------

support=$(tool support)
like "$support" "^This machine has $(nproc --all) CPUs on [0-9]+ cores? \([0-9] threads? a core\), [0-9]+ packages?, [0-9]+ NUMA nodes?, [0-9]+ of them without CPUs\.$" "support: the machine"
like "$support" '^Core scheduling: (supported|no-siblings|no-kernel-option|denied|known-bad): ' "support: core scheduling"
case $support in
*"Core scheduling: supported"* | *"Core scheduling: no-siblings"*) is "${support##*$'\n'}" 0 "support: status" ;;
*) is "${support##*$'\n'}" 3 "support: status" ;;
esac
like "$support" '^cpusets: (cgroup v[12]\.|no cpuset controller: containers cannot be kept on their CPUs\.)$' "support: cpusets"
is "$(grep -c '^Weighted interleave: known to this kernel\.$' <<<"$support")" \
	"$([ -d /sys/kernel/mm/mempolicy/weighted_interleave ] && echo 1 || echo 0)" "support: weighted interleave"
ok "support leaves the topology for the hook" test -s "$state_dir/topology"
is "$("$bin/cotenant-topology" --print | jq -s '[.[1].cores[].threads | map(split(",")[]) | length] | length > 0')" true "cotenant-topology --print"
is "$(tool --root "$work" support)" \
	"cotenant: the machine's topology cannot be found out: cotenant-topology: root directory $work: sys/devices/system/cpu: No such file or directory"$'\n'1 \
	"support: a root that holds no machine"

head=$(tool status)
is "$head" "CONTAINER  TENANT  CLASS  STATE  MECHANISM  CPUS  NODES  MEMORY  COOKIE"$'\n'0 "status: nothing there"
is "$(tool status nope)" "cotenant: container nope: not in the ledger $state_dir"$'\n'1 "status: unknown container"
if init_start "status: a container"; then
	write_policy
	write_bundle
	state red "$init" "$bundle" | hook createRuntime
	cpus=$(cat "$cgroup/cpuset.cpus")
	like "$(tool status)" "^red +red +own +done +cores +$cpus +[0-9,-]+ +[a-z-]+ +-$" "status: a container"
	like "$(tool status red)" "^red +red +own +done " "status: one container"
	cpus=$(cat "$cgroup/../cpuset.cpus")
	echo "$cpus" >"$cgroup/cpuset.cpus"
	like "$(tool status red)" "^red +red +own +[a-z]+ +cores +$cpus " "status: shows the kernel's CPUs, not the ledger's"
	kill -9 "$init"
	wait "$init" 2>/dev/null
	init=
	like "$(tool status red)" '^red +red +own +ended +cores +- ' "status: a container that ended"
fi

# ---- what README.md and the examples say -----------------------------------------------------------------------------

for target in $(grep -oE '\bmake [a-z-]+' README.md | cut -d ' ' -f 2 | sort -u); do
	ok "README.md: make $target" grep -q "^$target:" Makefile
done
sed -n "/^    jq --slurpfile/,/new\.json$/p" README.md >"$work/merge"
mkdir "$work/merged"
echo '{"hooks": {"poststop": [{"path": "/bin/true"}]}, "root": {"path": "rootfs"}}' >"$work/merged/config.json"
ln -s "$PWD/oci-examples" "$work/merged/oci-examples"
(cd "$work/merged" && sh "$work/merge")
is "$(jq -c '[.root.path, (.hooks.poststop | length), .hooks.createRuntime[0].path, .hooks.createRuntime[0].args[1]]' "$work/merged/new.json")" \
	'["rootfs",2,"/usr/local/sbin/cotenant-hook","createRuntime"]' "README.md: the jq command merges the hooks"
for file in oci-examples/runc/config-hooks.json oci-examples/crun/config-hooks.json oci-examples/hooks.d/*.json \
	oci-examples/containerd/base_runtime_spec.json; do
	is "$(jq -r '[.. | objects | select(has("args") and has("path")) | .path + " " + .args[1]] | unique[]' "$file" |
		grep -vE '^/usr/local/sbin/cotenant-hook (createRuntime|poststart|poststop)$')" "" "$file: paths and stages"
	ok "$file: names the hook" grep -q /usr/local/sbin/cotenant-hook "$file"
done
