#!/usr/bin/env bash
# The engine, its server and what they rest on, on other versions of Python: a short suite, in an environment of each.
#   test_pythons.sh VERSION...      such as 3.12; one that is not installed here is named and left out
set -euo pipefail
cd "$(dirname "$0")/.."
suite=(
    tests/engine/test_engine.py tests/engine/test_async_engine.py tests/cli/test_process.py
    tests/server/test_openai_client.py tests/events tests/tiers/test_disk_suite.py tests/test_settings.py
)

find_python() {
    local candidate
    for candidate in "python$1" "$HOME/.pyenv/versions/$1".*/bin/python; do
        if "$candidate" -c "import venv" 2> /dev/null; then echo "$candidate" && return; fi
    done
    return 1
}

for version in "$@"; do
    if ! python=$(find_python "$version"); then
        echo "without Python $version: not tested on it"
        continue
    fi
    env=.venv-$version
    PYTHON=$python scripts/setup_venv.sh "$env"
    "$env/bin/pytest" -q -p no:cacheprovider -n logical --maxprocesses 4 --dist loadfile -m "not browser and not stores" "${suite[@]}"
    rm -rf "$env"
done
