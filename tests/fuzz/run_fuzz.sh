#!/bin/sh
# Run every fuzz target of a build folder for a while, each from its seed corpus tests/fuzz/corpus_NAME; one line a target.
# New inputs go to BUILD/fuzz/work_NAME, findings to BUILD/fuzz/findings_NAME. Exit 1 when a target fails or none is there.
# usage: run_fuzz.sh BUILD SECONDS
build=$1; seconds=${2:-20}
here=$(dirname "$0")
failed=0; ran=0
for t in "$build"/fuzz/fuzz_*; do
  case $t in *.d | *.o | *.log) continue ;; esac
  [ -f "$t" ] && [ -x "$t" ] || continue
  name=$(basename "$t"); name=${name#fuzz_}
  work=$build/fuzz/work_$name; findings=$build/fuzz/findings_$name; log=$build/fuzz/fuzz_$name.log
  mkdir -p "$work" "$findings"
  seeds=$here/corpus_$name; [ -d "$seeds" ] || seeds=
  ran=$((ran + 1))
  if "$t" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$findings/" -print_final_stats=1 \
      "$work" $seeds >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "fuzz_$name: ok, ${runs:-?} inputs in $seconds s${seeds:+ from $(ls "$seeds" | wc -l) seeds}"
  else
    failed=1
    tail -25 "$log"
    what=$(sed -n 's/^SUMMARY: *//p' "$log" | head -1)
    file=$(sed -n 's/.*Test unit written to *//p' "$log" | head -1)
    echo "fuzz_$name: FAILED: ${what:-see $log}${file:+; input kept in $file}"
  fi
done
[ $ran -gt 0 ] || { echo "no fuzz target in $build/fuzz"; exit 1; }
exit $failed
