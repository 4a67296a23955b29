#!/bin/sh
# The unit tests that need a kernel with core scheduling, or with 32-bit programs.
. tests/vm/lib.sh

for name in test_anchor test_inject_refused test_keeper test_keeper_real test_proc test_guard test_mempolicy; do
	out=$(CMOCKA_MESSAGE_OUTPUT=TAP build/tests/unit/$name 2>&1)
	is "$?" 0 "unit $name: ends well"
	like "$out" "^ok " "unit $name: ran"
	# What needs a kernel without core scheduling runs on the host.
	unlike "$(echo "$out" | grep -v "SKIP test_without_support")" "^not ok|SKIP" "unit $name: nothing failed, nothing was left out"
done
finish
