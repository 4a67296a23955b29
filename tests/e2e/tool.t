#!/bin/bash
# shellcheck disable=SC2013,SC2016,SC2119 # programs of jq and templates in single quotes; words without spaces
# cotenant, what is installed, and whether the documents tell the truth.
. tests/e2e/lib.bash
tool() { timeout 60 "$bin/cotenant" --state-dir "$state_dir" "$@" 2>&1; echo "$?"; }

# ---- check ---------------------------------------------------------------------------------------------------------

for sample in oci-examples/policies/*.json; do
	name=${sample##*/}
	install -m 600 "$sample" "$work/$name"
	like "$(tool check "$work/$name")" "^$work/$name: right: [0-9]+ class(es)?, [0-9]+ rules?$" "check: $sample"
	is "$(tool check "$work/$name" | tail -n 1)" 0 "check: $sample: status"
done
for toml in oci-examples/containerd/*.toml; do
	is "$(sed -n "s/^ *base_runtime_spec = [\"']\(.*\)[\"']$/\1/p" "$toml")" /etc/containerd/cotenant-base-spec.json "$toml: names the base spec"
	ok "$toml: where README says" grep -q '`/etc/containerd/cotenant-base-spec.json`' README.md
	! command -v python3 >/dev/null || ok "$toml: is TOML" python3 -c 'import sys
try: import tomllib
except ImportError: sys.exit(0)
tomllib.load(open(sys.argv[1], "rb"))' "$toml"
done
awk '/^```jsonc$/ { on = 1; next } /^```$/ { on = 0 } on' README.md >"$work/readme.json"
is "$(tool check "$work/readme.json")" "$work/readme.json: right: 3 classes, 3 rules"$'\n'0 "check: the policy in README.md"
write_policy '.rules[0].tenant = "${annotation:a.b}" | .rules[0].trust = true'
is "$(tool check "$policy")" "warning: $policy:16:17: rules[0].tenant: a.b is trusted, so whoever starts a container chooses its tenant, that of others included
$policy: right: 1 class, 1 rule
0" "check: a warning is no error"
is "$(tool --policy "$policy" check | tail -n 2)" "$policy: right: 1 class, 1 rule"$'\n'0 "check: --policy"
(cd "$work" && like "$(tool check policy.json)" "^policy.json: right" "check: a relative name")

# With the machine, and with another one.
write_policy '.node.reserved_cpus = "0-4095"'
is "$(tool check "$policy")" \
	"cotenant: $policy:21:22: node.reserved_cpus: leaves no CPU for containers: the machine's online CPUs are $(</sys/devices/system/cpu/online)"$'\n'1 \
	"check: a policy that leaves this machine no CPU"
mkdir "$work/other"
cp "$policy" "$work/other/policy.json"
is "$(tool --root "$work/other" check /policy.json)" \
	"not compared with the machine: the machine's topology cannot be found out: cotenant-topology: root directory $work/other: sys/devices/system/cpu: No such file or directory
/policy.json: right: 1 class, 1 rule
0" "check: below a root that holds no machine"
mkdir "$work/alone"
cp "$bin/cotenant" "$work/alone/"
if [ ! -e /usr/local/libexec/cotenant/cotenant-topology ]; then
	like "$("$work/alone/cotenant" check "$policy" 2>&1)" "^not compared with the machine: .*cotenant-topology cannot be run" \
		"check: without the helper"
fi
is "$(ls -A "$state_dir" "$work/other" 2>&1)" "ls: cannot access '$state_dir': No such file or directory
$work/other:
policy.json" "check: creates nothing"

tool check --help-policy >"$work/help"
jq -r '[paths | select(length > 1 and .[-2] == "properties")] | map(.[-1]) | unique - ["regex"] | .[]' policy/policy.schema.json >"$work/keys" # regex: a form of every pattern
ok "the schema has keys" test "$(wc -l <"$work/keys")" -gt 40
is "$(while read -r key; do grep -qE "(^|\.)[$]?${key#\$}:" "$work/help" || echo "$key"; done <"$work/keys")" "" "check --help-policy: every key of the schema"
is "$(sed -n 's/^\([^ :]*\):.*/\1/p' "$work/help" | sed 's/.*\.//' | while read -r key; do grep -qF -- "$key" policy/cotenant-policy.5 || echo "$key"; done)" \
	"" "cotenant-policy(5): every key of --help-policy"
is "$(tail -n 1 "$work/help")" 0 "check --help-policy: status"

# ---- usage ---------------------------------------------------------------------------------------------------------

hint="Try cotenant --help, or cotenant(1)."$'\n'2
is "$(tool check a b)" "cotenant check: b: one argument too many"$'\n'2 "check: two files"
is "$(tool support x)" "cotenant support: x: one argument too many"$'\n'2 "support: an argument"
is "$(tool frob | sed -n '1p;$p')" 'cotenant: frob: is no verb'$'\n'2 "unknown verb"
is "$(tool $'x\e[31m' | head -n 1)" 'cotenant: x\x1b[31m: is no verb' "terminal codes for a verb"
for option in --policy --root --state-dir; do
	is "$(cd "$work" && tool $option "" status)" "cotenant: $option: must not be empty"$'\n'2 "$option ''"
done
is "$(tool check "")" "cotenant check: '': must not be empty"$'\n'2 "check ''"
is "$(tool --frob)" "$bin/cotenant: unrecognized option '--frob'"$'\n'"$hint" "unknown option"
for verb in check status support; do
	is "$(tool "$verb" --frob)" "$bin/cotenant: unrecognized option '--frob'"$'\n'"$hint" "$verb: unknown option"
	is "$(tool "$verb" -x)" "$bin/cotenant: invalid option -- 'x'"$'\n'"$hint" "$verb: unknown letter"
	is "$(tool "$verb" --help)" "$(tool help)" "$verb: --help"
done
is "$(tool status --json)" "cotenant status: --json: is not there yet, the table is all there is"$'\n'2 "status: --json"
is "$(tool status --help-policy)" "cotenant status: --help-policy: is for check"$'\n'2 "status: --help-policy"
like "$(tool check -- --frob)" "^cotenant: --frob: there is none" "check: a name that begins like an option"
is "$(tool | sed -n '1p;$p')" "usage: cotenant [OPTION...] VERB [ARGUMENT]"$'\n'2 "no verb"
is "$(tool help | sed -n '1p;$p')" "usage: cotenant [OPTION...] VERB [ARGUMENT]"$'\n'0 "help"
is "$(tool status "$work" --policy "$policy" --version)" "cotenant $(sed -n 's/^## \([0-9.]*\).*/\1/p' NEWS.md | head -n 1)"$'\n'0 "--version"
is "$("$bin/cotenant-topology" --version)" "cotenant-topology $(tool --version | sed 's/cotenant //;q')" "cotenant-topology --version"
for wanted in "help" "--version" "check --help-policy" "support" "check $work/cookie-default.json"; do
	# shellcheck disable=SC2086 # words
	"$bin/cotenant" $wanted >/dev/full 2>"$work/err"
	is "$? $(<"$work/err")" "1 cotenant: standard output: No space left on device" "$wanted: what cannot be written was not said"
done

# Options stand in --help and in the manual, with one default.
options() { grep -oE -- '--[a-z][a-z-]+' | sort -u; }
page=$(<cli/cotenant.1)
is "$("$bin/cotenant" --help | options)" "$(grep '^\.It Fl' cli/cotenant.1 | sed 's/Fl -/--/g' | options)" "cotenant(1): the options of --help"
for word in /etc/cotenant/policy.json /run/cotenant XDG_RUNTIME_DIR; do
	like "$("$bin/cotenant" --help)" "$word" "--help: default $word"
	like "$page" "$word" "cotenant(1): default $word"
done
is "$("$bin/cotenant-hook" --help | options)" "$(sed -n 's/^\.It Fl -/--/p' hook/cotenant-hook.8 | options | grep -v -- '^--help$')" \
	"cotenant-hook(8): the options of --help"
is "$("$bin/cotenant" --help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p' | sort)" "$(sed -n 's/^\.It Cm \([a-z]*\)\( .*\)\?$/\1/p' cli/cotenant.1 | sort)" \
	"cotenant(1): the verbs of --help"
# What a reader of the page sees and copies, not what stands in its source: macros eat quotes.
if command -v mandoc >/dev/null; then
	for page in cli/*.1 policy/*.5 hook/*.8; do
		mandoc -T ascii "$page" | col -bx >"$work/page"
		# Quoted pieces that look like it, in lines that are joined again.
		while read -r json; do
			is "$(jq . <<<"$json" >/dev/null 2>&1; echo "$?")" 0 "$page: $json is JSON"
		done < <(tr -s ' \n' '  ' <"$work/page" | grep -oE "[\`'][][{}\"][^']*'" | grep '[]}]' | tr -d "\`'" | sed 's/^".*/{&}/' | sort -u)
		# Examples: from a line that begins one to the next that is not indented as deep or more.
		awk -v into="$work/example" '/^ +("hooks": )?\{$/ && !on { on = match($0, /[^ ]/); n++ }
			on { if (/^ *$/ || match($0, /[^ ]/) < on) on = 0; else print >(into "." n) }' "$work/page"
		for example in "$work"/example.*; do
			[ -e "$example" ] || continue
			grep -q '^ *"hooks"' "$example" && sed -i '1s/^/{/; $s/$/}/' "$example"
			ok "$page: ${example##*/} is JSON" jq . "$example"
			rm "$example"
		done
	done
else
	skip "mandoc" "what the manual pages show is JSON"
fi
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
ok "support creates nothing" test ! -e "$state_dir"
is "$("$bin/cotenant-topology" --print | jq -s '[.[1].cores[].threads | map(split(",")[]) | length] | length > 0')" true "cotenant-topology --print"
is "$(tool --root "$work" support)" \
	"cotenant: the machine's topology cannot be found out: cotenant-topology: root directory $work: sys/devices/system/cpu: No such file or directory"$'\n'1 \
	"support: a root that holds no machine"

# ---- what README.md and the examples say -----------------------------------------------------------------------------

for target in $(grep -oE '\bmake [a-z-]+' README.md | cut -d ' ' -f 2 | sort -u); do
	ok "README.md: make $target" grep -q "^$target:" Makefile
done
sed -n '/^    jq --slurpfile/,/config\.json$/p' README.md | sed "s|/usr/local/share/cotenant/examples|oci-examples|" >"$work/merge"
mkdir "$work/merged"
echo '{"hooks": {"poststop": [{"path": "/bin/true"}]}, "root": {"path": "rootfs"}}' >"$work/merged/config.json"
ln -s "$PWD/oci-examples" "$work/merged/oci-examples"
(cd "$work/merged" && sh "$work/merge")
is "$(jq -c '[.root.path, (.hooks.poststop | length), .hooks.createRuntime[0].path, .hooks.createRuntime[0].args[1]]' "$work/merged/config.json")" \
	'["rootfs",2,"/usr/local/sbin/cotenant-hook","createRuntime"]' "README.md: the jq command merges the hooks"
for file in oci-examples/runc/config-hooks.json oci-examples/crun/config-hooks.json oci-examples/hooks.d/*.json \
	oci-examples/containerd/base_runtime_spec.json; do
	is "$(jq -r '[.. | objects | select(has("args") and has("path")) | .path + " " + .args[1]] | unique[]' "$file" |
		grep -vE '^/usr/local/sbin/cotenant-hook (createRuntime|poststart|poststop)$')" "" "$file: paths and stages"
	ok "$file: names the hook" grep -q /usr/local/sbin/cotenant-hook "$file"
done
