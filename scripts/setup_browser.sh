#!/usr/bin/env bash
# Installs a headless browser and its driver from Debian, for the tests of the page; does nothing when they are there.
set -euo pipefail
. "$(dirname "$0")/debian.sh"
command -v chromium > /dev/null && command -v chromedriver > /dev/null ||
    installs_debian chromium chromium-driver fonts-dejavu-core
