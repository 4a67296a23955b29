#!/bin/sh
# Guest script: isolation by whole cores, and what happens where core scheduling is lacking.
#
#   t-cores.sh full            core scheduling, two threads a core
#   t-cores.sh nocoresched     a kernel without CONFIG_SCHED_CORE
#   t-cores.sh nosmt           core scheduling, but one thread a core
set -u
# shellcheck source=tests/vm/cotenant.sh
. tests/vm/cotenant.sh
variant=${1-full}
write_policy
two_cores='.linux.resources.cpu = {quota: 400000, period: 100000}'

running_cpus() { # ID
	effective "$(pid_of "$1")" cpus
}

# The effective CPUs of the second are on none of the first's physical cores.
apart() { # WHAT ID ID
	for apart_core in $(cores_of "$(running_cpus "$2")"); do
		cores_of "$(running_cpus "$3")" | grep -qx "$apart_core" && {
			fail "$1: $2 and $3 share no physical core" \
				"core $apart_core: $2 runs on $(running_cpus "$2"), $3 on $(running_cpus "$3")"
			return
		}
	done
	pass "$1: $2 and $3 share no physical core"
}

# All threads of the cores that it touches, and as planned.
whole_cores() { # WHAT ID COUNT
	is "$(each "$(running_cpus "$2")" | wc -l)" "$3" "$1: $2 runs on $3 CPUs"
	is "$(for list in $(cores_of "$(running_cpus "$2")"); do each "$list"; done | sort -n)" \
		"$(each "$(running_cpus "$2")")" "$1: $2 has all threads of its cores"
	as_planned "$1" "$2"
}

as_planned() { # WHAT ID
	is "$(running_cpus "$2")" "$(entry_of "$2" .plan.cpus)" "$1: effective CPUs of $2 are the planned ones"
}

# Two tenants of CLASS beside a neighbour of class NEIGHBOUR who was there first.
test_cores() { # WHAT RUNTIME CLASS NEIGHBOUR
	on=$1
	started "$on" "$2" n "$4" neighbour "" || return
	is "$(running_cpus n)" 0-7 "$on: the neighbour has the whole machine"
	cookie=$(said n first)
	started "$on" "$2" a1 "$3" a "" "$two_cores" && started "$on" "$2" b1 "$3" b "" || return
	is "$(entry_of a1 .plan.mechanism) $(entry_of b1 .plan.mechanism)" "cores cores" "$on: the mechanism is cores"
	is "$(entry_of a1 .state)" "done" "$on: and that is not degraded"
	whole_cores "$on" a1 4
	whole_cores "$on" b1 2
	apart "$on" a1 b1
	apart "$on" a1 n
	apart "$on" b1 n
	as_planned "$on: the neighbour has moved aside" n
	is "$(each "$(running_cpus n)" | wc -l)" 2 "$on: the neighbour keeps the one core that is left"
	is "$(cookies_of "$(pid_of n)")" "$cookie" "$on: and its cookie, if it has one, is the same"
	is "$(said a1 first)" "$(said b1 first)" "$on: owners of cores need no cookie"

	refused "$on: a third tenant" "placement: no room for container c1: class \"$3\" wants whole cores for 1.00 CPUs within llc, and the most to be had is 0.00 \\(last-level cache [01]\\); the rest is reserved, owned by others, or the last that a neighbour may run on. Stop a container, ask for fewer CPUs, or widen cpu.span" \
		"$2" c1 "$3" c ""
	is "$(each "$(running_cpus n)" | wc -l)" 2 "$on: a refused container costs the neighbour nothing"
	if started "$on: a second container of tenant a" "$2" a2 "$3" a ""; then
		apart "$on" a2 b1
		apart "$on" a2 n
		is "$(entry_of a2 '.plan.reasons[]' | grep -c 'shares cores with containers of its own group')" 1 \
			"$on: a2 shares cores with a1, and the ledger says so"
		stop "$2" a2
	fi
	stop "$2" b1
	as_planned "$on: b1 is gone" n
	is "$(each "$(running_cpus n)" | wc -l)" 4 "$on: the neighbour has b1's core back"
	apart "$on" a1 n
	stop "$2" a1
	as_planned "$on: a1 is gone too" n
	is "$(running_cpus n)" 0-7 "$on: the neighbour has the whole machine back"
	is "$(cookies_of "$(pid_of n)")" "$cookie" "$on: with the cookie that it began with"
	stop_all "$on"
}

# The last tenant of cores must leave a bound neighbour where it is: its CPUs are not cotenant's to change.
test_bound() { # WHAT RUNTIME CLASS NEIGHBOUR
	on=$1
	started "$on" "$2" n "$4" neighbour "" '.linux.resources.cpu = {cpus: "0-3"}' &&
		started "$on" "$2" a1 "$3" a "" || return
	is "$(running_cpus n)" 0-3 "$on: a neighbour whose CPUs the OCI spec names stays there"
	apart "$on" a1 n
	stop_all "$on"
}

unsupported() { # STATE MECHANISM COOKIE: what holds without core scheduling
	like "$("$build/cotenant" --state-dir "$state" support 2>&1)" "^Core scheduling: $1" "cores $variant: support says $1"
}

for runtime in $(runtimes); do
	on="cores $variant $runtime"
	case $variant in
	full)
		test_cores "$on" "$runtime" cores cookie
		test_bound "$on bound" "$runtime" cores cookie
		;;
	nocoresched)
		unsupported no-kernel-option
		test_cores "$on fallback" "$runtime" fallback plain
		on="cores $variant $runtime"
		refused "$on refuse" 'placement: container r: class "cookie" wants a core-scheduling cookie: this kernel is built without core scheduling \(no-kernel-option\); boot a kernel with CONFIG_SCHED_CORE=y, or set isolation.on_unsupported to cores or degrade' \
			"$runtime" r cookie red ""
		refused "$on admit does not override refuse" "placement: container r: class \"admit\" wants a core-scheduling cookie" \
			"$runtime" r admit red ""
		if started "$on degrade" "$runtime" d degrade red ""; then
			is "$(entry_of d .state)" degraded "$on degrade: marked degraded"
			is "$(entry_of d .plan.mechanism)" none "$on degrade: no mechanism"
			like "$(entry_of d .why)" "not isolated: this kernel is built without core scheduling" "$on degrade: with the reason"
			like "$("$build/cotenant" --state-dir "$state" status d)" "^d: not isolated: this kernel is built" \
				"$on degrade: which status shows"
			is "$(said d first)" EINVAL "$on degrade: there is no cookie"
		fi
		stop_all "$on"
		;;
	nosmt)
		unsupported no-siblings
		if started "$on" "$runtime" c cookie red ""; then
			is "$(entry_of c .plan.mechanism)" no-siblings "$on: the mechanism is no-siblings"
			is "$(entry_of c .state)" "done" "$on: that is not degraded"
			is "$(said c first)" ENODEV "$on: the kernel knows no cookies without SMT"
			is "$(anchors)" "" "$on: there is no anchor"
		fi
		if started "$on" "$runtime" w weighted blue "touch=4"; then
			is "$(entry_of w .plan.mechanism)" no-siblings "$on: so too for a class with a memory policy"
			is "$(said w policy | sed 's/:.*//')" "weighted interleave=static" "$on: which it gets"
		fi
		if started "$on" "$runtime" o cores green ""; then
			is "$(entry_of o .plan.mechanism)" cores "$on: a class of mode cores gets a core"
			whole_cores "$on" o 1
			apart "$on" o c
		fi
		stop_all "$on"
		;;
	esac
done

# SMT can be switched off and on while the machine runs.
if [ "$variant" = full ]; then
	on="cores smt switched off"
	echo off >/sys/devices/system/cpu/smt/control
	is "$(cat /sys/devices/system/cpu/online)" 0,2,4,6 "$on: one CPU of each core is online"
	if started "$on" runc c cookie red ""; then
		is "$(entry_of c .plan.mechanism)" no-siblings "$on: the mechanism is no-siblings"
		is "$(running_cpus c)" 0,2,4,6 "$on: the container runs on what is online"
	fi
	echo on >/sys/devices/system/cpu/smt/control
	if started "$on and on" runc d cookie blue ""; then
		is "$(entry_of d .plan.mechanism)" cookie "$on and on: a new container has a cookie again"
		is "$(running_cpus d)" 0-7 "$on and on: and the whole machine"
	fi
	stop_all "$on"
fi
finish
