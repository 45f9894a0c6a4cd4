#!/bin/sh
# make demo: measure this machine for about two minutes and write a report. usage: demo.sh build/headroom
# Synthetic weights of published shapes, so nothing is downloaded; few repetitions, and the report says so.
set -eu
headroom=$1
out=${DEMO_OUT:-$(dirname "$headroom")/demo}
mkdir -p "$out"
db=$out/demo.db
rm -f "$db" "$db-wal" "$db-shm"
sweep() {
  say=$1; shift
  echo "== $say" >&2
  "$headroom" sweep -r 3 --db "$db" -o md "$@"
}
memory_gib=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
echo "== ceilings of this machine" >&2
"$headroom" roof --quick --db "$db" -o md
small="-m synth:smollm2-135m"
sweep "a request, by input length" $small --quant bf16 --isl 128,512,1024 --osl 32
sweep "decode by batch and depth" $small --quant bf16 -p 0 -n 32 --seqs 1,4,16 -d 0,1024
sweep "KV layouts side by side" $small --quant bf16 -p 0 -n 32 -d 1024 --kv-layout head,token,block,paged,zorder
if [ "$memory_gib" -ge 5 ]; then
  sweep "the 1B shape by quantization" -m synth:llama-3.2-1b --quant bf16,int8,int4 -p 128 -n 8
else
  sweep "quantization (the 1B shape needs 5 GiB, $memory_gib are free)" $small --quant bf16,int8,int4 -p 128 -n 16
fi
"$headroom" report --db "$db" --out "$out/report" >/dev/null
echo
echo "The report: $out/report/index.html (and report.md beside it)"
