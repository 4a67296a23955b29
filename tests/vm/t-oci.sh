#!/bin/sh
# Guest script: the files of oci-examples as they stand, the stages around them, and the keeper.
set -u
# shellcheck source=tests/vm/cotenant.sh
. tests/vm/cotenant.sh
write_policy
examples=oci-examples

state_json() { # ID
	printf '{"ociVersion": "1.0.2", "id": "%s", "status": "stopped"}' "$1"
}

run_hook() { # STAGE <STATE
	# shellcheck disable=SC2086 # options
	"$hook" "$1" --policy "$policy" --state-dir "$state" $hook_options
}

# ---- stages ----

for runtime in $(runtimes); do
	on="stages $runtime"
	bundle a cookie red "" ".hooks.prestart = $(hook_entry prestart)"
	launch "$runtime" a && wait_report a
	ok "$on: prestart and createRuntime both wired: the container starts"
	is "$(said a first)" "$(cookies_of "$(anchor_of red)")" "$on: both wired: it has its cookie"
	is "$(entry_of a .state) $(anchors | wc -l)" "done 1" "$on: both wired: placed once, by one anchor"
	is "$(entry_of a .started)" true "$on: poststart recorded that it runs"
	stop_all "$on"

	bundle p cookie red "" ".hooks |= {prestart: $(hook_entry prestart), poststop: .poststop}"
	launch "$runtime" p && wait_report p
	ok "$on: prestart alone: the container starts"
	is "$(said p first)" "$(cookies_of "$(anchor_of red)")" "$on: prestart alone: it has its cookie"
	is "$(entry_of p .started)" false "$on: without poststart nothing says that it runs"
	stop_all "$on prestart"

	bundle c cookie red ""
	echo "$runtime c" >>"$work/started"
	"$runtime" create -b "$work/c" c >"$work/c.log" 2>&1 </dev/null
	ok "$on: create"
	# runc runs poststart hooks at the end of create.
	is "$(entry_of c .started)" "$([ "$runtime" = runc ] && echo true || echo false)" "$on: created and not started: recorded as started by runc only"
	is "$(cookies_of "$(pid_of c)")" "$(cookies_of "$(anchor_of red)")" "$on: created and not started: it has its cookie"
	"$runtime" start c >>"$work/c.log" 2>&1
	ok "$on: start" wait_report c
	is "$(entry_of c .started)" true "$on: started: recorded"
	stop "$runtime" c
	ok "$on: the first poststop has done its work" [ ! -e "$state/containers/c.json" ]
	state_json c | run_hook poststop
	ok "$on: poststop once more succeeds"
	state_json never-was | run_hook poststop
	ok "$on: poststop of an unknown container succeeds"
	state_json never-was | run_hook poststart
	ok "$on: poststart of an unknown container succeeds"
	stop_all "$on create"
done

# ---- the files. Only what an emulated machine and a test directory need is put in: options and a longer timeout. ----

adapted='(.hooks[][] | select(.path == "/usr/local/sbin/cotenant-hook")) |= (.path = "'$hook'"
	| .args += ["--policy", "'$policy'", "--state-dir", "'$state'", "--timeout", "50"] | .timeout = 60)'

placed() { # WHAT RUNTIME ID GROUP
	launch "$2" "$3" && wait_report "$3"
	ok "$1: the container starts"
	is "$(said "$3" first)" "$(cookies_of "$(anchor_of "$4")")" "$1: it has its cookie"
	is "$(entry_of "$3" .started)" true "$1: and is recorded as started"
	stop_all "$1"
}

for runtime in $(runtimes); do
	# As README.md says, with the command that it gives.
	on="examples $runtime/config-hooks.json"
	bundle h cookie red "" 'del(.hooks)'
	jq --slurpfile add "$examples/$runtime/config-hooks.json" \
		'.hooks = reduce ($add[0].hooks | to_entries[]) as $h (.hooks // {}; .[$h.key] += $h.value)' \
		"$work/h/config.json" >"$work/merged"
	ok "$on: can be merged"
	is "$(jq -r '.hooks | keys_unsorted | join(" ")' "$work/merged")" "createRuntime poststart poststop" "$on: has the three stages"
	is "$(jq -r '.hooks | to_entries[] | .key as $k | .value[] | "\(.path) \(.args | join(" ")) \($k == .args[1])"' "$work/merged" | sort -u)" \
		"$(for s in createRuntime poststart poststop; do echo "/usr/local/sbin/cotenant-hook cotenant-hook $s true"; done)" \
		"$on: each stage calls the installed hook with its own name"
	jq "$adapted" "$work/merged" >"$work/h/config.json"
	placed "$on" "$runtime" h red

	# As podman and CRI-O make hooks of hooks.d.
	on="examples hooks.d $runtime"
	bundle d cookie red "" 'del(.hooks)'
	jq --slurpfile files /dev/stdin \
		'reduce ($files[] | .hook as $hook | .stages[] | {stage: ., hook: $hook}) as $h (.; .hooks[$h.stage] += [$h.hook])' \
		"$work/d/config.json" <<FILES >"$work/merged"
$(cat $examples/hooks.d/*.json)
FILES
	is "$(jq -r '.hooks | keys | join(" ")' "$work/merged")" "createRuntime poststart poststop" "$on: the three stages"
	jq "$adapted" "$work/merged" >"$work/d/config.json"
	placed "$on" "$runtime" d red

	# A container's config as containerd makes it of its base spec.
	on="examples base_runtime_spec.json $runtime"
	bundle b cookie red ""
	# shellcheck disable=SC2016
	jq --slurpfile made "$work/b/config.json" '$made[0] as $m | .process += {args: $m.process.args, env: $m.process.env}
		| .annotations = $m.annotations | .linux.cgroupsPath = $m.linux.cgroupsPath' \
		$examples/containerd/base_runtime_spec.json | jq "$adapted" >"$work/b.json" && mv "$work/b.json" "$work/b/config.json"
	placed "$on" "$runtime" b red
done

for file in "$examples"/hooks.d/*.json; do
	is "$(jq -r '[.version, .hook.path, (.hook.args | join(" ")), (.stages | join(" ")), .when.always] | map(tostring) | join(" ")' "$file")" \
		"1.0.0 /usr/local/sbin/cotenant-hook cotenant-hook $(jq -r '.stages[0]' "$file") $(jq -r '.stages[0]' "$file") true" \
		"examples ${file##*/}: as oci-hooks(5) wants it, always, with its own stage"
done

# ---- each sample policy places a container of each of its tenants ----

with_policy() { # FILE RUNTIME ID GROUP CLASS MECHANISM "ANNOTATIONS"
	on="examples policies/$1"
	install -m 600 "$examples/policies/$1" "$policy"
	bundle "$3" none none "touch=1" ".annotations |= ({$7} + {\"run.oci.hooks.stderr\": .\"run.oci.hooks.stderr\"})"
	launch "$2" "$3" && wait_report "$3"
	ok "$on: $3 starts"
	[ -e "$work/$3/rootfs/tmp/report" ] || diag "$(log "$3")"
	is "$(entry_of "$3" '"\(.group) \(.class) \(.plan.mechanism) \(.state)"')" "$4 $5 $6 done" "$on: $3 is placed as the file says"
	is "$(effective "$(pid_of "$3")" cpus)" "$(entry_of "$3" .plan.cpus)" "$on: $3: effective CPUs are the planned ones"
	[ "$6" != cookie ] || is "$(said "$3" first)" "$(cookies_of "$(anchor_of "$4")")" "$on: $3: it has its cookie"
}

for file in "$examples"/policies/*.json; do
	install -m 600 "$file" "$policy"
	ok "examples ${file#"$examples"/}: cotenant check finds no error" "$build/cotenant" check "$policy"
done
with_policy cookie-default.json runc one one default cookie ""
stop_all "$on"
with_policy cores-for-databases.json runc db database%2Fdb database cores '"io.kubernetes.cri-o.ImageName": "docker.io/library/postgres:16"'
is "$(each "$(effective "$(pid_of db)" cpus)" | wc -l)" 4 "$on: the database has 4 CPUs of its own"
is "$(said db policy)" "bind=static:1" "$on: and memory on their node"
with_policy cores-for-databases.json crun pod pod%2Fp1 shared cookie '"io.kubernetes.cri-o.SandboxID": "p1"'
stop_all "$on"
with_policy demo.json crun batch red batch cookie '"org.example.tenant": "red", "org.example.class": "batch"'
like "$(said batch policy)" "^weighted interleave=static:" "$on: the batch job interleaves"
is "$(weights)" "5 5 1" "$on: by the policy's weights"
with_policy demo.json runc web blue web cookie '"org.example.tenant": "blue"'
stop_all "$on"
with_policy dram-cxl-batch.json runc job batch-1 batch cookie '"io.kubernetes.cri.sandbox-namespace": "batch-1"'
like "$(said job policy)" "^weighted interleave=static:" "$on: the batch job interleaves"
with_policy dram-cxl-batch.json crun service shop service cookie '"io.kubernetes.cri.sandbox-namespace": "shop"'
like "$(said service policy)" "^bind=static:[01]$" "$on: the service stays in DRAM"
stop_all "$on"
with_policy single-tenant-per-namespace.json runc shop shop namespace cookie '"io.kubernetes.cri.sandbox-namespace": "shop"'
with_policy single-tenant-per-namespace.json crun dns kube-system infra none \
	'"io.kubernetes.pod.namespace": "kube-system", "io.kubernetes.cri-o.ContainerID": "dns"'
stop_all "$on"
is "$(for file in "$examples"/policies/*.json; do grep -c "with_policy ${file##*/} " tests/vm/t-oci.sh; done | grep -cx 0)" 0 \
	"examples: every sample policy was tried"

# ---- the keeper ----

on="keeper"
write_policy
"$build/cotenant-anchor" --keep --state-dir "$state" &
keeper=$!
ok "$on: it listens" wait_for "[ -S $state/keeper ]" 30
for runtime in $(runtimes); do
	on="keeper $runtime"
	bundle k cookie red ""
	"$runtime" run -b "$work/k" k >"$work/k.log" 2>&1 </dev/null &
	foreground=$!
	echo "$runtime k" >>"$work/started"
	ok "$on: a container starts in the foreground" wait_report k
	anchor=$(anchor_of red)
	is "$(said k first)" "$(cookies_of "$anchor")" "$on: it has its cookie"
	is "$(awk '/^PPid/ { print $2 }' "/proc/$anchor/status")" $keeper "$on: the keeper is the anchor's parent"
	is "$(sed -n 's/^Seccomp:.//p;s/^CapEff:.//p' "/proc/$anchor/status" | tr '\n' ' ')" "0000000000000000 2 " \
		"$on: this anchor too has no capability and a seccomp filter"
	is "$(cookies_of $keeper)" 0x0 "$on: the keeper itself has cookie 0"
	started "$on" "$runtime" k2 cookie red "" && is "$(said k2 first)" "$(said k first)" "$on: a second container shares it"
	"$runtime" kill k KILL
	ok "$on: run in the foreground ends with its container, though the anchor lives on" wait_for "ended $foreground" $wait_s
	is "$(anchor_of red)" "$anchor" "$on: which it does"
	stop_all "$on"
done
kill $keeper
finish
