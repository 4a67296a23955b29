#!/bin/sh
# Guest script: containers and machines of odd shapes.
#
#   t-shapes.sh v2 | v1 | hybrid      what lies on /sys/fs/cgroup
set -u
# shellcheck source=tests/vm/cotenant.sh
. tests/vm/cotenant.sh
cgroup=${1-v2}
write_policy

case $cgroup in
hybrid) runtimes=runc ;; # crun refuses it
*) runtimes=$(runtimes) ;;
esac
like "$("$build/cotenant" --state-dir "$state" support 2>&1)" "^cpusets: cgroup v$([ "$cgroup" = v2 ] && echo 2 || echo 1)\\." \
	"shapes $cgroup: support says which cpusets there are"

# ---- pods: a first container, and others in its pid namespace, as CRI-O and podman make them ----

# A member of the pod that container FIRST began.
joins() { # WHAT ID FIRST TENANT
	started "$1" "$runtime" "$2" weighted "$4" "try threads=2" \
		".linux.namespaces |= map(if .type == \"pid\" then .path = \"/proc/$(pid_of "$3")/ns/pid\" else . end)" || return
	is "$(readlink "/proc/$(pid_of "$2")/ns/pid")" "$(readlink "/proc/$(pid_of "$3")/ns/pid")" "$1: $2 is in $3's pid namespace"
}

# What the class gives, from outside.
pod_member() { # WHAT ID TENANT
	member=$(given "$(pid_of "$2")")
	is "$(echo "$member" | grep -v '^[cm][pe]')" "cookie $(cookies_of "$(anchor_of "$3")")
filters 1" "$1: all threads of $2 have its tenant's cookie, and the guard"
	like "$member" '^cookie 0x[0-9a-f]*[1-9a-f][0-9a-f]*$' "$1: which is one"
	is "$(echo "$member" | sed -n 's/^memory //p')" "policy weighted interleave=static:$(entry_of "$2" .plan.memory_nodes)" \
		"$1: all mappings of $2 have the memory policy"
	is "$(said "$2" first) $(said "$2" "try create")" "$(cookies_of "$(anchor_of "$3")") EPERM" "$1: $2 sees both from inside"
}

test_pods() { # WHAT
	for pod in red blue; do
		started "$1" "$runtime" "$pod-pause" weighted "$pod" "try" && joins "$1" "$pod-1" "$pod-pause" "$pod" &&
			joins "$1" "$pod-2" "$pod-pause" "$pod" || return
	done
	for pod in red blue; do
		for id in pause 1 2; do
			pod_member "$1" "$pod-$id" "$pod"
		done
	done
	isnt "$(readlink "/proc/$(pid_of red-1)/ns/pid")" "$(readlink "/proc/$(pid_of blue-1)/ns/pid")" "$1: two pods have two pid namespaces"
	isnt "$(cookies_of "$(pid_of red-1)")" "$(cookies_of "$(pid_of blue-1)")" "$1: and two cookies"
	is "$(for pod in red blue; do
		for id in pause 1 2; do cookies_of "$(pid_of "$pod-$id")"; done
	done | sort -u | wc -l)" 2 "$1: of which there are two in all"
	# The kernel ends all of a pid namespace with its first process.
	red_2=$(pid_of red-2)
	stop "$runtime" red-pause
	ok "$1: the pod ends with its first container" wait_for "ended $red_2" 30
	is "$(cookies_of "$(pid_of blue-2)")" "$(cookies_of "$(anchor_of blue)")" "$1: the other pod has its cookie still"
	stop_all "$1"
}

for runtime in $runtimes; do
	on="shapes $cgroup $runtime"
	test_everything "$on plain" "$runtime" plain
	like "$(cat "/proc/$(anchor_of plain)/cgroup")" . "$on plain: the anchor's cgroups can be read"
	is "$(sed 's/^[^:]*:[^:]*://' "/proc/$(anchor_of plain)/cgroup" | sort -u | tr '\n' ' ')" \
		"$(case $cgroup in v2) echo '/cotenant-anchors ' ;; v1) echo '/ ' ;; hybrid) echo '/ /cotenant-anchors ' ;; esac)" \
		"$on plain: the anchor lives in no container's cgroup, in any hierarchy"
	stop_all "$on plain"

	[ "$cgroup" = v2 ] || continue
	test_everything "$on user namespace" "$runtime" userns \
		'.linux.uidMappings = [{containerID: 0, hostID: 100000, size: 65536}] | .linux.gidMappings = .linux.uidMappings
			| .linux.namespaces += [{type: "user"}]'
	is "$(awk '/^Uid/ { print $2 }' "/proc/$(pid_of x)/status" 2>&1)" 100000 "$on user namespace: it is one"
	stop_all "$on user namespace"

	test_everything "$on host pids" "$runtime" hostpid '.linux.namespaces |= map(select(.type != "pid"))'
	is "$(readlink "/proc/$(pid_of x)/ns/pid")" "$(readlink /proc/self/ns/pid)" "$on host pids: it sees the host's processes"
	# Not even without a guard can it take another tenant's cookie, whose anchor it sees.
	if started "$on host pids thief" "$runtime" thief unguarded thief "try steal=$(anchor_of hostpid)" \
		'.linux.namespaces |= map(select(.type != "pid"))'; then
		is "$(said thief "try create")" ok "$on host pids thief: no guard is in its way"
		is "$(said thief steal)" EPERM "$on host pids thief: it cannot take the other tenant's cookie from its anchor"
		is "$(said thief first)" "$(cookies_of "$(anchor_of thief)")" "$on host pids thief: it began with its own"
	fi
	stop_all "$on host pids"

	test_everything "$on scope path" "$runtime" scope '.linux.cgroupsPath = "/system.slice/cotenant-x.scope"'
	is "$(entry_of x .cgroup)" /system.slice/cotenant-x.scope "$on scope path: the ledger has the cgroup"
	like "$(leftovers)" '^/sys/fs/cgroup/system.slice/cotenant-x\.scope$' "$on scope path: it would be seen if it were left behind"
	stop_all "$on scope path"

	test_pods "$on pods"
done

# ---- no place for the ledger ----

# All of this machine at /mnt, but for /run.
without_run() {
	mount -t tmpfs -o mode=755 norun /mnt
	for entry_of_root in /*; do
		case $entry_of_root in
		/run | /mnt) continue ;;
		esac
		if [ -L "$entry_of_root" ] || [ ! -d "$entry_of_root" ]; then
			cp -P "$entry_of_root" /mnt/
		else
			mkdir "/mnt$entry_of_root" && mount --rbind "$entry_of_root" "/mnt$entry_of_root"
		fi
	done
}

if [ "$cgroup" = v2 ]; then
	mkdir -p /tmp/ro && mount -t tmpfs -o ro ro /tmp/ro
	for runtime in $runtimes; do
		on="shapes no state directory $runtime"
		state=/tmp/ro/cotenant
		write_policy
		refused "$on" "ledger: state directory /tmp/ro/cotenant: cannot be created: Read-only file system" "$runtime" r cookie red ""
		stop "$runtime" r >/dev/null 2>&1
		write_policy '.on_error = "admit"'
		if started "$on, on_error admit" "$runtime" r cookie red ""; then
			# runc shows what a hook wrote only when it failed.
			[ "$runtime" = runc ] || like "$(log r)" "started all the same, without protection \\(on_error: admit\\)" "$on, on_error admit: and it is said"
			is "$(said r first)" 0x0 "$on, on_error admit: without a cookie"
			stop "$runtime" r
		fi
	done

	# The default directory, with /run itself read-only, and with no /run at all. Runtimes have theirs elsewhere.
	# shellcheck disable=SC2016 # $i is jq's
	default_state='.hooks[][].args |= (index("--state-dir") as $i | .[:$i] + .[$i + 2:])'
	runtime_options="--root $work/runtimes"
	write_policy
	for runtime in $runtimes; do
		on="shapes /run read-only $runtime"
		state=/run/cotenant
		ok "$on: it is" mount -o remount,ro /run
		refused "$on" "ledger: state directory /run/cotenant: cannot be created: Read-only file system; give another with --state-dir" \
			"$runtime" r cookie red "" "$default_state"
		stop "$runtime" r >/dev/null 2>&1
		mount -o remount,rw /run

		on="shapes no /run $runtime"
		printf '#!/bin/sh\nexec chroot /mnt %s "$@"\n' "$runtime" >"$work/norun-$runtime"
		chmod +x "$work/norun-$runtime"
		state=/mnt/run/cotenant
		bundle r cookie red "" "$default_state"
		without_run # after the bundle, whose root is a mount
		ok "$on: there is none" [ ! -e /mnt/run ]
		launch "$work/norun-$runtime" r && wait_report r
		ok "$on: the container starts"
		[ -e "$work/r/rootfs/tmp/report" ] || diag "$(log r)"
		is "$(stat -c '%a %u' /mnt/run /mnt/run/cotenant | paste -sd ' ')" "700 0 700 0" \
			"$on: it is made, as is the ledger's directory, for root alone"
		is "$(said r first)" "$(cookies_of "$(anchor_of red)")" "$on: the container has its cookie"
		is "$(entry_of r .state)" "done" "$on: and the ledger has it"
		# poststop has to find the same directory, and the bundle is busy as long as it is mounted there too.
		"$work/norun-$runtime" --root "$work/runtimes" delete --force r
		nothing_left "$on"
		umount -l /mnt
		stop "$runtime" r >/dev/null 2>&1
		: >"$work/started"
	done
	runtime_options=
	state=$work/state
	write_policy
fi

# ---- without root on the host ----

home=/tmp/rootless
delegated=/sys/fs/cgroup/cotenant-vm/user

# A bundle for uid 1000; CLASS, and more words for jq.
rootless_bundle() { # CLASS [JQ-EDIT]
	rm -rf $home
	mkdir -p $home/bundle $home/run
	cp -a "$bundle_base/rootfs" $home/bundle/rootfs
	cp "$policy" $home/policy.json
	jq '.process.terminal = false | .process.args = ["entry", "try", "touch=4"] | .root.readonly = false
		| del(.linux.resources) | .linux.cgroupsPath = "" | .hostname = "rootless"
		| .annotations = {"org.example.class": "'"$1"'", "org.example.tenant": "rootless", "run.oci.hooks.stderr": "/tmp/rootless/hooks"}
		| .mounts |= map(select(.type != "cgroup") | if .type == "devpts" then .options -= ["gid=5"] else . end)
		| .hooks = '"$(printf '{createRuntime: %s, poststop: %s}' "$(hook_entry createRuntime)" "$(hook_entry poststop)" |
			sed "s|$policy|$home/policy.json|g; s|$state|$home/state|g")"' | '"${2-.}" \
		"$bundle_base/config.json" >$home/bundle/config.json
	chown -R 1000:1000 $home
}

# As uid 1000, in the namespaces that unshare's OPTIONs say. Leaves the exit status of `run` in $home/status.
rootless_run() { # RUNTIME-WITH-OPTIONS [OPTION of unshare]...
	cat >$home/go <<-GO
	[ \$(id -u) != 0 ] || mount -t proc proc /proc
	$1 --root $home/run \
		run --detach -b $home/bundle rootless
	echo \$? >$home/status.new && mv $home/status.new $home/status
	sleep 1000
	GO
	shift
	# Not the shell's own applets of these names. In the cgroup that was delegated, if there is one.
	(
		[ ! -d $delegated ] || sh -c "echo \$PPID" >$delegated/runtime/cgroup.procs
		exec /usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups env XDG_RUNTIME_DIR=$home/run \
			/usr/bin/unshare "$@" --fork --kill-child sh $home/go
	) >$home/log 2>&1 </dev/null &
	rootless=$!
	wait_for "[ -e $home/status ]" $wait_s
	rootless_status=$(cat $home/status 2>&1)
}

rootless_end() {
	kill -9 $rootless # unshare ignores SIGTERM; the rest dies with it
	wait $rootless 2>/dev/null
}

in_report() { # WORDS
	sed -n "s/^$1 //p" $home/bundle/rootfs/tmp/report
}

rootless_entry() { # JQ-FILTER
	jq -r "$1" $home/state/containers/rootless.json
}

# crun keeps what a hook says in a file, runc shows it when it fails.
rootless_log() {
	cat $home/hooks $home/log 2>/dev/null | sed 's/\\"/"/g'
}

rootless_starts() { # WHAT
	is "$rootless_status" 0 "$1: the container starts"
	[ "$rootless_status" = 0 ] || diag "$(rootless_log)"
	ok "$1: and its first program runs" wait_for "[ -e $home/bundle/rootfs/tmp/report ]" $wait_s
}

rootless_refused() { # WHAT ERE
	isnt "$rootless_status" 0 "$1: does not start"
	like "$(rootless_log)" "cotenant-hook: container rootless: createRuntime: $2" "$1: and the reason is told"
}

# A cgroup of uid 1000, with cpusets for what is below, and one below it for the runtime itself.
delegate() {
	mkdir -p $delegated/runtime
	for level in /sys/fs/cgroup/cotenant-vm $delegated; do
		echo +cpuset >"$level/cgroup.subtree_control"
	done
	chown 1000:1000 $delegated $delegated/cgroup.procs $delegated/cgroup.subtree_control $delegated/cgroup.threads
	chown -R 1000:1000 $delegated/runtime
}

# Runtime and hook are root of a user namespace, as below rootless podman.
test_rootless() { # WHAT RUNTIME-WITH-OPTIONS THE-SAME-WITH-CGROUPS
	as_root="--user --map-root-user --mount --pid"
	on=$1
	rootless_bundle cookie
	# shellcheck disable=SC2086 # options
	rootless_run "$2" $as_root
	rootless_starts "$on"
	like "$(in_report first)" '^0x.*[1-9a-f]' "$on: it has a cookie"
	is "$(in_report "try create")" EPERM "$on: it has the guard"
	is "$(rootless_entry .plan.set_cpus)" false "$on: its CPUs were not set"
	like "$(rootless_entry '.plan.reasons[]')" "its cpuset cannot be written, so it stays on CPUs 0-7" "$on: and the ledger says why"
	rootless_end

	on="$1 weighted"
	rootless_bundle weighted
	# shellcheck disable=SC2086
	rootless_run "$2" $as_root
	rootless_refused "$on: weights that are not the user's to change" \
		"weights: interleave weight 3 cannot be written to /sys/kernel/mm/mempolicy/weighted_interleave/node0: Permission denied"
	rootless_end
	write_policy '.node.weights = "keep"'
	rootless_bundle weighted
	# shellcheck disable=SC2086
	rootless_run "$2" $as_root
	rootless_starts "$on: weights as they are"
	is "$(in_report policy)" "weighted interleave=static:$(rootless_entry .plan.memory_nodes)" "$on: numa_maps has the memory policy"
	like "$(in_report policy)" ":0.*2$" "$on: over DRAM and CXL"
	like "$(in_report first)" '^0x.*[1-9a-f]' "$on: it has a cookie too"
	rootless_end
	write_policy

	on="$1 cores"
	rootless_bundle cores
	# shellcheck disable=SC2086
	rootless_run "$2" $as_root
	rootless_refused "$on" \
		'placement: container rootless: class "cores" wants cores of its own, but the container.s cpuset cannot be written; give it the cpuset controller'
	rootless_end

	on="$1 delegated"
	delegate
	rootless_bundle cores '.linux.cgroupsPath = "/cotenant-vm/user/box"'
	# shellcheck disable=SC2086
	rootless_run "$3" $as_root
	rootless_starts "$on"
	is "$(cat $delegated/box/cpuset.cpus.effective)" "$(rootless_entry .plan.cpus)" "$on: effective CPUs are the planned ones"
	is "$(each "$(cat $delegated/box/cpuset.cpus.effective)" | wc -l)" 2 "$on: which are those of one core"
	is "$(in_report allowed-cpus)" "$(rootless_entry .plan.cpus)" "$on: and it sees them from inside"
	is "$(rootless_entry '"\(.state) \(.plan.mechanism) \(.cgroup)"')" "done cores /cotenant-vm/user/box" "$on: the ledger says that they are its own"
	is "$(stat -c %u $delegated/box/cpuset.cpus)" 1000 "$on: the cgroup is the user's"
	rootless_end
	# shellcheck disable=SC2016 # evaluated later
	ok "$on: nothing is left behind" wait_for '[ -z "$(leftovers)" ]' 30
}

# Runtime and hook are an ordinary user, and the container has a user namespace. crun makes its init not dumpable, which
# only CAP_SYS_PTRACE of the host would get the hook around; runc does not.
test_rootless_direct() { # WHAT RUNTIME-WITH-OPTIONS
	write_policy '.node.weights = "keep"'
	rootless_bundle weighted '.linux.namespaces += [{type: "user"}]
		| .linux.uidMappings = [{containerID: 0, hostID: 1000, size: 1}]
		| .linux.gidMappings = [{containerID: 0, hostID: 1000, size: 1}]'
	rootless_run "$2"
	if [ "$runtime" = runc ]; then
		rootless_starts "$1"
		rootless_pid=$(rootless_entry .pid)
		is "$(awk '/^Uid/ { print $2 }' "/proc/$rootless_pid/status")" 1000 "$1: it is the user's"
		is "$(cookies_of "$rootless_pid")" "$(cookies_of "$(jq -r .pid $home/state/groups/*.json)")" \
			"$1: every thread has its anchor's cookie"
		like "$(in_report first)" '^0x.*[1-9a-f]' "$1: which is one, and its first program read it"
		is "$(policies_of "$rootless_pid")" "weighted interleave=static:$(rootless_entry .plan.memory_nodes)" \
			"$1: every mapping has the memory policy"
		is "$(filters_of "$rootless_pid") $(in_report "try create")" "1 EPERM" "$1: it has the guard"
		ok "$1: it can be deleted" /usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups \
			env XDG_RUNTIME_DIR=$home/run "$runtime" --root $home/run delete --force rootless
		is "$(rootless_entry .state 2>/dev/null)" "" "$1: and is off the ledger"
	else
		rootless_refused "$1" \
			"cookie: process [0-9]* cannot be given the cookie of anchor [0-9]* .*: Operation not permitted: ptrace access is missing; give cotenant CAP_SYS_PTRACE in the process's user namespace"
	fi
	rootless_end
	write_policy
	is "$(anchors)" "" "$1: no anchor is left behind"
}

if [ "$cgroup" = v2 ]; then
	for runtime in $runtimes; do
		case $runtime in
		crun) free="crun --cgroup-manager=disabled" managed="crun --cgroup-manager=cgroupfs" ;;
		*) free=$runtime managed=$runtime ;;
		esac
		test_rootless "shapes rootless $runtime" "$free" "$managed"
		test_rootless_direct "shapes rootless direct $runtime" "$free"
	done
fi

# ---- without ptrace(2), which Yama gives nobody back until the next boot: nothing can come after it ----

yama=/proc/sys/kernel/yama/ptrace_scope
if [ "$cgroup" = v2 ] && [ ! -e $yama ]; then
	skip "no Yama in this kernel (CONFIG_SECURITY_YAMA)" "shapes no ptrace"
elif [ "$cgroup" = v2 ]; then
	write_policy
	# Taken away from everybody: memory policy and guard cannot be had, and that is said.
	echo 3 >$yama
	no_ptrace='thread [0-9]+ of process [0-9]+ cannot be held by ptrace\(2\): Operation not permitted: cotenant needs CAP_SYS_PTRACE in the process.s user namespace, and kernel.yama.ptrace_scope below 3'
	for runtime in $runtimes; do
		on="shapes no ptrace $runtime"
		refused "$on" "guard: $no_ptrace" "$runtime" r cookie red ""
		refused "$on, memory policy" "memory policy: $no_ptrace" "$runtime" r everything red ""
		# The init has had its cookie by then.
		bundle r cookie red "" "$held"
		launch_held "$runtime" r
		is "$hook_status" 1 "$on, looked at: the hook fails"
		ok "$on, looked at: the init lives" [ -d "/proc/$init/task" ]
		is "$(cookies_of "$init")" 0x0 "$on, looked at: none of its threads has a cookie"
		is "$(anchors)" "" "$on, looked at: nor is there an anchor"
		let_go 1
		isnt $? 0 "$on, looked at: the runtime reports the failure"
		if started "$on, on_error admit" "$runtime" r admit red "try"; then
			is "$(entry_of r .state)" degraded "$on, on_error admit: it is degraded"
			like "$(entry_of r .why)" "guard: not applied" "$on, on_error admit: for want of the guard"
			is "$(said r first)" "$(cookies_of "$(anchor_of red)")" "$on, on_error admit: it has the cookie all the same"
			is "$(said r "try create")" ok "$on, on_error admit: and no guard, as was said"
		fi
		stop_all "$on"
	done
fi
finish
