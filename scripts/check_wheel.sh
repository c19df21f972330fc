#!/usr/bin/env bash
# Installs a wheel in an environment of its own, as a stranger does, and uses it from there.
#   check_wheel.sh WHEEL [SBOM]      SBOM: a file for the list of what was installed, in CycloneDX's JSON
set -euo pipefail
wheel=$(realpath "$1")
sbom=${2:+$(realpath -m "$2")}
root=$(realpath "$(dirname "$0")/..")
torch=$(sed -n 's/^torch=//p' "$root/scripts/setup_venv.sh")
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2> /dev/null; rm -rf "$work"' EXIT
unset PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# start COMMAND...   starts a server of `octavo`, and sets `server` and `url` once it serves
start() {
    : > log.txt # which has the address of the server before
    "$bin/octavo" "$@" > log.txt 2>&1 &
    server=$!
    for _ in $(seq 600); do
        url=$(grep -oE "http://127.0.0.1:[0-9]+" log.txt | head -1) && return
        kill -0 "$server" || break
        sleep 0.1
    done
    cat log.txt >&2
    exit 1
}

stop() {
    kill -TERM "$server" && wait "$server"
    server=
}

"${PYTHON:-python3}" -m venv "$work/venv"
cd "$work" # so that nothing of the repository is imported
bin=$work/venv/bin

echo "core: what it installs, imports and says without torch"
"$bin/python" -m pip install --quiet --quiet "$wheel"
"$bin/octavo" --version
"$bin/python" -W error -c "import octavo; [getattr(octavo, name) for name in octavo.__all__ if name[0] not in 'ES']"
"$bin/octavo" plan "$root/examples/models/gemma-3-27b.json" --context 32k > plan.txt
grep -q "requests at once" plan.txt
if said=$("$bin/octavo" serve --tiny gemma3 2>&1) || [[ $said != *"pip install 'octavo[engine]'"* ]]; then
    echo "serve without torch does not say what to install: $said" >&2
    exit 1
fi

echo "router: it serves without torch"
"$bin/python" -m pip install --quiet --quiet "${wheel}[router]"
start route --port 0 http://127.0.0.1:9
"$bin/python" -c "import sys, httpx; httpx.get(sys.argv[1] + '/fleet').raise_for_status()" "$url"
stop

echo "engine: a tiny model answers, and after a restart resumes from disk"
"$root/scripts/install_torch.sh" "$bin/python" "$torch" > torch.txt 2>&1 || { cat torch.txt >&2; exit 1; }
"$bin/python" -m pip install --quiet --quiet "${wheel}[engine]"
cat > ask.py << 'PY'
import sys
import httpx

request = {"prompt": "The printer folds a sheet of paper. " * 20, "max_tokens": 3, "temperature": 0}
answer = httpx.post(f"{sys.argv[1]}/v1/completions", json=request, timeout=60).raise_for_status().json()
print(answer["usage"]["prompt_tokens_details"]["cached_tokens_by_medium"])
PY
for expected in "{}" "{'disk': 704}"; do
    start serve --tiny gemma3 --port 0 --device-memory 64MiB --memory 32MiB --disk "$work/kv" --disk-size 128MiB
    found=$("$bin/python" ask.py "$url")
    stop
    [ "$found" = "$expected" ] || { echo "resumed $found, not $expected" >&2; exit 1; }
done
[ -z "$sbom" ] || "$root/.venv/bin/cyclonedx-py" environment --output-reproducible --of JSON -o "$sbom" "$bin/python"
