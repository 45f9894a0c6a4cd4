#!/bin/sh
# nightly.sh [BASE]: is this build slower than BASE? Measures the suite in pairs, writes build/nightly/ and ends with the exit
# code of `headroom gate`: 0 pass, 1 regression, 2 it could not run, 3 inconclusive, 4 cells failed, 130 interrupted.
#
# BASE      a commit (built in a work tree) or a program; default: the newest commit that is older than a day
# HEADROOM  the program that is judged (build/headroom)      OUT     where files go (build/nightly)
# DB        the store that keeps every night (OUT/nightly.db) SUITE   a --config file of sweep (harness/ci/suite.json)
# LIMIT     1000 s for the pairs (0: none)
# PAIRS     13        BUDGET  as ttft=+5%,tpot=+3%            ALLOW   a file of known slowdowns
set -u
cd "$(dirname "$0")/../.." || exit 2
die() { echo "nightly: $*" >&2; exit 2; }
base=${1:-${BASE:-}}
[ -n "$base" ] || base=$(git rev-list -1 --before='1 day ago' HEAD 2>/dev/null)
[ -n "$base" ] || die "no commit is older than a day: which one is the base? nightly.sh COMMIT"
program=${HEADROOM:-build/headroom} out=${OUT:-build/nightly} suite=${SUITE:-harness/ci/suite.json}
db=${DB:-$out/nightly.db}
[ -x "$program" ] || die "$program is not built: make first"
[ -r "$suite" ] || die "$suite cannot be read"
mkdir -p "$out" || die "$out cannot be made"
rm -rf "$out/report" "$out/gate.json" "$out/junit.xml" "$out/summary.md" "$out/exit_code"

# A night with a bad machine explains itself; it is judged all the same.
"$program" doctor --out "$out/doctor.txt" -o table -q || echo "nightly: the doctor has findings: $out/doctor.txt" >&2

set -- --pairs "${PAIRS:-13}" --junit "$out/junit.xml" --summary "$out/summary.md" --json --out "$out/gate.json" -oe table
[ "${LIMIT:-1000}" = 0 ] || set -- "$@" --time-limit "${LIMIT:-1000}"
[ -z "${BUDGET:-}" ] || set -- "$@" --budget "$BUDGET"
[ -z "${ALLOW:-}" ] || set -- "$@" --allow "$ALLOW"
"$program" gate --ab "$base" "$@" -- --config "$suite"
code=$?
echo "$code" >"$out/exit_code"
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -r "$out/summary.md" ]; then cat "$out/summary.md" >>"$GITHUB_STEP_SUMMARY"; fi
case $code in 2 | 130) exit "$code" ;; esac

# Once more for the curve over nights; what fails here changes no verdict.
"$program" sweep --config "$suite" --db "$db" --out "$out/cells.csv" -o csv -q || echo "nightly: this night is not whole in $db" >&2
"$program" report --run last --db "$db" --out "$out/report" -q >/dev/null || echo "nightly: no report" >&2
"$program" history --db "$db" --html "$out/history.html" -o md --out "$out/history.md" -q || echo "nightly: no history" >&2

case $code in
0) word="pass: no slower than" ;;
1) word="REGRESSION against" ;;
3) word="inconclusive against" ;;
4) word="CELLS FAILED, against" ;;
*) word="ended with $code, against" ;;
esac
echo "nightly: $word $base; $out holds junit.xml, summary.md, gate.json, report/, history.html"
exit "$code"
