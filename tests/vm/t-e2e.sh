#!/bin/sh
# The tests of the host that need a cpuset hierarchy, on cgroup v2, SMT, and several nodes.
. tests/vm/lib.sh

export STAGES=createRuntime # what is wrong with a state is wrong on any machine, and an emulated one is slow
[ $# -gt 0 ] || set -- state command status
for name; do
	out=$(tests/e2e/"$name".t 2>&1)
	is "$?" 0 "e2e $name: comes to its end"
	like "$out" "^ok " "e2e $name: ran"
	# What the host cannot do.
	[ "$name" != podman ] || like "$out" "^ok .* exec: has no cookie" "e2e $name: with cookies"
	is "$(echo "$out" | grep -A4 -E "^not ok|# SKIP")" "" "e2e $name: nothing failed, nothing was left out"
done
finish
