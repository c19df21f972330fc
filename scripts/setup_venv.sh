#!/usr/bin/env bash
# Makes the environment of the Makefile's targets, and says what it downloads.
#   setup_venv.sh FOLDER
set -euo pipefail
env=$1
torch=2.13.0
# pip's output without what is small: a line per download of a megabyte or more, and one for the installation.
summary() {
    sed -unE -e 's/^ *(Downloading|Using cached) ([^ ]+)-[^-]+-[^-]+-[^-]+[.]whl( .*[0-9] MB[)])$/      \2\3/p' \
        -e 's/^Installing collected packages:.*/      installing, which takes up to a minute/p'
}

"${PYTHON:-python3}" -m venv "$env"
echo "Setting up $env with $("$env/bin/python" --version): about 300 MB to download, 1.4 GB on disk."
echo "[1/3] pip: 2 MB"
"$env/bin/python" -m pip install --quiet --quiet --upgrade "pip>=25.1"
echo "[2/3] torch $torch for CPUs"
"$(dirname "$0")/install_torch.sh" "$env/bin/python" "$torch"
echo "[3/3] Octavo with its engine, and what its tests need: about 130 MB"
"$env/bin/python" -m pip install --progress-bar off --editable ".[engine,zstd,encryption,objects,redis,plot]" --group dev | summary
