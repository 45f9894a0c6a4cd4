#!/bin/sh
# Put ggml-vocab-{gpt-2,llama-bpe,qwen2}.gguf and their .inp/.out into ${HEADROOM_MODELS:-~/.cache/headroom-models},
# once, from the source package of llama-cpp-python (77 MB). Prints the folder; exit 3 and a reason when it cannot.
cache=${HEADROOM_MODELS:-${HOME:-/tmp}/.cache/headroom-models}
fail() { echo "$*"; exit 3; }
complete() { for v in gpt-2 llama-bpe qwen2; do for e in '' .inp .out; do [ -s "$cache/ggml-vocab-$v.gguf$e" ] || return 1; done; done; }
complete && { echo "$cache"; exit 0; }
[ -z "$HEADROOM_OFFLINE" ] || fail "vocabularies are not in $cache and HEADROOM_OFFLINE is set"
mkdir -p "$cache" 2>/dev/null || fail "$cache cannot be made"
python3 -m pip --version >/dev/null 2>&1 || fail "python3 with pip is needed to fetch the vocabularies"
# One download even when several tests ask at once; each moves whole files into place.
if command -v flock >/dev/null; then exec 9>"$cache/.vocabs.lock"; flock 9; complete && { echo "$cache"; exit 0; }; fi
tmp=$(mktemp -d "$cache/.vocabs.XXXXXX") || fail "$cache cannot be written"
trap 'rm -rf "$tmp"' EXIT
# The source package of this one alone: with all packages from source pip would build its build tools (cmake) as well.
timeout 300 python3 -m pip download -q --disable-pip-version-check --no-deps --no-binary llama-cpp-python --retries 1 \
  --timeout 30 -d "$tmp" llama-cpp-python==0.3.36 >"$tmp/log" 2>&1 || fail "pip download of llama-cpp-python 0.3.36 failed: $(tail -n 1 "$tmp/log")"
python3 - "$tmp" <<'PY' 2>"$tmp/log" || fail "unpacking the vocabularies failed: $(tail -n 1 "$tmp/log")"
import glob, os, sys, tarfile
folder = sys.argv[1]
want = {f"ggml-vocab-{v}.gguf{e}" for v in ("gpt-2", "llama-bpe", "qwen2") for e in ("", ".inp", ".out")}
with tarfile.open(glob.glob(folder + "/llama_cpp_python-*.tar.gz")[0]) as tar:
    for member in tar:
        name = os.path.basename(member.name)
        if member.isfile() and name in want and "/models/" in member.name:
            with open(os.path.join(folder, name), "wb") as out:
                out.write(tar.extractfile(member).read())
            want.remove(name)
if want:
    sys.exit("missing in the package: " + " ".join(sorted(want)))
PY
mv "$tmp"/ggml-vocab-*.gguf* "$cache/" || fail "$cache cannot be written"
complete || fail "vocabularies in $cache are not complete"
echo "$cache"
