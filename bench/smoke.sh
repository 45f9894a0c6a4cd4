#!/bin/sh
# smoke.sh BUILD: every kernel of the table once on small shapes, held against its reference before it is timed. Exits 1
# when a kernel is wrong; the last line is "N passed, M failed".
build=$1
out=$build/bench-smoke.json
"$build/bench" --smoke --benchmark_out="$out" --benchmark_out_format=json >"$build/bench-smoke.txt" 2>"$build/bench-smoke.err"
status=$?
grep -v '^Run\|^CPU\|^  L\|^Load\|^\*\*\*\|: \|^20' "$build/bench-smoke.err"
total=$(grep -c '"run_type": "iteration"' "$out")
wrong=$(grep -c '"error_occurred": true' "$out")
[ "$wrong" = 0 ] || grep 'ERROR OCCURRED' "$build/bench-smoke.txt"
[ "$status" = 0 ] || [ "$wrong" != 0 ] || { echo "bench ended with status $status"; cat "$build/bench-smoke.err"; wrong=1; }
[ "$total" != 0 ] || { echo "no benchmark ran"; wrong=1; }
echo "$((total - wrong)) passed, $wrong failed"
exit $status
