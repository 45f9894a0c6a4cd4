#!/bin/sh
# Do the ranges that nsys sees take the time that the recorder says? Profiles one cell with the real nsys and lets the profiled sweep keep its
# own ops; then adds up the ranges of the recorded repetitions, which are every second `request`, and of their recorded steps, which are every
# other one (of four or more: --osl 5), so that both say how long the same calls took. Each op that takes over 200 us is compared. Exit 1 when one is off by more than 5 % or a call is missing, 2 when it
# could not be tried. Of a minute or more, so no part of `make test`.
# usage: nsys_agrees.sh BUILD SWEEP-FLAGS...     as build -m synth:llama-3.2-1b --quant int8 --isl 256 --osl 32
build=$1; shift
bin=$(cd "$build" && pwd)/headroom
[ -x "$bin" ] && [ $# -gt 0 ] || { sed -n 's/^# usage: /usage: /p' "$0"; exit 2; }
command -v nsys >/dev/null || { echo "nsys is not in PATH"; exit 2; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
# The cell comes from a short sweep; what is compared is measured under nsys.
"$bin" sweep "$@" -r 1 --no-warmup --db first.db -q -o csv --out first.csv || exit 2
line=$("$bin" nsys last --db first.db --report profile -q) || exit 2
sh -c "$(echo "$line" | sed 's/--db none/--db profiled.db/; s/--repetitions 3/--repetitions 5/')" >log 2>&1 || { tail -3 log; exit 2; }
if ! [ -f profile.nsys-rep ]; then
  importer=$(command -v QdstrmImporter || ls /usr/lib/nsight-systems/host-linux-*/QdstrmImporter 2>/dev/null | head -1)
  "$importer" --input-file profile.qdstrm >log 2>&1 || { tail -3 log; exit 2; }
fi
report() { # report PATTERN FILE: what this version of nsys calls it
  nsys stats --report "$(nsys stats --help-reports 2>/dev/null | grep -oE "$1" | head -1)" --format csv profile.nsys-rep >"$2" 2>log ||
    { tail -3 log; exit 2; }
}
report 'nvtx_?sum' table.csv
report 'nvtx_?(pp|pushpop_)trace' trace.csv
"$bin" nsys last --db profiled.db --import table.csv -q -o csv --out compared.csv || exit 2
awk -F, '
  { sub(/\r/, "") }
  FNR == 1 { file++; delete at }
  file == 1 { # every range in order of its start
    if (!("Name" in at)) { for (i = 1; i <= NF; i++) at[$i] = i; if (!("Name" in at)) delete at; next }
    name = $at["Name"]; sub(/^headroom:/, "", name)
    if (name == "request") { requests++; step = -1 }
    if (name == "decode") step++
    if (requests % 2 == 0 && (step < 0 || (step + requests / 2 - 1) % 2 == 0)) { ns[name] += $at["Duration (ns)"]; calls[name]++ }
    next
  }
  FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
  $at["recorded_mean_ns"] > 200000 {
    name = $at["name"]; recorded = $at["recorded_mean_ns"] * $at["recorded_n"]
    off = 100 * (ns[name] / recorded - 1); far = off < 0 ? -off : off
    printf "%-20s %6d calls: nsys %10.3f ms, recorder %10.3f ms, %+.2f %%\n", name, calls[name], ns[name] / 1e6, recorded / 1e6, off
    if (calls[name] != $at["recorded_n"]) { printf "%s: the recorder saw %d calls\n", name, $at["recorded_n"]; worst = 100 }
    n++; if (far > worst) worst = far
  }
  END {
    if (!n) { print "no op takes over 200 us"; exit 2 }
    printf "%d ops over 200 us, the worst is off by %.2f %%\n", n, worst
    exit worst > 5
  }' trace.csv compared.csv
