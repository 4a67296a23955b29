#!/bin/sh
# Guest script: whose cookie is where. Every thread of every container has its tenant's, nobody else has any.
set -u
# shellcheck source=tests/vm/cotenant.sh
. tests/vm/cotenant.sh
write_policy

is "$("$probe" core-get)" 0x0 "cookie: this shell has none to begin with"

for runtime in $(runtimes); do
	on="cookie $runtime"
	# What the hook's parent is, seen from the hook's own place: a shell that runs it and then looks at itself.
	# shellcheck disable=SC2016 # that shell's own
	watch="$(printf '.hooks.createRuntime = [{path: "/bin/sh", args: ["sh", "-c", "%s createRuntime --policy %s --state-dir %s %s; r=$?; %s cookies $$ $PPID >%s/hook-cookies; exit $r"]}]' \
		"$hook" "$policy" "$state" "$hook_options" "$probe" "$work")"
	started "$on" "$runtime" red1 cookie red "threads=8" "$watch" || continue
	started "$on" "$runtime" red2 cookie red "threads=3" || continue
	started "$on" "$runtime" blue1 cookie blue "" || continue

	red=$(anchor_of red) blue=$(anchor_of blue)
	red_cookie=$(cookies_of "$red") blue_cookie=$(cookies_of "$blue")
	like "$red_cookie" '^0x[0-9a-f]*[1-9a-f][0-9a-f]*$' "$on: the anchor of red holds one cookie that is not 0"
	is "$(said red1 first)" "$red_cookie" "$on: red1's own first program reads its anchor's cookie"
	is "$(said red2 first)" "$red_cookie" "$on: red2 of the same tenant reads the same cookie"
	is "$(said blue1 first)" "$blue_cookie" "$on: blue1's own first program reads its anchor's cookie"
	isnt "$red_cookie" "$blue_cookie" "$on: two tenants have two cookies"

	is "$(said red1 thread | wc -l)" 8 "$on: red1 has 8 threads"
	is "$(said red1 thread | cut -d ' ' -f 2 | sort -u)" "$red_cookie" "$on: each of red1's 8 threads reads the cookie"
	is "$("$probe" cookies "$(pid_of red1)" | wc -l)" 8 "$on: from outside red1 has 8 threads too"
	is "$(cookies_of "$(pid_of red1)")" "$red_cookie" "$on: from outside each of them has the cookie"
	is "$(cookies_of "$(pid_of blue1)")" "$blue_cookie" "$on: from outside blue1 has its anchor's cookie"
	is "$(pid_of red1)" "$("$runtime" state red1 | jq .pid)" "$on: the ledger's pid is the container's"

	is "$(wc -l <"$work/hook-cookies" 2>&1 | sed 's/^0$/none/;s/^[1-9][0-9]*$/some/')" some \
		"$on: the runtime and the shell around the hook were looked at"
	is "$(cut -d ' ' -f 3 "$work/hook-cookies" | sort -u)" 0x0 "$on: both have cookie 0 when the hook is done"
	is "$("$probe" core-get)" 0x0 "$on: this shell has cookie 0 afterwards"
	is "$(cookies_of 1)" 0x0 "$on: process 1 has cookie 0 afterwards"
	unlike "$(cat "/proc/$red/cgroup")" cotenant-vm "$on: the anchor is not in a container's cgroup"
	is "$(sed -n 's/^Seccomp:.//p;s/^CapEff:.//p' "/proc/$red/status" | tr '\n' ' ')" "0000000000000000 2 " \
		"$on: the anchor has no capability and a seccomp filter"

	# The group outlives its first container, and goes with its last.
	stop "$runtime" red1
	is "$(anchor_of red)" "$red" "$on: the anchor stays while the tenant has a container"
	is "$(cookies_of "$(pid_of red2)")" "$red_cookie" "$on: red2 keeps the cookie when red1 is gone"
	started "$on" "$runtime" red3 cookie red "" || continue
	is "$(said red3 first)" "$red_cookie" "$on: a later container of the tenant gets that cookie"
	stop "$runtime" red2
	stop "$runtime" red3
	ok "$on: the anchor ends with the tenant's last container" wait_for "[ ! -d /proc/$red ]" 30
	is "$(anchor_of red)" "" "$on: and is off the record"
	stop_all "$on"
done

# The hook itself never runs under a tenant's cookie: its own system calls tell. Its children may take one.
if command -v strace >/dev/null; then
	trace="[\"strace\", \"-o\", \"$work/trace\", \"-e\", \"trace=prctl\", \"$hook\"]"
	bundle traced cookie red "" ".hooks.createRuntime[0].args |= $trace + .[1:]" \
		".hooks.createRuntime[0].path = \"$(command -v strace)\""
	launch runc traced && wait_report traced
	ok "cookie: a container starts under a traced hook"
	like "$(cat "$work/trace")" 'PR_SCHED_CORE' "cookie: the hook's core scheduling calls were traced"
	unlike "$(cat "$work/trace")" 'PR_SCHED_CORE_(CREATE|SHARE)' "cookie: the hook's own thread only ever asks"
	stop_all "cookie traced"
else
	skip "no strace" "cookie: the hook's own thread only ever asks"
fi
finish
