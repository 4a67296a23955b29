# shellcheck shell=sh
# What guest scripts about cotenant share: wiring, containers, and evidence. Sourced; brings lib.sh along.
#
# A check's name begins with what it is about, so that a failing line tells it all:
#   cookie runc: the first program carries its anchor's cookie
#
# Evidence comes from the kernel (cookies, cgroup files, numa_maps) and from inside the container (entry's report);
# the ledger is only what it is compared with.
# shellcheck source=tests/vm/lib.sh
. tests/vm/lib.sh

build=${BUILD:-$PWD/build}
hook=$build/cotenant-hook
entry=$PWD/build/tests/vm/entry
probe=$PWD/build/tests/vm/probe
work=/tmp/cotenant
state=$work/state
policy=$work/policy.json
keeper=
runtime_options=
# Real machines have 2 s; the guest is emulated, and no test is about how fast it is.
hook_options="--timeout 50"
wait_s=120

mkdir -p "$work"
: >"$work/started"

# Every class of classes.json under its own name: annotation org.example.class chooses it, .tenant names the tenant.
# Arguments are jq filters over the policy.
write_policy() { # [JQ-EDIT]...
	# shellcheck disable=SC2016 # a template of the policy
	policy_filter='.rules = [.classes | keys_unsorted[] | {
		match: {annotation: {"org.example.class": .}}, tenant: "${annotation:org.example.tenant}", class: ., trust: true}]'
	for policy_edit; do
		policy_filter="$policy_filter | ($policy_edit)"
	done
	jq "$policy_filter" tests/vm/classes.json >"$policy.new" && chmod 600 "$policy.new" && mv "$policy.new" "$policy"
}

# One hook entry as JSON. Words after STAGE are more options.
hook_entry() { # STAGE [OPTION]...
	hook_stage=$1
	shift
	hook_args=
	for hook_arg in $hook_options "$@"; do
		hook_args="$hook_args, \"$hook_arg\""
	done
	printf '[{path: "%s", args: ["cotenant-hook", "%s", "--policy", "%s", "--state-dir", "%s"%s]}]' \
		"$hook" "$hook_stage" "$policy" "$state" "$hook_args"
}

# The jq edit that wires the three stages.
# shellcheck disable=SC2120 # most have no options
wired() { # [OPTION of createRuntime]...
	printf '.hooks = {createRuntime: %s, poststart: %s, poststop: %s}' \
		"$(hook_entry createRuntime "$@")" "$(hook_entry poststart)" "$(hook_entry poststop)"
}

# Bundle in $work/ID whose first program is entry. CLASS and TENANT become annotations. crun drops what hooks say on
# stderr unless an annotation names a file for it.
bundle() { # ID CLASS TENANT "ENTRY-ARGS" [JQ-EDIT]...
	bundle_id=$1 bundle_class=$2 bundle_tenant=$3 bundle_args=
	for bundle_arg in $4; do
		bundle_args="$bundle_args, \"$bundle_arg\""
	done
	shift 4
	if [ ! -e "$bundle_base/rootfs/bin/entry" ]; then
		make_bundle_base && cp "$entry" "$probe" "$bundle_base/rootfs/bin/" && chmod 1777 "$bundle_base/rootfs/tmp" ||
			return 1
	fi
	rm -f "$work/$bundle_id.hooks"
	# shellcheck disable=SC2119
	make_bundle "$work/$bundle_id" "$bundle_id" '' ".process.args = [\"entry\"$bundle_args]" \
		".annotations = {\"org.example.class\": \"$bundle_class\", \"org.example.tenant\": \"$bundle_tenant\"}" \
		".annotations.\"run.oci.hooks.stderr\" = \"$work/$bundle_id.hooks\"" \
		"$(wired)" "$@"
}

# Starts a bundle; log tells what runtime and hook said.
launch() { # RUNTIME ID [OPTION of run]...
	launch_runtime=$1 launch_id=$2
	shift 2
	echo "$launch_runtime $launch_id" >>"$work/started"
	# shellcheck disable=SC2086 # options, or none
	"$launch_runtime" $runtime_options run --detach "$@" -b "$work/$launch_id" "$launch_id" >"$work/$launch_id.log" 2>&1 </dev/null
}

# ---- an init that is looked at before the runtime goes on ----

# shellcheck disable=SC2034 # of the scripts, as are hook_status and init below
# The jq edit that puts `hold` around the hook of createRuntime.
held=".hooks.createRuntime[0] |= {path: \"$PWD/tests/vm/hold\", args: ([\"hold\", \"$work\", .path] + .args[1:])}"

# launch, up to where the hook has ended: $hook_status is how, $init the container's first process. let_go must follow.
# shellcheck disable=SC2034
launch_held() { # RUNTIME ID [OPTION of run]...
	rm -f "$work/held" "$work/let-go"
	launch "$@" &
	held_runtime=$!
	wait_for "[ -e $work/held ]" $wait_s
	hook_status=$(cat "$work/held" 2>&1)
	init=$(jq .pid "$work/held.state")
}

# The runtime goes on as if the hook had ended so; $? is then the runtime's own.
let_go() { # STATUS
	echo "$1" >"$work/let-go.new" && mv "$work/let-go.new" "$work/let-go"
	wait "$held_runtime"
}

# runc passes a hook's words on as one quoted line.
log() { # ID
	cat "$work/$1.log" "$work/$1.hooks" 2>/dev/null | sed 's/\\"/"/g; s/\\n/\n/g'
}

start() { # RUNTIME ID CLASS TENANT "ENTRY-ARGS" [JQ-EDIT]...
	start_runtime=$1
	shift
	bundle "$@" || return 1
	launch "$start_runtime" "$1" && wait_report "$1"
}

# start, as a check of its own; on failure says what the runtime said.
started() { # WHAT RUNTIME ID CLASS TENANT "ENTRY-ARGS" [JQ-EDIT]...
	started_what=$1
	shift
	if start "$@"; then
		pass "$started_what: container $2 starts"
	else
		fail "$started_what: container $2 starts" "$(log "$2")"
		return 1
	fi
}

# The container must not start, and the line that says why must match.
refused() { # WHAT ERE RUNTIME ID CLASS TENANT "ENTRY-ARGS" [JQ-EDIT]...
	refused_what=$1 refused_why=$2
	shift 2
	if start "$@"; then
		fail "$refused_what: container $2 does not start" "it did: $(log "$2")"
	else
		pass "$refused_what: container $2 does not start"
	fi
	like "$(log "$2")" "cotenant-hook: container $2: createRuntime: $refused_why" "$refused_what: and the reason is told"
	is "$(entry_of "$2" .state)" "" "$refused_what: and the ledger has no entry of it"
}

stop() { # RUNTIME ID
	# shellcheck disable=SC2086
	"$1" $runtime_options delete --force "$2" >"$work/$2.stop.log" 2>&1
	stop_status=$?
	umount "$work/$2/rootfs" 2>/dev/null || :
	rm -rf "${work:?}/$2"
	return $stop_status
}

# Stops all that was started and is still there, and proves that nothing is left behind.
stop_all() { # WHAT
	while read -r stop_runtime stop_id; do
		[ ! -d "$work/$stop_id" ] || stop "$stop_runtime" "$stop_id" || :
	done <"$work/started"
	# shellcheck disable=SC2016 # evaluated later
	wait_for '[ -z "$(leftovers)" ]' 30 || stop_again
	: >"$work/started"
	nothing_left "$1"
}

# A runtime whose delete fails half-way leaves poststop out. It may be run later, and again: so it is, and the logs tell
# whose fault it was.
stop_again() {
	diag "left behind at first: $(leftovers)"
	while read -r stop_runtime stop_id; do
		diag "$stop_runtime delete $stop_id: $(cat "$work/$stop_id.stop.log" "$work/$stop_id.hooks" 2>&1)"
		printf '{"ociVersion": "1.0.2", "id": "%s", "status": "stopped"}' "$stop_id" |
			"$hook" poststop --state-dir "$state" --timeout 50 2>&1 | sed 's/^/# /'
	done <"$work/started"
}

# A runtime may report a container as gone a little before its cgroup is.
nothing_left() { # WHAT
	# shellcheck disable=SC2016 # evaluated later
	wait_for '[ -z "$(leftovers)" ]' 30 || :
	is "$(leftovers)" "" "$1: nothing is left behind: no anchor, no ledger entry, no cgroup, no saved weights"
}

leftovers() {
	anchors
	# shellcheck disable=SC2012 # names that we chose
	ls "$state/containers" 2>/dev/null | sed 's/^/ledger: /'
	# shellcheck disable=SC2012
	ls "$state/groups" 2>/dev/null | sed 's/^/group: /'
	ls "$state/weights.json" 2>/dev/null
	# A runtime gives up on a busy cgroup after a few tries. That it can be removed now proves that it is empty.
	find /sys/fs/cgroup -mindepth 2 -depth -type d \( -path '*/cotenant-vm/*' -o -path '*/cotenant-?.scope*' \) 2>/dev/null |
		while read -r left_dir; do
			rmdir "$left_dir" 2>/dev/null || [ ! -d "$left_dir" ] || echo "$left_dir"
		done
}

# By their program: an anchor that the keeper forked has the group for a name. The keeper is none, nor is its child that
# waits to become one.
anchors() {
	# shellcheck disable=SC2012 # find(1) of busybox does not print where links lead
	ls -l /proc/[0-9]*/exe 2>/dev/null | sed -n 's|.* /proc/\([0-9]*\)/exe -> .*/cotenant-anchor\( (deleted)\)\{0,1\}$|anchor \1|p' |
		while read -r anchor_word anchor_pid; do
			[ "$anchor_pid" = "${keeper:-none}" ] || [ "$(cat "/proc/$anchor_pid/comm" 2>/dev/null)" = cotenant-spare ] ||
				echo "$anchor_word $anchor_pid"
		done
}

# ---- evidence ----

wait_report() { # ID
	wait_for "[ -e $work/$1/rootfs/tmp/report ]" $wait_s
}

# The rest of the lines of entry's report that begin with WORDS.
said() { # ID WORDS
	sed -n "s/^$2 //p" "$work/$1/rootfs/tmp/report"
}

entry_of() { # ID [JQ-FILTER]
	jq -r "${2:-.}" "$state/containers/$1.json" 2>/dev/null
}

pid_of() { # ID: from the ledger
	entry_of "$1" .pid
}

anchor_of() { # GROUP
	cat "$state"/groups/*.json 2>/dev/null | jq -r --arg g "$1" 'select(.group == $g) | .pid'
}

# Cookies of all threads of a process, each once.
cookies_of() { # PID
	"$probe" cookies "$1" | cut -d ' ' -f 3 | sort -u
}

# Directory of a process's cpuset cgroup, and what applies there.
cgroup_of() { # PID
	cgroup_path=$(sed -n 's/^[0-9]*:cpuset://p' "/proc/$1/cgroup")
	if [ -n "$cgroup_path" ]; then
		echo "/sys/fs/cgroup/cpuset$cgroup_path"
	else
		echo "/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$1/cgroup")"
	fi
}

effective() { # PID cpus|mems
	effective_dir=$(cgroup_of "$1")
	cat "$effective_dir/cpuset.$2.effective" 2>/dev/null || cat "$effective_dir/cpuset.effective_$2"
}

# Memory policies of all mappings of a process, each once, from outside.
policies_of() { # PID
	cut -d ' ' -f 2- "/proc/$1/numa_maps" |
		sed -E 's/ (heap|stack|huge)( .*|$)//; s/ (file|anon|dirty|mapped|mapmax|swapcache|active|writeback|N[0-9]+)=.*//' | sort -u
}

# Seccomp filters of all threads of a process, each number once.
filters_of() { # PID
	cat "/proc/$1/task"/*/status | sed -n 's/^Seccomp_filters:.//p' | sort -u
}

# All that cotenant could have given a process, one thing a line; a line is longer where threads or mappings differ.
given() { # PID
	echo "cookie $(cookies_of "$1" | paste -sd ' ')"
	echo "cpus $(effective "$1" cpus)"
	echo "mems $(effective "$1" mems)"
	echo "memory policy $(policies_of "$1" | paste -sd '|')"
	echo "filters $(filters_of "$1" | paste -sd ' ')"
}

# A child that ended stays a zombie until it is waited for.
# shellcheck disable=SC2317 # called by wait_for
ended() { # PID
	! grep -q '^State:.[^ZX]' "/proc/$1/status"
}

# "0-2,5" as one number a line.
each() { # LIST
	echo "$1" | tr , '\n' | while IFS=- read -r each_from each_to; do
		[ -z "$each_from" ] || seq "$each_from" "${each_to:-$each_from}"
	done
}

# The physical cores of a CPU list, as the kernel names them: one list of siblings a line.
cores_of() { # LIST
	for cores_cpu in $(each "$1"); do
		cat "/sys/devices/system/cpu/cpu$cores_cpu/topology/thread_siblings_list"
	done | sort -u
}

weights() {
	cat /sys/kernel/mm/mempolicy/weighted_interleave/node* | tr '\n' ' ' | sed 's/ $//'
}

# The runtimes that are here; one that is not is a skip.
runtimes() {
	for runtime_name in ${RUNTIMES:-runc crun}; do
		if command -v "$runtime_name" >/dev/null; then
			echo "$runtime_name"
		else
			skip "no $runtime_name" "$runtime_name" >&2
		fi
	done
}

# ---- all of it in one container ----

# All that cotenant gives, in one container, seen from inside and outside.
everything_holds() { # WHAT ID TENANT
	holds_pid=$(pid_of "$2")
	is "$(entry_of "$2" .state)" "done" "$1: $2 is done in the ledger"
	is "$(cookies_of "$holds_pid")" "$(cookies_of "$(anchor_of "$3")")" "$1: $2 carries its anchor's cookie"
	is "$(said "$2" first)" "$(cookies_of "$(anchor_of "$3")")" "$1: and reads it from inside"
	like "$(said "$2" first)" '^0x.*[1-9a-f]' "$1: it is not 0"
	is "$(effective "$holds_pid" cpus)" "$(entry_of "$2" .plan.cpus)" "$1: effective CPUs are the planned ones"
	is "$(effective "$holds_pid" mems)" "$(entry_of "$2" .plan.mems)" "$1: effective nodes are the planned ones"
	is "$(said "$2" policy)" "weighted interleave=static:$(entry_of "$2" .plan.memory_nodes)" "$1: the memory policy is set"
	is "$(said "$2" "try create")" EPERM "$1: the guard holds"
}

test_everything() { # WHAT RUNTIME TENANT [JQ-EDIT]...
	everything_what=$1 everything_runtime=$2 everything_tenant=$3
	shift 3
	started "$everything_what" "$everything_runtime" x everything "$everything_tenant" "try touch=4" "$@" || return
	everything_holds "$everything_what" x "$everything_tenant"
}
