#!/usr/bin/env bash
# Installs torch's build for CPUs, without what torch requires.
#   install_torch.sh PYTHON VERSION [--dry-run]      --dry-run: shows what it would run, and installs nothing
# pip's default index has the build with CUDA for Linux: gigabytes. The one for CPUs is in an index of torch's own.
# That index is taken unless pip is told where all packages come from (index-url, no-index) or the index does not
# answer within seconds. TORCH_INDEX names another one; empty, it leaves the choice to pip's settings.
set -euo pipefail
python=$1
version=$2
is_dry=${3:+yes}
index=${TORCH_INDEX-https://download.pytorch.org/whl/cpu}

is_set_in_pip() { "$python" -m pip config list | grep -Eqi "[.](index-url|no-index)="; }

answers() {  # one try, and none of the further places that pip's settings name
    PIP_EXTRA_INDEX_URL="$1" PIP_FIND_LINKS=/dev/null "$python" -m pip index versions torch --quiet \
        --index-url "$1" --retries 0 --timeout 5 > /dev/null 2>&1
}

install() {
    local command=("$python" -m pip install --no-deps "torch==$version" "$@")
    if [ -n "$is_dry" ]; then echo "      would run: ${command[*]}"; else "${command[@]}"; fi
}

if [ -z "$index" ] || { [ -z "${TORCH_INDEX+x}" ] && is_set_in_pip; }; then
    echo "      from where pip's settings say"
    install
elif answers "$index"; then
    echo "      from $index: about 190 MB"
    install --index-url "$index"
else
    echo "      $index does not answer: from where pip's settings say."
    echo "      190 MB if that is a build for CPUs; one with CUDA brings gigabytes along."
    install
fi
