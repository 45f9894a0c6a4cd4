#!/bin/sh
# sanitized.sh - the tests of kernels, and the bugs planted for that sanitizer, under AddressSanitizer and under ThreadSanitizer: one
# mode or three of each shape, since plain builds have run all. TAP of all of them; run by run_tests.sh with HEADROOM_BUILD.
build=${HEADROOM_BUILD:-build}
here=$(dirname "$0")
export HR_TEST_QUICK=1 TSAN_OPTIONS=halt_on_error=1
run() { # run VARIANT: TAP, with names that say which variant it is
  for t in "$build/cuda-$1"/tests/test_cuda_*; do
    [ -x "$t" ] || continue
    CMOCKA_MESSAGE_OUTPUT=tap "$t" 2>&1
    status=$?
    [ $status = 0 ] || echo "not ok - $t ended with status $status"
  done | sed -E "s/^((not )?ok [0-9]+ - )/\1$1: /"
  HEADROOM_BUILD=$build/cuda-$1 "$here/planted.sh"
}
log=$(mktemp); trap 'rm -f "$log"' EXIT
run thread >"$log" &
run address
wait $!
cat "$log"
