#!/usr/bin/env bash
# Installs a headless browser and its driver from Debian, for the tests of the page; does nothing when they are there.
set -euo pipefail
if command -v chromium > /dev/null && command -v chromedriver > /dev/null; then
    exit 0
fi
if ! command -v apt-get > /dev/null; then
    echo "setup_browser.sh: no apt-get here; install chromium and chromedriver by hand" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "setup_browser.sh: needs root: sudo apt-get install chromium chromium-driver fonts-dejavu-core" >&2
    exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    chromium chromium-driver fonts-dejavu-core > /dev/null
