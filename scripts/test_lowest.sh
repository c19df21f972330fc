#!/usr/bin/env bash
# A short suite with the oldest version that pyproject.toml allows of each package, in an environment of its own.
# vLLM, Ray and Mooncake are left out: the first two have environments of their own, and the third needs CUDA.
set -euo pipefail
cd "$(dirname "$0")/.."
env=.venv-lowest
python=$env/bin/python
extras=engine,router,plot,zstd,encryption,objects,redis,epp,testing
core=tests/cli/test_core_alone.py
suite=(
    $core::test_a_command_works_or_says_what_to_install
    $core::test_every_name_of_a_front_door_is_there_or_names_an_extra
    tests/cli/test_plan_command.py tests/cli/test_simulate.py::test_a_curve_and_a_picture tests/cli/test_help.py
    tests/events/test_wire.py tests/events/test_sockets.py tests/planning/test_planner.py tests/policies/test_lru.py
    tests/tiers/test_disk_suite.py tests/tiers/test_encryption.py tests/tiers/test_zstd.py
    tests/stores/test_objects_suite.py tests/stores/test_redis_answers.py
    tests/router/test_without_engine.py::test_it_routes_and_shows_itself tests/gateway/test_messages.py
    tests/gateway/test_processor.py tests/server/test_openai_client.py
    tests/engine/test_grammars.py::test_json_by_a_schema
)

install() { "$env/bin/uv" pip install --quiet --python "$python" "$@"; }

if ! "${PYTHON:-python3}" -c "import sys; sys.exit(sys.version_info[:2] != (3, 11))"; then
    echo "The oldest versions are those for Python 3.11: make test-lowest PYTHON=python3.11" >&2
    exit 1
fi
"${PYTHON:-python3}" -m venv --clear "$env"
"$python" -m pip install --quiet --quiet uv
scripts/install_torch.sh "$python" "$(sed -nE 's/^ *"torch>=([0-9.]+).*/\1/p' pyproject.toml)"
install --resolution lowest-direct --editable ".[$extras]" ./examples/own_tier ./examples/third_party_spec
"$python" - "$extras" << 'PY'  # what is there, and where the oldest that is allowed could not be had
import sys
from importlib.metadata import requires, version

from packaging.requirements import Requirement
from packaging.version import Version

def is_asked(need):
    return need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in sys.argv[1].split(","))


asked = list(filter(is_asked, map(Requirement, requires("octavo"))))
found = {need.name: version(need.name) for need in asked}
print(", ".join(map(" ".join, found.items())))
for need in asked:
    oldest = next((bound.version for bound in need.specifier if bound.operator in (">=", "==")), None)
    if oldest is None:
        sys.exit(f"{need} has no oldest version: write >= or == in pyproject.toml")
    if Version(Version(found[need.name]).public) != Version(oldest):
        print(f"without {need.name} {oldest}, which cannot be had here: with {found[need.name]} instead")
PY
echo "octavo.testing, as others use it"
for example in own_tier third_party_spec; do
    "$python" -m pytest -q -p no:cacheprovider "examples/$example/tests"
done
"$env/bin/uv" pip freeze --python "$python" --exclude-editable | grep -v ^hypothesis > "$env/found.txt"
install --group dev --constraint "$env/found.txt"
echo "Octavo's tests, which need a newer Hypothesis"
"$python" -m pytest -q -p no:cacheprovider -n logical --maxprocesses 4 --dist loadfile -m "not browser and not stores" \
    -W ignore::DeprecationWarning "${suite[@]}"
rm -rf "$env"
