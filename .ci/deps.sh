#!/bin/sh
# Install the Debian packages that the named jobs need and this machine lacks: deps.sh build|test|demo|fuzz|lint|bench ...
# Says what and why before it does. Without the right to install it names the packages and stops.
set -eu
need=""
want() { # want PACKAGE PROOF...: needed unless the proof succeeds
  package=$1; shift
  "$@" >/dev/null 2>&1 || need="$need $package"
}
for job in "$@"; do
  case $job in
  build)
    why="to build"
    want gcc command -v gcc
    want libc6-dev test -e /usr/include/stdio.h
    for pair in libsqlite3-dev:sqlite3.h libjansson-dev:jansson.h libpcre2-dev:pcre2.h libhwloc-dev:hwloc.h; do
      want "${pair%%:*}" test -e "/usr/include/${pair##*:}"
    done ;;
  test)
    why="to test"
    want libcmocka-dev test -e /usr/include/cmocka.h
    want python3 command -v python3
    want python3-pip python3 -m pip --version
    want gnuplot-nox command -v gnuplot
    want libxml2-utils command -v xmllint
    want qemu-user command -v qemu-x86_64 ;;
  valgrind)
    why="to test"
    want valgrind command -v valgrind ;;
  demo)
    why="to draw the report"
    want gnuplot-nox command -v gnuplot ;;
  fuzz)
    why="to fuzz"
    want clang command -v clang
    want libclang-rt-14-dev sh -c 'ls "$(clang -print-resource-dir)"/lib/linux/libclang_rt.fuzzer-*.a' ;;
  bench)
    why="to benchmark kernels"
    want g++ command -v g++
    want libbenchmark-dev test -e /usr/include/benchmark/benchmark.h
    want libjansson-dev test -e /usr/include/jansson.h ;;
  lint)
    why="to check format and code"
    want clang-format command -v clang-format
    want clang-tidy command -v clang-tidy ;;
  *) echo "deps.sh: unknown job $job" >&2; exit 2 ;;
  esac
done
[ -n "$need" ] || exit 0
echo "headroom: missing $why:$need" >&2
if [ "$(id -u)" = 0 ]; then sudo=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo="sudo"
elif command -v sudo >/dev/null 2>&1 && [ -t 0 ]; then sudo="sudo"
else
  echo "headroom: no right to install; ask for: apt-get install$need" >&2; exit 2
fi
command -v apt-get >/dev/null 2>&1 || { echo "headroom: no apt-get here; install the like of:$need" >&2; exit 2; }
echo "headroom: installing them with ${sudo:+sudo }apt-get" >&2
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get -qq update >&2
# shellcheck disable=SC2086
$sudo apt-get -qq -y install --no-install-recommends $need >/dev/null
