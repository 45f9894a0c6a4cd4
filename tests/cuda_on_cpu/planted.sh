#!/bin/bash
# planted.sh - bugs that somebody could make in a kernel (planted.txt), each planted in a copy of its source: the named test must find
# it, for the reason that is named, and must pass without it. TAP; run by run_tests.sh with HEADROOM_BUILD.
#
# A build with a sanitizer looks at the bugs that are for this sanitizer, any other at the rest; and at those for ThreadSanitizer once
# more, which no order of threads may show, else the sanitizer would not be needed.
# usage: planted.sh           all bugs of this build, as many at a time as there are cores
#        planted.sh one NAME  one bug;  planted.sh clean TEST FILTER  a test without bugs
set -u
build=${HEADROOM_BUILD:-build}
here=tests/cuda_on_cpu
cd "$(dirname "$0")/../.." || exit 2
area=$build/planted
. "$build/shim/tools.sh"
command -v ccache >/dev/null && compile="ccache $compile"
export TSAN_OPTIONS=halt_on_error=1 HR_TEST_QUICK=
[ -z "$sanitizers" ] || HR_TEST_QUICK=1

field() { # field KEY FILE: what stands behind "KEY: "
  sed -n "s/^$1: //p" "$2"
}

# What the test must end with, and say, for each means.
expectation() {
  case $1 in
  result) status='[1-9]|1[0-9]' says='expected .*got' ;;
  nan) status='[1-9]|1[0-9]' says='got -?nan|got 0x(7fc0|ff)' ;;
  workspace) status='[1-9]|1[0-9]' says='of the workspace is not left zero' ;;
  bounds) status='[1-9]|1[0-9]' says='a kernel wrote byte|beyond the batch was written' ;;
  misuse) status=86 says="kernel [a-z0-9_]*, block .*: $2" ;;
  deadlock) status=87 says='kernel [a-z0-9_]*, block .*: deadlock' ;;
  barrier) status=88 says='kernel [a-z0-9_]*, block .*: divergent barriers' ;;
  warp) status=89 says='kernel [a-z0-9_]*, block .*: (divergent warp|.* needs all 32 lanes)' ;;
  address) status=1 says='AddressSanitizer: heap-buffer-overflow' ;;
  thread) status=66 says='ThreadSanitizer: data race' ;;
  unnoticed) status=0 says='PASSED' ;;
  *) echo "planted.txt: no means \"$1\""; exit 2 ;;
  esac
}

# The source of bug NAME with the bug, as $area/NAME/FILE. The line must be there, and once, or `at` says which of them it is.
plant() {
  record=$area/$1.txt
  file=$(field file "$record")
  mkdir -p "$area/$1/$(dirname "$file")"
  FIND=$(field find "$record") WITH=$(field with "$record") AT=$(field at "$record") awk '
    { line = $0; sub(/^[ \t]+/, "", line) }
    line == ENVIRON["FIND"] { n++; if (ENVIRON["AT"] == "" || n == ENVIRON["AT"]) { print ENVIRON["WITH"]; done++; next } }
    { print }
    END { exit done == 1 ? 0 : 1 }' "$file" >"$area/$1/$file" && return
  echo "its line is not in $file, or not once: \"$(field find "$record")\"; mend $here/planted.txt"
  return 1
}

# run_test PROGRAM FILTER: its output and status into out, got.
run_test() {
  out=$(HR_TEST_FILTER=$2 CMOCKA_MESSAGE_OUTPUT=stdout timeout 120 "$1" 2>&1); got=$?
}

link_test() { # link_test TEST ARCHIVE OBJECT... OUT
  test=$1 archive=$2 out=${*: -1}; shift 2; set -- "${@:1:$#-1}"
  $link -o "$out" "$build/obj/tests/$test.o" "$@" "$area/filter.o" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive $libraries
}

one() { # one NAME: plants, builds, runs, judges; a line of TAP without its number
  record=$area/$1.txt
  means=$(field means "$record") test=$(field test "$record")
  [ "$means" != thread ] || [ -n "$sanitizers" ] || means=unnoticed
  expectation "${means%% *}" "${means#* }"
  why=$(plant "$1" 2>&1) || { echo "not ok - planted $1: $why"; return; }
  unit=$(field unit "$record"); unit=${unit:-$(field file "$record")}
  source=$unit; [ ! -e "$area/$1/$unit" ] || source=$area/$1/$unit
  name=$(basename "$unit" .cu)
  cp "$build/libcuda_shim.a" "$area/$1/rest.a" && ar d "$area/$1/rest.a" "$name.o"
  why=$({ $compile -I"$area/$1" $compile_flags -w -c -o "$area/$1/$name.o" "$source" &&
    link_test "$test" "$area/$1/rest.a" "$area/$1/$name.o" "$area/$1/test"; } 2>&1) || { echo "not ok - planted $1 is not built: $why" | head -5; return; }
  run_test "$area/$1/test" "$(field filter "$record")"
  rm -f "$area/$1/rest.a" "$area/$1/test"
  if echo "$got" | grep -qxE "$status" && echo "$out" | grep -qE "$says"; then echo "ok - planted $1: $means"; return; fi
  echo "not ok - planted $1: $test should end with status $status and say '$says', and ended with $got"
  echo "$out" | grep -vE '^\[ +(OK|RUN)|^#' | head -6 | sed 's/^/# /'
}

clean() { # clean TEST FILTER: passes as it is
  [ -e "$area/$1.clean" ] || link_test "$1" "$build/libcuda_shim.a" "$area/$1.clean" || { echo "not ok - $1 is not linked"; return; }
  run_test "$area/$1.clean" "$2"
  if [ $got = 0 ] && echo "$out" | grep -qE 'PASSED +\] [1-9]'; then echo "ok - $1 $2 passes without bugs"; return; fi
  echo "not ok - $1 $2 should pass without bugs, and ended with $got"
  echo "$out" | grep -vE '^\[ +(OK|RUN)|^#' | head -6 | sed 's/^/# /'
}

case ${1:-all} in
one) one "$2"; exit ;;
clean) clean "$2" "$3"; exit ;;
esac

# One file a bug.
rm -rf "$area"; mkdir -p "$area"
awk -v area="$area" '/^#/ { next } /^bug: / { out = area "/" substr($0, 6) ".txt" } NF && out { print >out }' "$here/planted.txt"
$link -c -o "$area/filter.o" "$here/planted_filter.c" || exit 2
case $sanitizers in
'') wanted='^means: ' ;;
*address*) wanted='^means: address' ;;
*thread*) wanted='^means: thread' ;;
*) wanted=none ;;
esac
for record in $(grep -lE "$wanted" "$area"/*.txt); do
  [ -z "$sanitizers" ] && grep -q '^means: address' "$record" && continue
  echo "clean $(field test "$record") $(field filter "$record")" >>"$area/clean"
  echo "one $(basename "$record" .txt)" >>"$area/jobs"
done
[ -e "$area/jobs" ] || { echo "1..1"; echo "ok 1 - no bug is planted for this sanitizer"; exit 0; }
for test in $(cut -d' ' -f2 "$area/clean" | sort -u); do link_test "$test" "$build/libcuda_shim.a" "$area/$test.clean" || exit 2; done
{ sort -u "$area/clean"; cat "$area/jobs"; } >"$area/all"
echo "1..$(wc -l <"$area/all")"
xargs -a "$area/all" -P "$(nproc)" -L 1 "$0" >"$area/results" 2>&1
sed -E 's/^(ok|not ok) - /\1 /' "$area/results" | awk '/^(not )?ok / { n++; sub(/ok /, "ok " n " - ") } { print }'
! grep -q '^not ok' "$area/results"
