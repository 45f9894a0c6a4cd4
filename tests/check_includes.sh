#!/bin/sh
# Fails when an include goes upward: kernels <- engine <- harness, kernels <- bench; the harness and bench see the engine
# only through engine/engine.h (bench also its other public headers: pool.h, and what times a GPU: gpu_lt.h).
cd "$(dirname "$0")/.." || exit 2
bad=0
check() { # check FOLDER ALLOWED-REGEX
  [ -d "$1" ] || return 0
  found=$(grep -rnE '^ *# *include *"' "$1" --include='*.c' --include='*.h' --include='*.cu' --include='*.cc' | grep -vE "include *\"($2)" )
  [ -z "$found" ] || { echo "$found" | sed "s|\$|   <- not allowed in $1/|"; bad=1; }
}
check kernels 'kernels/'
check engine '(kernels|engine)/'
check harness '(kernels/(base/|(table|operands|predict)\.h)|engine/engine\.h|harness/|hr_commit\.h)'
check bench '(kernels/|engine/(engine|pool|cuda/gpu_lt)\.h|bench/|hr_commit\.h)'
[ $bad = 0 ] && echo "includes: ok"
exit $bad
