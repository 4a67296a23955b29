#!/bin/sh
# What `make demo-vm` shows: the demo on a machine that has what it asks for.
. tests/vm/lib.sh

out=$(tests/demo "${1-build}" 2>&1)
is "$?" 0 "demo: ends well"
like "$out" "^cotenant-demo-red-web +red +web +done +cookie +[0-9,-]+ +[0-9,-]+ +default +[0-9]+ of [0-9]+ threads" "demo: red has a cookie"
like "$out" "^cotenant-demo-blue-web +blue +web +done +cookie " "demo: so has blue"
like "$out" "^cotenant-demo-red-batch +red +batch +done +cookie .*weighted interleave=static:0-2 " "demo: and red's batch a weighted interleave"
is "$(ls -d /tmp/cotenant-demo* 2>/dev/null)" "" "demo: nothing is left behind"
finish
