#!/bin/sh
# Guest script: many containers at once. 50 of 5 tenants by 8 starters side by side, then all of them stopped so.
set -u
# shellcheck source=tests/vm/cotenant.sh
. tests/vm/cotenant.sh
write_policy
count=${COUNT:-50} tenants=5 lanes=8
make_bundle_base && cp "$entry" "$bundle_base/rootfs/bin/" || exit 1

# One root for all, read-only, with a /tmp of its own for each. What differs is filled in by sed.
# shellcheck disable=SC2016,SC2119
jq '.process.terminal = false | .process.args = ["entry"] | .hostname = "@ID@" | .root = {path: "'"$bundle_base"'/rootfs", readonly: true}
	| .linux.cgroupsPath = "/cotenant-vm/@ID@"
	| .mounts += [{destination: "/tmp", type: "tmpfs", source: "tmpfs", options: ["mode=1777"]}]
	| .annotations = {"org.example.class": "@CLASS@", "org.example.tenant": "@TENANT@", "run.oci.hooks.stderr": "@LOG@"}
	| '"$(wired)" "$bundle_base/config.json" >"$work/template"

# shellcheck disable=SC2317 # called by name, as are the next two
numbers() { # LANE
	seq "$1" "$lanes" "$count"
}

# shellcheck disable=SC2317
lane_start() { # RUNTIME LANE
	for n in $(numbers "$2"); do
		timeout 300 "$1" run --detach -b "$work/s$n" "s$n" >"$work/s$n.log" 2>&1 </dev/null || echo "s$n" >>"$work/failed"
	done
}

# shellcheck disable=SC2317
lane_stop() { # RUNTIME LANE
	for n in $(numbers "$2"); do
		timeout 300 "$1" delete --force "s$n" >"$work/s$n.log" 2>&1 </dev/null || echo "s$n" >>"$work/failed"
	done
}

failures() {
	[ ! -e "$work/failed" ] || while read -r id; do
		echo "$id: $(log "$id")"
	done <"$work/failed"
}

all_lanes() { # FUNCTION RUNTIME
	rm -f "$work/failed"
	lane_pids=
	for lane in $(seq 1 $lanes); do
		"$1" "$2" "$lane" &
		lane_pids="$lane_pids $!"
	done
	# shellcheck disable=SC2086
	wait $lane_pids
}

for runtime in $(runtimes); do
	on="storm $runtime"
	for n in $(seq 1 "$count"); do
		mkdir -p "$work/s$n"
		class=cookie
		[ $((n % 2)) = 0 ] || class=node
		sed "s|@ID@|s$n|g; s|@CLASS@|$class|; s|@TENANT@|t$((n % tenants))|; s|@LOG@|$work/s$n.hooks|" \
			"$work/template" >"$work/s$n/config.json"
	done

	all_lanes lane_start "$runtime"
	is "$(failures)" "" "$on: all $count start"
	jq -r '[.id, .group, .pid, .plan.cpus, .plan.mems, .state] | @tsv' "$state"/containers/*.json >"$work/ledger"
	is "$(wc -l <"$work/ledger")" "$count" "$on: the ledger has an entry for each"
	is "$(cut -f 6 "$work/ledger" | sort | uniq -c | awk '{print $2, $1}')" "done $count" "$on: and all are done"
	is "$(anchors | wc -l)" $tenants "$on: $tenants anchors run"

	# shellcheck disable=SC2016 # evaluated later
	ok "$on: every first program is up" wait_for \
		'[ "$(ls $(cut -f 3 "$work/ledger" | sed "s|.*|/proc/&/root/tmp/report|") | wc -l)" = "$count" ]' $wait_s
	# shellcheck disable=SC2046 # a list of pids
	"$probe" cookies $(cut -f 3 "$work/ledger") >"$work/cookies"
	is "$(cut -d ' ' -f 3 "$work/cookies" | sort -u | wc -l)" $tenants "$on: $tenants distinct cookies"
	wrong_cookie='' wrong_inside='' wrong_cpus=''
	while read -r id group pid cpus mems _; do
		want=$(cookies_of "$(anchor_of "$group")")
		[ "$(awk -v p="$pid" '$1 == p { print $3 }' "$work/cookies" | sort -u)" = "$want" ] || wrong_cookie="$wrong_cookie $id"
		[ "$(sed -n 's/^first //p' "/proc/$pid/root/tmp/report")" = "$want" ] || wrong_inside="$wrong_inside $id"
		[ "$(effective "$pid" cpus) $(effective "$pid" mems)" = "$cpus $mems" ] || wrong_cpus="$wrong_cpus $id"
	done <"$work/ledger"
	is "$wrong_cookie" "" "$on: each container has its anchor's cookie"
	is "$wrong_inside" "" "$on: each first program read it"
	is "$wrong_cpus" "" "$on: each runs on the CPUs and nodes of its plan"

	all_lanes lane_stop "$runtime"
	is "$(failures)" "" "$on: all $count stop"
	nothing_left "$on"
	rm -f "$work"/s*.hooks
done
finish
