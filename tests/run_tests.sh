#!/bin/sh
# Run every test program of a build folder and the CLI cases; the last line is "N passed, M failed".
# usage: run_tests.sh BUILD
build=$1
here=$(dirname "$0")
log=$(mktemp); trap 'rm -f "$log"' EXIT
passed=0; failed=0; skipped=0
export HEADROOM_BUILD="$build"
count() { # adds the TAP lines of $log; a program that dies in the middle is one failure more
  ok=$(grep -c '^ok ' "$log"); bad=$(grep -c '^not ok ' "$log"); skip=$(grep -ci '^ok .*# skip' "$log")
  passed=$((passed + ok - skip)); failed=$((failed + bad)); skipped=$((skipped + skip))
}
for t in "$build"/tests/test_*; do
  case $t in *.d | *.o) continue ;; esac
  [ -x "$t" ] || continue
  CMOCKA_MESSAGE_OUTPUT=tap "$t" >"$log" 2>&1
  status=$?
  count
  if [ $status != 0 ]; then
    grep -v '^ok ' "$log"
    [ "$bad" -gt 0 ] || { echo "not ok - $t ended with status $status"; failed=$((failed + 1)); }
  fi
  grep -iE '^(# )?skip(ped)?:' "$log"
  echo "$(basename "$t"): $((ok - skip)) passed, $bad failed, $skip skipped"
done
for s in "$here"/cli/run_*.sh; do
  [ -e "$s" ] || continue
  "$s" "$build" >"$log" 2>&1
  status=$?
  count
  grep -v '^ok ' "$log"
  [ $status = 0 ] || [ "$bad" -gt 0 ] || { echo "not ok - $s ended with status $status"; failed=$((failed + 1)); }
  echo "$(basename "$s"): $((ok - skip)) passed, $bad failed, $skip skipped"
done
[ $skipped = 0 ] || echo "$skipped skipped (each names its reason above)"
[ $((passed + failed)) -gt 0 ] || { echo "no test ran"; failed=1; }
echo "$passed passed, $failed failed"
[ $failed = 0 ]
