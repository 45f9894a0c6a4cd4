#!/bin/sh
# make quality: what the quantizations of the weights and of the KV cache cost in perplexity on golden/long.txt, on real weights.
# usage: quality.sh BUILD. Prints a table, then TAP; exit 1 when a bound is broken, a skip where the model cannot be had.
# The exact run dequantizes the file and computes everything in f32; the others are the defaults of their --quant.
export LC_ALL=C
here=$(dirname "$0")
headroom=$1/headroom
text=$here/golden/long.txt
least_tokens=20000
# Per cent, either way: golden/README.md says where they come from.
bound() {
  case $1 in
  int8-row) echo 5 ;;
  int4-head8) echo 25 ;;
  int4-g128-head8) echo 50 ;;
  kv-i4kc) echo 4 ;;
  *) echo 1.5 ;;
  esac
}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

model=$("$here/fetch_model.sh" 2>"$work/why")
case $? in
0) ;;
3) echo "1..0 # SKIP $(tail -n 1 "$work/why")"; exit 0 ;;
*) echo "1..1"; echo "not ok 1 - the test model: $(tail -n 1 "$work/why")"; exit 1 ;;
esac

field() { sed -n 's/^ *"'"$2"'": *\([-+0-9.eE]*\),\{0,1\}$/\1/p' "$work/$1.json"; } # field RUN KEY: a number, or nothing
measure() { # measure RUN FLAGS...: one line of the table
  run=$1; shift
  "$headroom" perplexity -m "$model" -f "$text" --ctx 512 --json --no-progress "$@" >"$work/$run.json" 2>"$work/$run.err" ||
    : >"$work/$run.json"
  exact=$(field exact ppl); ppl=$(field "$run" ppl)
  if [ -z "$ppl" ] || [ -z "$exact" ]; then
    printf '%-16s %10s  %s\n' "$run" - "$(tail -n 1 "$work/$run.err")"
    return
  fi
  awk -v run="$run" -v exact="$exact" -v ppl="$ppl" -v nll="$(field "$run" nll_stderr)" -v file="$work/$run.diff" 'BEGIN {
    diff = 100 * (ppl / exact - 1)
    printf "%.3f\n", diff >file
    printf "%-16s %10.4f %+13.3f %12.3f\n", run, ppl, diff, ppl * nll }'
}

"$headroom" tokenize -m "$model" -f "$text" --json >"$work/ids.json" 2>"$work/ids.err" || : >"$work/ids.json"
tokens=$(tr ',[]' '\n' <"$work/ids.json" | grep -c '^ *[0-9][0-9]* *$')
echo "$(basename "$model"), $tokens tokens, windows of 512"
printf '%-16s %10s %13s %12s\n' weights ppl 'vs exact, %' 'std error'
measure exact --quant f32 --act f32 -ctk f32 -ctv f32
measure native --weights native
measure repacked --weights repacked
for quant in bf16 int8 int8-row int4 int4-g128 int4-head8 int4-g128-head8; do measure $quant --quant $quant; done
for type in q8_0 i8row i4kc q4_0; do measure kv-$type --weights native -ctk $type -ctv $type; done
echo "std error: of the perplexity over the tokens of the text. All runs score the same tokens, so differences are far surer."
echo "int4 and int4-g128 are printed without a bound: how much a model loses with its head in 4 bits depends on the model."
echo "kv-q4_0 too: keys have channels of one sign, which a symmetric scale for 32 channels wastes; i4kc is for them."

n=0; failed=0
check() { # check STATUS TEXT
  n=$((n + 1))
  if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; failed=1; fi
}
echo "1..11"
[ "$tokens" -ge $least_tokens ]; check $? "the text has $tokens tokens, at least $least_tokens are needed"
for run in native repacked bf16 int8 int8-row int4-head8 int4-g128-head8 kv-q8_0 kv-i8row kv-i4kc; do
  bound=$(bound $run)
  diff=$(cat "$work/$run.diff" 2>/dev/null)
  awk -v d="${diff:-none}" -v b=$bound 'BEGIN { exit !(d ~ /^[-+.0-9e]+$/ && d <= b && d >= -b) }'
  check $? "$run against exact: ${diff:-not measured} %, at most $bound % either way"
done
exit $failed
