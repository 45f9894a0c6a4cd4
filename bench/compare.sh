#!/bin/sh
# compare.sh BASE BUILD FILTER PAIRS [FLAGS...]: builds bench of commit BASE in a work tree of its own and compares it with
# the one in BUILD. The work tree stays under BUILD, so that the next comparison with the same commit needs no build.
set -eu
base=$1 build=$2 filter=$3 pairs=$4; shift 4
die() { echo "bench-compare: $*" >&2; exit 2; }
[ -n "$base" ] || die "which commit? make bench-compare BASE=HEAD~1 [BENCH_FILTER=REGEX] [PAIRS=13]"
commit=$(git rev-parse --verify --quiet --short=12 "$base^{commit}") || die "$base is no commit of this repository"
git cat-file -e "$commit:bench/shim.cc" 2>/dev/null || die "$commit is older than the micro-benchmarks: it has none to compare with"
if [ "$filter" = . ]; then
  filter='llama-3.2-1b.gate/M:(1|512)/cold/'
  echo "bench-compare: BENCH_FILTER='$filter' (all of them would take a day)" >&2
fi
tree=$build/base-$commit
git worktree prune
[ -e "$tree/Makefile" ] || git worktree add --quiet --detach "$tree" "$commit"
echo "bench-compare: building $commit" >&2
make -C "$tree" --no-print-directory -j"$(nproc)" BUILD=build build/bench >"$build/base.log" 2>&1 ||
  { tail -n 20 "$build/base.log" >&2; die "$commit does not build"; }
exec env -u OPENBLAS_CORETYPE "$build/bench-compare" "$tree/build/bench" "$build/bench" "$pairs" "$filter" "$@"
