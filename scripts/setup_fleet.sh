#!/usr/bin/env bash
# Makes an environment over another one, with what the tests marked `fleet` need beside it.
#   setup_fleet.sh BASE FOLDER
set -euo pipefail
base=$1
env=$2
packages_of() { "$1/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))"; }

rm -rf "$env"
"$base/bin/python" -m venv "$env"
printf "import site; site.addsitedir('%s')\n" "$(packages_of "$(realpath "$base")")" > "$(packages_of "$env")/octavo_base.pth"
"$env/bin/python" -m pip install --quiet --quiet --upgrade "pip>=25.1"
"$env/bin/python" -m pip install --quiet --quiet --editable ".[epp,ray]" --group fleet
