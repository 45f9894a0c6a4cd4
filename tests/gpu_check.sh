#!/bin/sh
# gpu_check.sh BUILD: everything that only a machine with a GPU can tell, in the order of its value, in at most LIMIT seconds.
#
# Every step is bounded, and leaves what it found when it ends; a step that fails does not end the others. Results go to
# results/reference/MACHINE_CLASS/ (OUT names another folder). A driver that runs kernels on the CPU (HEADROOM_LIBCUDA) takes the
# same way in small, and its results stay in BUILD/gpu-check: its times mean nothing.
#
# DEVICE  cuda:0      LIMIT  470 s      OUT  folder of the results
# Exit: 0 every step passed, 1 some did not (README.md of the results says which), 2 there is no GPU.
set -u
cd "$(dirname "$0")/.." || exit 2
build=${1:-build}
headroom=$build/headroom device=${DEVICE:-cuda:0} limit=${LIMIT:-470} work=$build/gpu-check db=$build/gpu-check/gpu.db
export HEADROOM_GPU="${device#cuda:}"

# ---- kernels against the CPU: the tests of CI, launched by the driver ----

# All at once: nothing here is timed. A program has 90 s; one that ends early is a line of its own.
do_units() {
  for u in $("$build/gpu-units" --list); do
    CMOCKA_MESSAGE_OUTPUT=tap timeout -k 5 90 "$build/gpu-units" "$u" >"$work/log/unit_$u" 2>&1 &
  done
  wait
  bad=0
  for u in $("$build/gpu-units" --list); do
    awk -v u="$u" '
      /^1\.\./ {planned = substr($0, 4) + 0; next}
      /^(not )?ok / {
        how = /# *SKIP/ ? "skipped" : /^ok/ ? "ok" : "not ok"
        sub(/^(not )?ok [0-9]+ (- )?/, "")
        print u "\t" $0 "\t" how "\t" (how == "not ok" ? said : "")
        said = ""; n++; bad += how == "not ok"
        next
      }
      /[^ ]/ && !/^# *(not )?ok|^TAP/ && said == "" {said = substr($0, 1, 200); gsub(/\t/, " ", said)}
      END {
        if (n < planned || !n) {print u "\t(all)\tnot ok\tended after " n + 0 " of " planned + 0 " tests: " said; bad++}
        exit bad > 0
      }' "$work/log/unit_$u" >>"$out/units.tsv" || bad=1
  done
  awk -F'\t' '$3 == "not ok" {print $1 ": " $2 ": " $4}' "$out/units.tsv"
  return $bad
}

# ---- whole models: logits of a GPU against those of the CPU ----

# id and value of the twenty best, one a line
best_logits() { tr -d ' \n' <"$1" | sed -n 's/.*"top_logits":\[\[\([^a-z]*\)\]\].*/\1/p' | sed 's/\],\[/\n/g' | tr ',' ' '; }
# The gap of shared logits stays below a tenth of what the twenty span, and 0.05: sums of bf16 in another order.
compare_logits() {
  awk '
    FNR == NR {cpu[$1] = $2; if (FNR == 1 || $2 > top) top = $2; if (FNR == 1 || $2 < low) low = $2; next}
    $1 in cpu {d = $2 - cpu[$1]; if (d < 0) d = -d; if (d > gap) gap = d; shared++}
    END {
      most = (top - low) / 10; if (most < 0.05) most = 0.05
      printf "gap %.4f of at most %.4f, %d shared", gap, most, shared
      exit !(shared >= 14 && gap < most)
    }' "$1" "$2"
}
logits() { # logits MODEL QUANT FLAGS...: a line of units.tsv
  title="$*" model=$1 quant=$2; shift 2
  set -- -m "$model" --quant "$quant" -f tests/golden/gpu_prompt.txt -n 8 --temp 0 --ignore-eos --top-logits 20 --json "$@"
  if "$headroom" generate "$@" --device cpu >"$work/cpu.json" 2>"$work/log/generate" &&
    "$headroom" generate "$@" --device "$device" >"$work/gpu.json" 2>"$work/log/generate"; then
    best_logits "$work/cpu.json" >"$work/cpu.tsv"
    best_logits "$work/gpu.json" >"$work/gpu.tsv"
    how=ok
    why=$(compare_logits "$work/cpu.tsv" "$work/gpu.tsv") || how="not ok"
  else
    how="not ok" why=$(tail -1 "$work/log/generate")
  fi
  printf 'logits\t%s\t%s\t%s\n' "$title" "$how" "$why" >>"$out/units.tsv"
  [ "$how" = ok ] || { echo "$title: $why"; bad=1; }
}
do_logits() {
  bad=0
  for layout in head paged zorder token; do logits synth:tiny bf16 --kv-layout $layout; done
  for quant in f32 f16 int8 int4 int8-row int4-g128; do logits synth:tiny $quant; done
  for kv in f16 q8_0 q4_0; do logits synth:tiny bf16 -ctk $kv -ctv $kv; done
  logits synth:tiny bf16 --graphs 0
  logits synth:tiny bf16 --gemm own
  logits synth:smollm2-135m bf16
  return $bad
}

# ---- times ----

do_roof() { "$headroom" roof --device "$device" --json --db none -q --out "$out/roof.json"; }
do_bench() {
  "$build/gpu-bench" --device "${device#cuda:}" --seconds "$bench_seconds" --out "$out/bench.jsonl"
}

# Weights are made on the device. All sweeps go to one store, their cells to one file.
sweep() {
  "$headroom" sweep --device "$device" --db "$db" -o jsonl --out "$work/part.jsonl" --max-time 2 "$@"
  status=$?
  [ ! -r "$work/part.jsonl" ] || cat "$work/part.jsonl" >>"$out/cells.jsonl"
  rm -f "$work/part.jsonl"
  return $status
}
do_sweep_8b() { sweep -m "$large" --quant bf16,int8,int4 -p 512 -n 64; }
do_sweep_1b() { sweep -m "$small" --quant bf16,int8,int4 -p 512 -n 128; }
do_sweep_many() { sweep -m "$large" --quant bf16,int4 -p 0 -n 32 --seqs 16,64; }
do_sweep_layouts() { sweep -m "$large" --quant bf16 -p 0 -n 32 -d 8192 --kv-layout head,paged,token,zorder; }
do_sweep_layouts_1b() { sweep -m "$small" --quant bf16 -p 0 -n 32 -d 8192 --kv-layout head,paged,token,zorder; }
do_sweep_choices() { sweep -m "$small" --quant bf16 -p 512 -n 64 --graphs 0,1 --gemm own,cublaslt; }

# Kernel times, counters, power, clocks: what can be had here, and in one line each why not what cannot.
measuring() { sweep -m "$small" --quant bf16 -p 512 -n 16 --kernel-times; }
do_measuring() {
  measuring 2>"$work/log/refusals"
  status=$?
  {
    cat "$work/log/refusals"
    tail -1 "$out/cells.jsonl" | tr ',' '\n' |
      grep -oE '"(dram_bytes|tensor_pct|l2_hit|warps_active|energy|power|sm_mhz|clock_ratio|throttle|temperature)[a-z_]*": *[^{}]*'
    "$headroom" doctor -o md 2>/dev/null | grep gpu_
  } >"$out/measuring.txt"
  return $status
}

# The findings of the tool make it end with 9.
do_sanitizer() {
  for u in test_cuda_vec test_cuda_attn test_cuda_matmul; do
    ! "$build/gpu-units" --list | grep -qx $u ||
      HR_TEST_QUICK=1 compute-sanitizer --tool memcheck --error-exitcode 9 "$build/gpu-units" $u || return $?
  done
}

do_report() {
  set -- --db "$db" --out "$work/report"
  [ "$simulated" = 0 ] || set -- "$@" --allow-simulated
  "$headroom" report "$@" || return $?
  rm -rf "$out/report" && mkdir -p "$out/report" && cp -r "$work/report/report.md" "$work/report/plots" "$out/report/" &&
    rm -f "$out"/report/plots/*.gp
}

# ---- one step, called by step() below in a process of its own, which `timeout` can end ----

large=synth:llama-3.1-8b small=synth:llama-3.2-1b bench_seconds=60
if [ "${GPU_CHECK_SIMULATED:-0}" = 1 ]; then
  few="-m synth:tiny:layers=1 --quant bf16 -n 2 -r 1"
  bench_seconds=60
  do_logits() { bad=0; logits synth:tiny:layers=1 bf16 --kv-layout paged; return $bad; }
  do_sweep_8b() { sweep $few -p 8; }
  do_sweep_layouts() { sweep $few -p 0 -d 16 --kv-layout paged,zorder; }
  measuring() { sweep $few -p 0 --kernel-times; }
fi
if [ "${2:-}" = --step ]; then
  out=$GPU_CHECK_OUT simulated=$GPU_CHECK_SIMULATED
  "do_$3"
  exit $?
fi

# ---- which GPU is this ----

for p in headroom gpu-units gpu-bench; do
  [ -x "$build/$p" ] || { echo "gpu-check: $build/$p is not built: make gpu-check-build" >&2; exit 2; }
done
rm -rf "$work" && mkdir -p "$work/log" || exit 2
begin=$(date +%s)
"$headroom" roof --device "$device" --quick --json --db none -q >"$work/roof.json" 2>"$work/log/identity" || {
  tail -1 "$work/log/identity" >&2
  exit 2
}
class=$(sed -n 's/.*"machine_class": *"\([^"]*\)".*/\1/p' "$work/roof.json" | head -1)
simulated=0
! grep -q '"simulated": *true' "$work/roof.json" || simulated=1
if [ $simulated = 1 ]; then
  out=$work/results
  export HR_TEST_QUICK=1
  echo "gpu-check: this driver runs kernels on the CPU: small sizes, results in $out, their times mean nothing"
else
  out=${OUT:-results/reference/$class}
  echo "gpu-check: $class, results in $out"
fi
mkdir -p "$out" && : >"$out/units.tsv" && rm -f "$out/cells.jsonl" && cp "$work/roof.json" "$out/roof.json" || exit 2
export GPU_CHECK_OUT="$out" GPU_CHECK_SIMULATED=$simulated

# ---- the steps ----

failed=0 slower=1
[ $simulated = 0 ] || slower=3 # this many times longer may a step take
write_readme() {
  count() { awk -F'\t' -v how="$1" '$3 == how' "$out/units.tsv" | wc -l; }
  {
    echo "# $class"
    echo
    echo "By \`make gpu-check\` on $(date -u +%Y-%m-%d), build $("$headroom" --version 2>/dev/null | head -1), in $(($(date +%s) - begin)) s."
    [ $simulated = 0 ] || echo "The driver runs kernels on the CPU: these times mean nothing."
    echo
    echo "| step | | seconds | |"
    echo "|---|---|---:|---|"
    awk -F'\t' '{gsub(/\|/, "/"); printf "| %s | %s | %s | %s |\n", $1, $2, $3, $4}' "$work/steps.tsv"
    echo
    echo "- \`units.tsv\`: kernels against references on the CPU, and logits of whole models: $(count ok) ok, $(count 'not ok') not ok, $(count skipped) skipped."
    echo "- \`roof.json\`: \`headroom roof --device $device --json\`."
    echo "- \`bench.jsonl\`: \`gpu-bench\`: kernels one by one, beside cuBLASLt; \`of_read\` is the share of the read bandwidth."
    echo "- \`cells.jsonl\`: \`headroom sweep --device $device\`; weights are random, made on the device. The flags of a cell stand in it."
    echo "- \`measuring.txt\`: which counters, kernel times, power and clocks can be had here, and why others cannot."
    echo "- \`report/\`: drawn from the same cells."
  } >"$out/README.md"
}
# step NAME SECONDS: do_NAME, for at most so long and not beyond the limit of all.
step() {
  have=$((limit - ($(date +%s) - begin))) most=$(($2 * slower)) start=$(date +%s) how=passed why=
  [ "$have" -ge "$most" ] || most=$have
  if [ "$most" -lt 5 ]; then
    how="left out" why="the $limit s are over"
  else
    timeout -k 5 "$most" tests/gpu_check.sh "$build" --step "$1" >"$work/log/$1" 2>&1
    status=$?
    [ $status = 0 ] || how="failed ($status)" why=$(grep . "$work/log/$1" | tail -1 | tr '\t' ' ' | cut -c1-200)
    [ $status != 124 ] || how="cut at $most s"
  fi
  [ "$how" = passed ] || failed=1
  took=$(($(date +%s) - start))
  printf '%s\t%s\t%s\t%s\n' "$1" "$how" "$took" "$why" >>"$work/steps.tsv"
  echo "gpu-check: $1: $how, $took s${why:+: $why}"
  write_readme
}
step units 110
step logits 45
step sweep_8b 75
step bench 75
step roof 40
step sweep_layouts 45
if [ $simulated = 0 ]; then
  step sweep_1b 60
  step sweep_many 45
fi
step measuring 25
step report 15 # once before what is worth less
if [ $simulated = 0 ]; then
  step sweep_choices 40
  step sweep_layouts_1b 40
  if command -v compute-sanitizer >/dev/null; then
    step sanitizer 60
  else
    printf 'sanitizer\tleft out\t0\tcompute-sanitizer is not installed\n' >>"$work/steps.tsv"
  fi
  step report 15
fi
write_readme
echo "gpu-check: $(($(date +%s) - begin)) s, results in $out"
exit $failed
