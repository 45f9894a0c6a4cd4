#!/bin/sh
# Run test programs and the CLI cases; the last line is "N passed, M failed".
# A program that dies, stops before its last test or hangs (HR_TEST_TIMEOUT, 600 s) is one failure more.
# usage: run_tests.sh BUILD PROGRAM...
build=$1; shift
limit=${HR_TEST_TIMEOUT:-600}
here=$(dirname "$0")
log=$(mktemp); cache=$(mktemp -d); trap 'rm -rf "$log" "$cache"' EXIT
export XDG_CACHE_HOME="$cache" # tests write nothing into the home folder
passed=0; failed=0; skipped=0
export HEADROOM_BUILD="$build"
run() { # run PROGRAM ARGS...: adds its TAP lines and shows what failed or was skipped
  timeout -k 10 "$limit" "$@" >"$log" 2>&1
  status=$?
  sed -i -E 's/^not ok ([0-9]+ # SKIP)/ok \1/' "$log" # cmocka 1.1 writes a skipped test so
  ok=$(grep -c '^ok ' "$log"); bad=$(grep -c '^not ok ' "$log"); skip=$(grep -ci '^ok .*# skip' "$log")
  planned=$(sed -n 's/^1\.\.\([0-9]*\)$/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
  why=""
  if [ $status = 124 ]; then why="did not end within $limit s"
  elif [ $((ok + bad)) -lt "$planned" ]; then why="ended with status $status after $((ok + bad)) of $planned tests"
  elif [ $status != 0 ] && [ "$bad" = 0 ]; then why="ended with status $status"
  elif [ $((ok + bad)) = 0 ]; then why="ran no test"; fi
  if [ $status != 0 ] || [ "$bad" != 0 ] || [ -n "$why" ]; then grep -v '^ok ' "$log"; fi
  if [ -n "$why" ]; then bad=$((bad + 1)); echo "not ok - $1 $why"; fi
  grep -iE '^(# )?skip(ped)?:' "$log"
  passed=$((passed + ok - skip)); failed=$((failed + bad)); skipped=$((skipped + skip))
  echo "$(basename "$1"): $((ok - skip)) passed, $bad failed, $skip skipped"
}
CMOCKA_MESSAGE_OUTPUT=tap; export CMOCKA_MESSAGE_OUTPUT
for t in "$@"; do run "$t"; done
for s in "$here"/cli/run_*.sh; do
  run "$s" "$build"
done
[ $skipped = 0 ] || echo "$skipped skipped (each names its reason above)"
[ $((passed + failed)) -gt 0 ] || { echo "no test ran"; failed=1; }
echo "$passed passed, $failed failed"
[ $failed = 0 ]
