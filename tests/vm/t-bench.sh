#!/bin/sh
# Guest script: that the benchmark runs, and has a figure for each runtime. What the figures are is nobody's business here.
# shellcheck source=tests/vm/lib.sh
. tests/vm/lib.sh

out=$(tests/bench/run 1 0 2>&1)
is "$?" 0 "bench: ends well"
for runtime in runc crun; do
	like "$out" "^$runtime +0 entries: run +[1-9][0-9]* us; .*, cotenant-hook +-?[0-9]+ us: ratio -?[0-9.]+ " "bench: $runtime has its figures"
done
unlike "$out" "rror|refused|cotenant-hook: " "bench: and nothing went wrong on the way"
is "$(ls -d /tmp/cotenant-bench* /dev/shm/cotenant-bench* 2>/dev/null)" "" "bench: nothing is left behind"
diag "$out"
finish
