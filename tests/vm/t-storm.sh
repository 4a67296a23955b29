#!/bin/sh
# Guest script: many containers at once. 50 of 5 tenants by 8 starters side by side, then all of them stopped so. After
# them, 8 tenants who all want one of the machine's 4 cores for themselves.
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

storm_bundle() { # NUMBER CLASS TENANT
	mkdir -p "$work/s$1"
	sed "s|@ID@|s$1|g; s|@CLASS@|$2|; s|@TENANT@|$3|; s|@LOG@|$work/s$1.hooks|" "$work/template" >"$work/s$1/config.json"
}

# ---- cores ----

# "ID TENANT PID" of the containers of this storm that run, as the runtime has it.
running() { # RUNTIME
	for n in $(seq 1 "$count"); do
		running_pid=$("$1" state "s$n" 2>/dev/null | jq -r 'select(.status == "running") | .pid')
		[ -z "$running_pid" ] || echo "s$n t$n $running_pid"
	done
}

# "CORE TENANT" of the processes in a list of running(), once each, by the kernel's effective cpusets.
cores_by_tenant() { # <LIST
	while read -r _ tenant pid; do
		cores_of "$(effective "$pid" cpus)" | sed "s/\$/ $tenant/"
	done | sort -u
}

# 8 tenants at once, each with one CPU's worth of CLASS.
cores_storm() { # RUNTIME CLASS
	for n in $(seq 1 "$count"); do
		storm_bundle "$n" "$2" "t$n"
	done
	all_lanes lane_start "$1"
	running "$1" >"$work/running"
	cores_by_tenant <"$work/running" >"$work/cores"
}

cores_refuse() { # RUNTIME
	on="storm cores $1"
	cores_storm "$1" cores
	is "$(wc -l <"$work/running")" 4 "$on: of 8 tenants who each want a core, as many run as there are cores"
	is "$(cut -d ' ' -f 1 "$work/cores" | sort | paste -sd ' ')" "0-1 2-3 4-5 6-7" "$on: each core has one tenant's threads, and no other's"
	is "$(cut -d ' ' -f 2 "$work/cores" | sort | uniq -d)" "" "$on: each tenant is on one core"
	is "$(sort "$work/failed" | uniq | wc -l)" 4 "$on: the others do not start"
	is "$(failures | grep -c "createRuntime: placement: no room for container s[1-8]: class \"cores\" wants whole cores for 1.00 CPUs within llc, and the most to be had is 0.00 ")" \
		4 "$on: for want of cores"
	is "$(jq -r '"\(.id) \(.group) \(.pid)"' "$state"/containers/*.json | sort)" "$(sort "$work/running")" "$on: the ledger has those who run"
	is "$(jq -r '"\(.state) \(.plan.mechanism)"' "$state"/containers/*.json | sort -u)" "done cores" "$on: as owners of cores"
	all_lanes lane_stop "$1"
	nothing_left "$on"
}

# The class lets them start all the same, beside somebody whose last core nobody may take.
cores_admit() { # RUNTIME
	on="storm cores admit $1"
	started "$on" "$1" n cookie neighbour "" || return
	n_pid=$(pid_of n)
	n_cookie=$(cookies_of "$n_pid")
	is "$(effective "$n_pid" cpus)" 0-7 "$on: somebody has the whole machine"
	cores_storm "$1" cores-admit
	is "$(failures)" "" "$on: all 8 start"
	jq -r 'select(.plan.mechanism == "cores") | .group' "$state"/containers/*.json | sort >"$work/owners"
	is "$(wc -l <"$work/owners")" 3 "$on: three have cores of their own"
	echo "n neighbour $n_pid" | cores_by_tenant >>"$work/cores"
	is "$(grep -wf "$work/owners" "$work/cores" | cut -d ' ' -f 1 | sort | uniq -c | awk '{ print $1 }' | paste -sd ' ')" "1 1 1" \
		"$on: on one core each"
	is "$(grep -wf "$work/owners" "$work/cores" | cut -d ' ' -f 1 | while read -r core; do grep "^$core " "$work/cores"; done | wc -l)" 3 \
		"$on: where nobody else runs"
	is "$(grep -vwf "$work/owners" "$work/cores" | cut -d ' ' -f 1 | sort -u | wc -l)" 1 "$on: all others are on the one that is left"
	is "$(jq -r 'select(.state == "degraded") | .why' "$state"/containers/*.json | grep -c '^placement: no room for container')" 5 \
		"$on: five are degraded, and the ledger says for want of cores"
	all_lanes lane_stop "$1"
	is "$(failures)" "" "$on: all 8 stop"
	# shellcheck disable=SC2016 # evaluated later
	ok "$on: the first one has the whole machine back" wait_for '[ "$(effective "$n_pid" cpus)" = 0-7 ]' 30
	is "$(cookies_of "$n_pid")" "$n_cookie" "$on: and its cookie still"
	stop_all "$on"
}

for runtime in $(runtimes); do
	on="storm $runtime"
	for n in $(seq 1 "$count"); do
		class=cookie
		[ $((n % 2)) = 0 ] || class=node
		storm_bundle "$n" $class "t$((n % tenants))"
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
	rm -rf "$work"/s[0-9]*
done

count=8
for runtime in $(runtimes); do
	cores_refuse "$runtime"
	rm -rf "$work"/s[0-9]*
	cores_admit "$runtime"
	rm -rf "$work"/s[0-9]*
done
finish
