#!/usr/bin/env bash
# Everything that only a GPU can tell, in at most ten minutes, without a network.
#   gpu_check.sh [--cpu] [WHEELS]
# --cpu does the same on a CPU in small, which checks this script. WHEELS is a folder of wheels that this Python lacks;
# they go into a folder that lasts as long as the script. `make gpu-wheels` gathers them where there is a network: less
# than 64 MiB. $PYTHON is an interpreter whose torch sees the GPU; by default python3.
# Each stage has a limit, and a stage that fails stops no other. The exit code is 1 if one failed.
set -uo pipefail
cd "$(dirname "$0")/.."
device=cuda
[ "${1:-}" = --cpu ] && { device=cpu; shift; }
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONPATH=$PWD/src HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
report=()
failed=0

stage() { # stage SECONDS NAME COMMAND...
    local limit=$1 name=$2 start=$SECONDS rc=0
    shift 2
    [ "$device" = cpu ] && limit=$((5 * limit))  # beside other work; the limits keep a run on a GPU within ten minutes
    printf '\n=== %s\n' "$name"
    timeout --kill-after=10 "$limit" "$@" || rc=$?
    case $rc in
        0) report+=("passed   $((SECONDS - start)) s  $name") ;;
        124 | 137) report+=("too slow $((SECONDS - start)) s  $name"); failed=1 ;;
        *) report+=("FAILED   $((SECONDS - start)) s  $name"); failed=1 ;;
    esac
}
skip() { report+=("skipped        $1"); }
tests() { "$python" -m pytest -q -p no:cacheprovider --timeout 110 "$@"; }
export -f tests
export python

if [ -n "${1:-}" ]; then
    "$python" -m pip install --quiet --quiet --no-index --no-deps --target "$work/site" "$1"/*.whl || exit 1
    export PYTHONPATH=$PYTHONPATH:$work/site
fi
"$python" - "$device" <<'PY' || exit 1
import importlib.metadata
import platform
import sys

needed = ("torch", "transformers", "numpy", "msgspec", "cbor2", "pyzmq", "httpx", "xxhash", "lazy-loader", "pytest")
needed += ("pytest-timeout", "hypothesis", "octavo")
found = {}
for name in needed:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found[name] = None
print(f"Python {platform.python_version()};", ", ".join(f"{name} {version}" for name, version in found.items()))
missing = [name for name, version in found.items() if version is None]
if missing:
    sys.exit(f"gpu_check.sh: {sys.executable} lacks {', '.join(missing)}: give a folder of wheels (make gpu-wheels)")
import torch

if sys.argv[1] == "cuda":
    if not torch.cuda.is_available():
        sys.exit("gpu_check.sh: torch sees no GPU here; --cpu checks this script")
    shown = torch.cuda.get_device_properties(0)
    print(f"{shown.name}, {shown.total_memory >> 30} GiB, CUDA {torch.version.cuda}")
PY

if [ "$device" = cuda ]; then
    workers=(-k "Cuda or cuda") pages=(16 64 256 1024 8192) size=(--mib 512 --buffer-mib 1024 --rounds 5)
    layouts=(tests/transfer/test_register.py tests/transfer/test_vllm_layouts.py)
    families=(-k "test_from") matrices=4096 resumed=(--rounds 3)
else
    workers=(-k "TestStagedWorker and they and blocks_one_after") pages=(16 8192) size=(--mib 16 --buffer-mib 16 --rounds 1)
    layouts=(tests/transfer/test_vllm_layouts.py)
    families=(-k "test_from_memory and gemma3 and not gemma3n") matrices=256
    resumed=(--rounds 1 --prefix 200 --kinds full)
fi

stage 80 "the worker: its suite, and the order of copies and kernels" \
    bash -c 'tests "$@"' _ tests/transfer/test_workers.py "${workers[@]}"
stage 30 "canonical caches of other engines' tensors" \
    env OCTAVO_TEST_DEVICE=$device bash -c 'tests "$@"' _ "${layouts[@]}"
stage 70 "stores and loads beside the link" \
    "$python" benchmarks/bench_transfer.py --device "$device" "${size[@]}" --pages-kib "${pages[@]}"
stage 40 "transfers beside compute" \
    "$python" benchmarks/bench_transfer_overlap.py --device "$device" --mib "${size[1]}" --rounds 3 --size $matrices
stage 140 "the embedded engine: answers equal plain Hugging Face's, from memory, from disk and after a restart" \
    env OCTAVO_TEST_DEVICE=$device bash -c 'tests "$@"' _ tests/engine/test_identical.py "${families[@]}"
stage 60 "the server: the same answers over HTTP" \
    env OCTAVO_TEST_DEVICE=$device bash -c 'tests "$@"' _ tests/engine/test_served_device.py
stage 60 "the time to the first token, resumed and computed" \
    "$python" benchmarks/bench_resume_ttft.py --device "$device" "${resumed[@]}"
if "$python" -c "import vllm" 2> /dev/null && [ "$device" = cuda ]; then
    "$python" -c "from octavo.engine import save_tiny_model; save_tiny_model('gemma3', '$work/model')"
    stage 120 "vLLM: the same answers without and with the plug-in" \
        "$python" -c "from octavo.cli import main; main()" vllm-check "$work/model" --memory 256MiB --disk "$work/kv" \
        --shared-tokens 400 --vllm-args '{"max_model_len": 1024, "gpu_memory_utilization": 0.3}'
else
    skip "vLLM: it is not here, or this is a CPU"
fi

printf '\n=== %s, %d s in all\n' "$device" $SECONDS
printf '%s\n' "${report[@]}"
exit $failed
