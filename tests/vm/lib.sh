# shellcheck shell=sh
# TAP for guest scripts, and what they need of containers. POSIX sh, sourced:
#
#   . tests/vm/lib.sh
#   is "$(nproc)" 8 "eight CPUs"
#   finish
#
# A failed check never ends the script; finish prints the plan and leaves with
# 1 if any check failed. With set -e in the caller, write checks as commands
# of their own (they always return 0).

tap_passed=0
tap_failed=0
tap_skipped=0

tap_line() { # "ok"|"not ok" NAME
	printf '%s %d - %s\n' "$1" $((tap_passed + tap_failed + tap_skipped)) "$2"
}

pass() { # NAME
	tap_passed=$((tap_passed + 1))
	tap_line ok "$1"
}

fail() { # NAME [WHAT HAPPENED]
	tap_failed=$((tap_failed + 1))
	tap_line "not ok" "$1"
	[ -z "${2-}" ] || diag "$2"
}

diag() { # TEXT, any number of lines
	printf '%s\n' "$*" | sed 's/^/# /'
}

# ok NAME COMMAND [ARG]...   the command succeeds
# ok NAME                    the command before this line succeeded
ok() {
	tap_status=$?
	tap_name=$1
	shift
	if [ $# -gt 0 ]; then
		tap_status=0
		tap_out=$("$@" 2>&1) || tap_status=$?
		[ "$tap_status" = 0 ] || tap_out="$* ended with $tap_status: $tap_out"
	else
		tap_out="status $tap_status"
	fi
	if [ "$tap_status" = 0 ]; then pass "$tap_name"; else fail "$tap_name" "$tap_out"; fi
}

is() { # GOT WANT NAME
	if [ "$1" = "$2" ]; then
		pass "$3"
	else
		fail "$3" "got:  $1
want: $2"
	fi
}

isnt() { # GOT UNWANTED NAME
	if [ "$1" != "$2" ]; then pass "$3"; else fail "$3" "got the unwanted: $1"; fi
}

like() { # GOT ERE NAME; some line of GOT matches
	if printf '%s\n' "$1" | grep -Eq -- "$2"; then
		pass "$3"
	else
		fail "$3" "got:      $1
wanted like: $2"
	fi
}

unlike() { # GOT ERE NAME; no line of GOT matches
	if printf '%s\n' "$1" | grep -Eq -- "$2"; then
		fail "$3" "got:      $1
unwanted: $2"
	else
		pass "$3"
	fi
}

# skip WHAT-IS-MISSING [NAME]. Fatal at the end where MUST_RUN names this
# script's tier (vm): CI must not lose tests in silence.
skip() {
	tap_skipped=$((tap_skipped + 1))
	tap_line ok "${2-} # SKIP $1"
}

# Ends the script.
finish() {
	tap_total=$((tap_passed + tap_failed + tap_skipped))
	printf '1..%d\n' "$tap_total"
	tap_rc=0
	[ "$tap_failed" = 0 ] || tap_rc=1
	if [ "$tap_total" = 0 ]; then
		diag "nothing was checked"
		tap_rc=1
	fi
	case " ${MUST_RUN-} " in
	*[\ ,]vm[\ ,]*)
		if [ "$tap_skipped" -gt 0 ]; then
			diag "MUST_RUN names vm: a skip is a failure"
			tap_rc=1
		fi
		;;
	esac
	if [ "$tap_skipped" = 0 ]; then
		diag "$tap_passed passed, $tap_failed failed"
	else
		diag "$tap_passed passed, $tap_failed failed, $tap_skipped skipped"
	fi
	exit "$tap_rc"
}

# wait_for "COMMAND" SECONDS: until it succeeds; 1 when the time is over. The
# guest is emulated and slow: give generous deadlines, they cost nothing when
# the event comes.
wait_for() {
	tap_deadline=$(($(cut -d . -f 1 /proc/uptime) + $2))
	until eval "$1" >/dev/null 2>&1; do
		[ "$(cut -d . -f 1 /proc/uptime)" -lt "$tap_deadline" ] || return 1
		sleep 0.05
	done
}

bundle_base=${TMPDIR:-/tmp}/vm-bundle

# What all bundles share: a root of one static busybox, and a runtime's own idea
# of a config.json. Made once, by the first make_bundle.
make_bundle_base() {
	[ ! -e "$bundle_base/done" ] || return 0
	mkdir -p "$bundle_base/rootfs/bin" || return 1
	(
		cd "$bundle_base/rootfs" &&
			mkdir -p proc sys dev etc tmp &&
			cp /bin/busybox bin/busybox &&
			chroot . /bin/busybox --install -s /bin &&
			echo 'root:x:0:0:root:/:/bin/sh' >etc/passwd
	) || return 1
	rm -f "$bundle_base/config.json"
	if command -v runc >/dev/null; then
		runc spec -b "$bundle_base"
	else
		crun spec -b "$bundle_base"
	fi || return 1
	: >"$bundle_base/done"
}

# make_bundle [-b BINARY]... DIR ID SCRIPT [JQ-EDIT]...
#
# An OCI bundle in DIR (below /tmp: its overlay needs a tmpfs) that runs `sh -c SCRIPT` without a terminal, in cgroup
# /cotenant-vm/ID. Each static BINARY comes into its /bin. JQ-EDITs are filters
# over config.json, applied in turn:
#   make_bundle /tmp/b1 b1 'sleep 60' '.linux.resources.cpu.cpus = "0-1"' \
#       '.annotations."org.example.tenant" = "a"' \
#       '.hooks.createRuntime = [{path: "/bin/true", args: ["true", "x"]}]'
make_bundle() {
	tap_binaries=
	while [ "$1" = -b ]; do
		tap_binaries="$tap_binaries $2"
		shift 2
	done
	make_bundle_base || return 1
	tap_dir=$1 tap_id=$2 tap_script=$3
	shift 3
	# shellcheck disable=SC2016 # $script and $id are variables of jq
	tap_filter='.process.terminal = false
		| .process.args = ["sh", "-c", $script]
		| .root.readonly = false
		| .hostname = $id
		| .linux.cgroupsPath = "/cotenant-vm/" + $id'
	for tap_edit; do
		tap_filter="$tap_filter | ($tap_edit)"
	done
	umount "$tap_dir/rootfs" 2>/dev/null || :
	rm -rf "$tap_dir"
	mkdir -p "$tap_dir/rootfs" "$tap_dir/up" "$tap_dir/work" || return 1
	# As container engines do it, and cheaper than hundreds of links.
	mount -t overlay -o "lowerdir=$bundle_base/rootfs,upperdir=$tap_dir/up,workdir=$tap_dir/work" \
		overlay "$tap_dir/rootfs" || return 1
	for tap_binary in $tap_binaries; do
		cp "$tap_binary" "$tap_dir/rootfs/bin/" || return 1
	done
	jq --arg id "$tap_id" --arg script "$tap_script" "$tap_filter" \
		"$bundle_base/config.json" >"$tap_dir/config.json"
}
