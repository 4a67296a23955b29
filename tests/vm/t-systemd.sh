#!/bin/sh
# Guest script: the systemd cgroup driver, with a real systemd. Needs `tests/vm/run --rootfs DIR --systemd`
# (tests/vm/systemd-root makes DIR).
#
#   t-systemd.sh v2 | v1 | hybrid     what systemd has mounted on /sys/fs/cgroup
set -u
# shellcheck source=tests/vm/cotenant.sh
. tests/vm/cotenant.sh
cgroup=${1-v2}
write_policy
# shellcheck disable=SC2034 # of launch and stop
runtime_options=--systemd-cgroup

case $cgroup in
hybrid) runtimes=runc ;; # crun refuses it
*) runtimes=$(runtimes) ;;
esac
ok "systemd $cgroup: it is process 1" [ "$(cat /proc/1/comm)" = systemd ]
is "$(awk '$3 ~ /^cgroup2?$/ && $2 ~ /cgroup(\/unified|\/cpuset)?$/ { print $2, $3 }' /proc/mounts | sort | paste -sd ' ')" \
	"$(case $cgroup in
	v2) echo /sys/fs/cgroup cgroup2 ;;
	v1) echo /sys/fs/cgroup/cpuset cgroup ;;
	hybrid) echo /sys/fs/cgroup/cpuset cgroup /sys/fs/cgroup/unified cgroup2 ;;
	esac)" "systemd $cgroup: the cgroups are of that version"
for runtime in $runtimes; do
	on="systemd $cgroup $runtime"
	test_everything "$on" "$runtime" red '.linux.cgroupsPath = "system.slice:cotenant:x"'
	unit=cotenant-x.scope
	is "$(systemctl is-active $unit)" active "$on: the container is a unit"
	like "$(entry_of x .cgroup)" "^/system.slice/$unit" "$on: the ledger has its cgroup"
	is "$(sed 's/^[^:]*:[^:]*://' "/proc/$(anchor_of red)/cgroup" | sort -u | paste -sd ' ')" \
		"$(case $cgroup in v2) echo /cotenant-anchors ;; v1) echo / ;; hybrid) echo / /cotenant-anchors ;; esac)" \
		"$on: the anchor is in none of systemd's units, in any hierarchy"

	# The cpuset is written to the cgroup and not to the unit, which then names no CPUs that could be put back.
	systemctl daemon-reload
	is "$(systemctl show -P AllowedCPUs $unit)" "" "$on: the unit names no CPUs"
	is "$(effective "$(pid_of x)" cpus)" "$(entry_of x .plan.cpus)" "$on: after daemon-reload the CPUs are the same"
	is "$(cookies_of "$(pid_of x)")" "$(cookies_of "$(anchor_of red)")" "$on: after daemon-reload the cookie is the same"
	started "$on: another container" "$runtime" y cookie blue "" '.linux.cgroupsPath = "system.slice:cotenant:y"' &&
		is "$(said y first)" "$(cookies_of "$(anchor_of blue)")" "$on: another container has its cookie"

	# Ended behind the runtime's back, as an operator may.
	systemctl stop cotenant-y.scope
	ok "$on: systemctl stop ends the container" wait_for "[ ! -d /proc/$(pid_of y) ]" 60
	stop_all "$on"
	isnt "$(systemctl is-active $unit)" active "$on: the unit is gone"
done
finish
