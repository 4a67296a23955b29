#!/bin/bash
# make demo: three containers with what the kernel says of them, and no trace afterwards, also when it is interrupted.
. tests/e2e/lib.bash

if [ "$(id -u)" != 0 ] || ! command -v runc >/dev/null || ! command -v busybox >/dev/null; then
	skip "root, runc and busybox-static" "demo"
	exit
fi
export BUILD=${BUILD:-build}
# In a place where everybody can read it: the tree need not be one.
chmod 711 "$work"
install -D -m 644 -t "$work/tree" Makefile NEWS.md
mkdir "$work/path"
ln -s "$(command -v make)" "$(command -v id)" "$(command -v bash)" "$(command -v sh)" "$work/path/"
out=$(PATH=$work/path /usr/bin/setpriv --reuid 65534 --regid 65534 --clear-groups make -C "$work/tree" --no-print-directory demo 2>&1)
is "$? $(grep '^make demo' <<<"$out")" "2 make demo needs root, since it starts containers, and there is no sudo here" \
	"demo: needs root, by itself or by sudo"

# A started container, or what one leaves: state, cgroups, mounts, anchors, directories.
traces() {
	runc list -q | grep cotenant-demo
	find /sys/fs/cgroup -type d -name 'cotenant-demo*' 2>/dev/null
	grep -o '/tmp/cotenant-demo[^ ]*' /proc/mounts
	ls -d /tmp/cotenant-demo* 2>/dev/null
}
gone() { [ -z "$(traces)" ]; }

out=$(tests/demo "$BUILD" 2>&1)
is "$?" 0 "demo: ends well"
for row in "red-web +red +web" "red-batch +red +batch" "blue-web +blue +web"; do
	like "$out" "^cotenant-demo-$row +(done|degraded) +(cookie|cores|none|no-siblings) +[0-9,-]+ +[0-9,-]+ " "demo: row $row"
done
like "$out" "^Core scheduling: " "demo: says what this machine can enforce"
like "$out" "^cotenant-demo-red-web:$" "demo: says why"
is "$(traces)" "" "demo: leaves nothing behind"

env --default-signal=INT tests/demo "$BUILD" >"$work/demo.out" 2>&1 &
demo=$!
containers_run() { [ "$(runc list -q | grep -c cotenant-demo-)" -ge 2 ]; }
ok "demo: containers run" wait_for containers_run
kill -INT "$demo"
wait "$demo"
is "$?" 130 "demo: Ctrl-C ends it"
ok "demo: nothing is left after Ctrl-C" wait_for gone
