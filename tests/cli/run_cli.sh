#!/bin/sh
# The command line as people see it: tests/cli/cases/NAME.case, then the examples of each --help. Prints TAP lines.
# usage: run_cli.sh BUILD
#
# A case holds: "$ LINE" run by sh with headroom in PATH, in an empty folder; "rc N" the exit code;
# "> TEXT" stdout line by line; "~ TEXT" text that stdout holds (then it need not be equal); "! TEXT" stderr line by
# line; "!~ TEXT" text that stderr holds. What is not named must be empty.
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "${1:-build}" && pwd)/headroom
root=$(cd "$here/../.." && pwd)
[ -x "$bin" ] || { echo "not ok 1 - $bin is not built"; exit 1; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/run"
ln -s "$bin" "$work/bin/headroom"
PATH=$work/bin:$PATH; export PATH
CI=true; export CI
n=0; bad=0
result() { # result NAME: reads the reasons for failure from $work/why
  n=$((n + 1))
  if [ -s "$work/why" ]; then
    bad=$((bad + 1)); echo "not ok $n - $1"; sed 's/^/# /' "$work/why"
  else echo "ok $n - $1"; fi
}
compare() { # compare STREAM EXACT-PREFIX HOLD-PREFIX CASE
  sed -n "s/^$2 //p; s/^$2\$//p" "$4" >"$work/want"
  sed -n "s/^$3 //p" "$4" >"$work/hold"
  if [ -s "$work/hold" ]; then
    while IFS= read -r text; do
      grep -qF -- "$text" "$work/$1" || echo "$1 does not hold: $text"
    done <"$work/hold"
  fi
  if [ -s "$work/want" ] || ! [ -s "$work/hold" ]; then
    diff "$work/want" "$work/$1" >"$work/diff" || { echo "$1 differs (< expected, > got):"; head -n 20 "$work/diff"; }
  fi
}
for case in "$here"/cases/*.case; do
  line=$(sed -n 's/^\$ //p' "$case"); want=$(sed -n 's/^rc //p' "$case")
  rm -rf "$work/run"; mkdir "$work/run"
  (cd "$work/run" && sh -c "$line") >"$work/stdout" 2>"$work/stderr" </dev/null
  got=$?
  {
    [ "$got" = "${want:-0}" ] || { echo "exit code $got, expected ${want:-0}: $line"; head -n 3 "$work/stderr"; }
    compare stdout '>' '~' "$case"
    compare stderr '!' '!~' "$case"
  } >"$work/why"
  result "$(basename "$case" .case)"
done

# Examples work as printed (those that need no store and little time). The doctor says 3 of a machine that is not fit.
for sub in models inspect tokenize generate perplexity kernels trace doctor; do
  headroom $sub --help >"$work/help" 2>&1
  sed -n '/^Examples:/,$p' "$work/help" | grep -E '^  [^ ]' | grep headroom >"$work/examples"
  : >"$work/why"
  [ "$(wc -c <"$work/help")" -gt 300 ] || echo "help is short" >>"$work/why"
  [ "$(wc -l <"$work/examples")" -ge 2 ] || echo "fewer than two examples" >>"$work/why"
  while IFS= read -r line; do
    (cd "$root" && sh -c "$line") >"$work/stdout" 2>"$work/stderr" </dev/null ||
      { rc=$?; [ $sub.$rc = doctor.3 ] || { echo "exit code $rc:$line"; head -n 3 "$work/stderr"; }; } >>"$work/why"
    [ -s "$work/stdout" ] || echo "prints nothing:$line" >>"$work/why"
  done <"$work/examples"
  result "examples of headroom $sub"
done
echo "1..$n"
[ $bad = 0 ]
