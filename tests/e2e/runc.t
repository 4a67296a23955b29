#!/bin/bash
# shellcheck disable=SC2013,SC2016,SC2119 # programs of jq and templates in single quotes; words without spaces
# A real runtime: two tenants on cores of their own, a third that finds none, and every way in which it may start all
# the same. Evidence is the kernel's: /proc/PID/status and the cpuset files.
. tests/e2e/lib.bash
cpus=$(nproc --all)
cores=$(cat /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list 2>/dev/null | sort -u | wc -l)
missing=
command -v runc >/dev/null || missing="runc"
command -v busybox >/dev/null || missing="busybox"
[ "$(id -u)" = 0 ] || missing="root"
[ $((cores % 2)) = 0 ] && [ "$cores" -gt 1 ] || missing="an even number of cores"
parent=cotenant-e2e-$$
remove_parents() {
	for id in $containers; do
		runc delete --force "$id" >/dev/null 2>&1
	done
	wait_for sh -c "rmdir /sys/fs/cgroup/*/$parent /sys/fs/cgroup/$parent; ! ls -d /sys/fs/cgroup/*/$parent /sys/fs/cgroup/$parent"
	clean_up
}
trap remove_parents EXIT

hooks() { # STAGE…: an object of hooks for a config.json
	local stage
	for stage; do
		jq -n --arg stage "$stage" --arg path "$bin/cotenant-hook" --arg policy "$policy" --arg dir "$state_dir" \
			'{($stage): [{path: $path, timeout: 30,
				args: ["cotenant-hook", $stage, "--policy", $policy, "--state-dir", $dir, "--timeout", "20"]}]}'
	done | jq -s add
}

make_container() { # ID HOOKS [JQ-EDIT]
	local dir=$work/$1
	mkdir -p "$dir/rootfs/bin" "$dir/rootfs/proc" "$dir/rootfs/sys" "$dir/rootfs/dev"
	cp "$(command -v busybox)" "$dir/rootfs/bin/busybox"
	[ -e "$dir/config.json" ] || runc spec -b "$dir"
	jq --arg cgroup "/$parent/$1" --argjson hooks "$2" '.process.terminal = false | .root.readonly = false |
		.process.args = ["/bin/busybox", "sleep", "600"] | .linux.cgroupsPath = $cgroup | .hooks = $hooks'"${3:+ | $3}" \
		"$dir/config.json" >"$dir/new.json" && mv "$dir/new.json" "$dir/config.json"
}
start() { # ID: sets status and err
	containers="$containers $1"
	timeout -s KILL 60 runc run --detach -b "$work/$1" "$1" >"$work/out" 2>&1 </dev/null
	status=$? err=$(sed 's/\\"/"/g' "$work/out") # runc's log line has its quotes escaped
}
stop() {
	runc delete --force "$1" >"$work/out" 2>&1
	status=$? err=$(<"$work/out")
}
pid_of() { runc state "$1" 2>/dev/null | jq .pid; }
of_init() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$(pid_of "$1")/status"; } # ID FIELD
entry() { jq -r "$2" "$state_dir/containers/$1.json"; }                     # ID JQ
ids() { (cd "$state_dir/containers" && echo *); }
is_running() { [ "$(runc state "$1" 2>/dev/null | jq -r .status)" = running ]; }

if [ -z "$missing" ]; then
	make_container e2e-try '{}'
	start e2e-try
	[ "$status" = 0 ] || missing="a machine on which runc can start a container ($(tail -n 1 <<<"$err"))"
	stop e2e-try
fi
if [ -n "$missing" ]; then
	skip "$missing" "containers of runc"
	exit 0
fi

# ---- cores for two, and none for a third -----------------------------------------------------------------------------

half=$((cpus / 2))
all_cpus=$(cat /sys/devices/system/cpu/online)
own=".classes.own = {isolation: {mode: \"cores\"}, cpu: {span: \"machine\", exclusive: true, count: $half}}"
write_policy "$own"
all=$(hooks createRuntime poststart poststop)
for id in e2e-red e2e-blue e2e-green; do
	make_container "$id" "$all"
done
start e2e-red
is "$status $err" "0 " "red starts"
start e2e-blue
is "$status $err" "0 " "blue starts"
red=$(of_init e2e-red Cpus_allowed_list) blue=$(of_init e2e-blue Cpus_allowed_list)
expand() { # "0-1,4" → one CPU a line
	tr , '\n' <<<"$1" | while IFS=- read -r from to; do seq "$from" "${to:-$from}"; done
}
is "$( (expand "$red"; expand "$blue") | sort -n | uniq | wc -l)" "$((half * 2))" "red and blue have all CPUs ($red, $blue) and none in common"
is "$(expand "$red" | wc -l)" "$half" "red has its half"
is "$(ids)" "e2e-blue.json e2e-red.json" "both are in the ledger"
is "$(entry e2e-red '[.state, .started, .tenant, .plan.mechanism, .plan.exclusive, .plan.cpus] | join(" ")')" \
	"done true e2e-red cores true $red" "red's entry says what the kernel says"
like "$("$bin/cotenant" --state-dir "$state_dir" status)" "^e2e-blue +e2e-blue +own +done +cores +$blue " "status"
is "$(of_init e2e-red Seccomp)" 2 "the guard is on: red's init runs under a filter"
is "$(cat "/proc/$(pid_of e2e-red)/comm")" busybox "and it is the container's program that does"

start e2e-green
like "$err" "cotenant-hook: container e2e-green: createRuntime: placement: no room for container e2e-green: class \"own\" wants whole cores for $half.00 CPUs within machine, and the most to be had is 0.00 \(the machine\); the rest is reserved, owned by others, or the last that a neighbour may run on. Stop a container, ask for fewer CPUs, or widen cpu.span" \
	"green is refused, and runc shows its user why"
is "$([ "$status" != 0 ]; echo $?) $(pid_of e2e-green)" "0 " "green was not started"
is "$(ids)" "e2e-blue.json e2e-red.json" "green left nothing in the ledger"
is "$(of_init e2e-red Cpus_allowed_list) $(of_init e2e-blue Cpus_allowed_list)" "$red $blue" "and took nothing from red and blue"
runc delete --force e2e-green >/dev/null 2>&1

# Whoever is admitted without protection must not take others' away.
write_policy "$own | .on_error = \"admit\""
start e2e-green
like "$err" "createRuntime: no room for container e2e-green: all CPUs that it may use \($all_cpus\) belong to containers that own their cores" \
	"on_error admit: green is refused where only others' cores are left"
is "$([ "$status" != 0 ]; echo $?) $(ids)" "0 e2e-blue.json e2e-red.json" "on_error admit: and left nothing"
runc delete --force e2e-green >/dev/null 2>&1

stop e2e-red
is "$status $(ids)" "0 e2e-blue.json" "poststop forgets red"
write_policy "$own | .on_error = \"admit\" | .classes.own.cpu.count = 4096"
start e2e-green
is "$status" 0 "on_error admit: green starts all the same"
ok "on_error admit: and runs" is_running e2e-green
is "$(entry e2e-green '[.state, .plan.mechanism, .plan.degraded] | join(" ")')" "degraded none true" "on_error admit: the ledger says degraded"
like "$(entry e2e-green .why)" "^placement: no room for container e2e-green: class \"own\" wants" "on_error admit: and why"
like "$("$bin/cotenant" --state-dir "$state_dir" status e2e-green)" '^e2e-green: placement: no room for ' "on_error admit: so does status"
is "$(of_init e2e-green Cpus_allowed_list) $(of_init e2e-blue Cpus_allowed_list)" "$red $blue" "on_error admit: it keeps off blue's cores"
stop e2e-green
is "$status $(ids)" "0 e2e-blue.json" "poststop of an admitted container"

write_policy "$own"
start e2e-green
is "$status $err" "0 " "green finds red's cores"
is "$(of_init e2e-green Cpus_allowed_list)" "$red" "and no others"
stop e2e-green
stop e2e-blue
is "$(ids) $(ls "$state_dir/groups")" "* " "the ledger is empty in the end"

# ---- what the kernel lacks -------------------------------------------------------------------------------------------

case $("$bin/cotenant" --state-dir "$state_dir" support | grep '^Core') in
*no-kernel-option*)
	write_policy '.classes.own.isolation = {mode: "cookie"}'
	make_container e2e-red "$all"
	start e2e-red
	like "$err" 'cotenant-hook: container e2e-red: createRuntime: placement: container e2e-red: class "own" wants a core-scheduling cookie: this kernel is built without core scheduling \(no-kernel-option\); boot a kernel with CONFIG_SCHED_CORE=y, or set isolation.on_unsupported to cores or degrade' \
		"on_unsupported refuse: runc shows why"
	is "$([ "$status" != 0 ]; echo $?) $(pid_of e2e-red) $(ids)" "0  *" "on_unsupported refuse: not started"
	runc delete --force e2e-red >/dev/null 2>&1
	write_policy '.classes.own.isolation = {mode: "cookie"} | .on_error = "admit"'
	start e2e-red
	is "$([ "$status" != 0 ]; echo $?)" 0 "on_error admit does not override it"
	runc delete --force e2e-red >/dev/null 2>&1
	write_policy '.classes.own.isolation = {mode: "cookie", on_unsupported: "degrade"}'
	start e2e-red
	is "$status $(entry e2e-red '[.state, .plan.mechanism, .why] | join(" ")')" \
		"0 degraded none not isolated: this kernel is built without core scheduling" "on_unsupported degrade: started, and the ledger says what is missing"
	stop e2e-red
	write_policy '.classes.own = {isolation: {mode: "cookie", on_unsupported: "degrade"}, memory: {policy: "bind", tiers: ["dram", "pmem"]}}'
	start e2e-red
	is "$status $(entry e2e-red .why)" \
		'0 not isolated: this kernel is built without core scheduling; memory tier pmem of class "own" has no node here that the container may use' \
		"on_unsupported degrade: all that is missing is named"
	if grep -q . "/proc/$(pid_of e2e-red)/numa_maps" 2>/dev/null; then
		is "$(awk '{ print $2 }' "/proc/$(pid_of e2e-red)/numa_maps" | sort -u | grep -c '^bind=static:')" 1 "memory policy: the program's is the class's"
	else
		skip "numa_maps" "memory policy: the program's is the class's"
	fi
	stop e2e-red
	write_policy '.classes.own.isolation = {mode: "cookie", on_unsupported: "cores"}'
	start e2e-red
	is "$status $(entry e2e-red '[.state, .plan.mechanism] | join(" ")')" "0 done cores" "on_unsupported cores: started on cores of its own"
	stop e2e-red
	;;
*) skip "a kernel without core scheduling" "on_unsupported" ;;
esac

# ---- how it is wired ---------------------------------------------------------------------------------------------------

write_policy "$own"
make_container e2e-red "$(hooks prestart createRuntime poststop)"
start e2e-red
is "$status $err" "0 " "prestart and createRuntime both wired"
is "$(ids) $(entry e2e-red '[.state, .started] | join(" ")')" "e2e-red.json done false" "placed once; poststart was not wired"
is "$(of_init e2e-red Seccomp_filters)" 1 "guarded once"
stop e2e-red
make_container e2e-red "$(hooks prestart poststop)"
start e2e-red
is "$status $(expand "$(of_init e2e-red Cpus_allowed_list)" | wc -l)" "0 $half" "prestart alone does the same"
stop e2e-red
is "$(ids)" '*' "and is forgotten"

# Nothing of cotenant may hold the pipe that a runtime's user reads.
make_container e2e-red "$all" '.process.args = ["/bin/busybox", "echo", "hello"]'
is "$(timeout 60 runc run -b "$work/e2e-red" e2e-red 2>&1 </dev/null | cat; echo "${PIPESTATUS[0]}")" hello$'\n'0 \
	"runc's output ends with the container"
is "$(ids)" '*' "and the container is forgotten"
# With its own standard streams the container holds no pipe, so that of runc create must end at once.
make_container e2e-red "$all"
containers="$containers e2e-red"
timeout 60 sh -c 'runc create -b "$1" e2e-red 3>&1 >/dev/null 2>&1 </dev/null | cat' sh "$work/e2e-red"
is "$? $(runc state e2e-red | jq -r .status) $(entry e2e-red .state)" "0 created done" "runc create, of which a descriptor is a pipe, lets go of it"
stop e2e-red
is "$(find /proc/[0-9]*/exe -lname "$bin/*" 2>/dev/null)" "" "no process of cotenant is left"

# The policy at start decides; a broken one stops new containers, not the end of old ones.
start e2e-red
: >"$policy"
stop e2e-red
is "$status $err $(ids)" "0  *" "poststop needs no policy"
