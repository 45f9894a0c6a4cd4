#!/bin/sh
# make demo: measure this machine for about two minutes and write a report. usage: demo.sh build/headroom
# Synthetic weights of published shapes, so nothing is downloaded. Three repetitions a cell: a first look, and the report
# says so. DEMO_OUT names another folder than build/demo.
set -eu
headroom=$1
out=${DEMO_OUT:-$(dirname "$headroom")/demo}
mkdir -p "$out"
db=$out/demo.db
rm -f "$db" "$db-wal" "$db-shm"
step=0
sweep() { # sweep TITLE FLAGS...: a sweep whose cells the machine could not all measure does not end the demo
  say=$1; shift; step=$((step + 1))
  echo "== $step of 5: $say" >&2
  "$headroom" sweep -r 3 --db "$db" -o md "$@" || { status=$?; [ $status = 4 ] || exit $status; }
}
memory_gib=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
echo "== the ceilings of this machine" >&2
"$headroom" roof --quick --db "$db" -o md
small="-m synth:smollm2-135m"
sweep "whole requests, by input length" $small --quant bf16 --isl 128,256,512,1024 --osl 32
sweep "decode, by batch size" $small --quant bf16,int8 -p 0 -n 16 --seqs 1,4,16
sweep "decode, by depth of the context" $small --quant bf16 -p 0 -n 16 -d 512,1024,2048
sweep "KV layouts side by side" $small --quant bf16 -p 0 -n 16 -d 1024 --kv-layout token,block,paged,zorder
if [ "$memory_gib" -ge 6 ]; then
  sweep "the 1B shape, by quantization" -m synth:llama-3.2-1b --quant bf16,int8,int4 -p 128 -n 8
else
  echo "(the 1B shape needs 6 GiB of memory, $memory_gib are free: a smaller one instead)" >&2
  sweep "quantization" $small --quant bf16,int8,int4 -p 128 -n 16
fi
echo "== where the time of the last cell went" >&2
"$headroom" explain last --db "$db" -o md || true # nothing was measured: the report says why
echo "== advice on the last sweep" >&2
"$headroom" advise last --db "$db" -o md || true
"$headroom" report --db "$db" --out "$out/report" >/dev/null
echo
echo "Three repetitions a cell: a first look. \`headroom sweep\` without -r measures until the median is known to 0.5 %."
echo "The report: $out/report/index.html (and report.md beside it)"
