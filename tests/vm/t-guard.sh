#!/bin/sh
# Guest script: what a container can still change itself.
set -u
# shellcheck source=tests/vm/cotenant.sh
. tests/vm/cotenant.sh
write_policy

can() { # WHAT ID RESULT CALL...
	can_what=$1 can_id=$2 can_result=$3
	shift 3
	for can_call; do
		case "$closed" in *" ${can_call##*-} "*) continue ;; esac
		is "$(said "$can_id" "try $can_call")" "$can_result" "$can_what: $can_call: $can_result"
	done
}

# Doors that the kernel itself does not have: 32-bit calls end in SIGSEGV there, x32 ones in ENOSYS.
closed=
look_at_doors() { # ID of a container without a guard
	closed=
	[ "$(said "$1" "try get-i386")" != signal-11 ] || closed=" i386 "
	[ "$(said "$1" "try create-x32")" != ENOSYS ] || closed="$closed x32 "
	[ -z "$closed" ] || diag "this kernel has no$closed calls: the unit tests try them on the host"
}

cookie_calls="create create-high-option create-high-command create-i386 create-x32 share-from share-to"
memory_calls="set_mempolicy set_mempolicy-i386 mbind move_pages"

for runtime in $(runtimes); do
	on="guard $runtime"
	# shellcheck disable=SC2086 # a list of calls
	# Without a guard the calls succeed: what is denied below is denied by the guard, and by nothing else.
	if started "$on" "$runtime" open unguarded red try; then
		look_at_doors open
		can "$on none" open ok get get-i386 create create-high-option create-i386 create-x32 share-from \
			$memory_calls get_mempolicy sched_setaffinity
		is "$(said open seccomp)" 0 "$on none: no filter"
	fi
	# shellcheck disable=SC2086 # lists of calls
	if started "$on" "$runtime" cookie cookie red "try threads=4"; then
		can "$on cookie" cookie EPERM $cookie_calls
		can "$on cookie" cookie ok get get-i386 $memory_calls get_mempolicy sched_setaffinity
		is "$(said cookie seccomp)" 2 "$on cookie: a filter, seen from inside"
		is "$(sed -n 's/^Seccomp:.//p' /proc/"$(pid_of cookie)"/task/*/status | sort -u)" 2 \
			"$on cookie: and every thread has it, seen from outside"
		is "$(said cookie first)" "$(cookies_of "$(anchor_of red)")" "$on cookie: the cookie is still the anchor's"
	fi
	# shellcheck disable=SC2086
	if started "$on" "$runtime" memory guard-memory red try; then
		can "$on memory" memory EPERM $memory_calls
		can "$on memory" memory ok get get_mempolicy create sched_setaffinity
	fi
	# shellcheck disable=SC2086
	if started "$on" "$runtime" all guard-all red try; then
		can "$on all" all EPERM $cookie_calls $memory_calls sched_setaffinity
		can "$on all" all ok get get_mempolicy
	fi
	# A container without any capability cannot take it off either, and one that may not gain privileges has it too.
	if started "$on" "$runtime" nnp cookie red try '.process.noNewPrivileges = true | .process.capabilities = {}'; then
		can "$on unprivileged" nnp EPERM create create-i386
		can "$on unprivileged" nnp ok get
	fi
	# The runtime's own filter comes on top.
	if started "$on" "$runtime" both cookie red try \
		'.linux.seccomp = {defaultAction: "SCMP_ACT_ALLOW", syscalls: [{names: ["mbind"], action: "SCMP_ACT_ERRNO", errnoRet: 13}]}'; then
		can "$on both" both EPERM create
		can "$on both" both EACCES mbind
	fi
	stop_all "$on"
done
finish
