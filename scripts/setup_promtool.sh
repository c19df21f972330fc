#!/usr/bin/env bash
# Installs promtool from Debian's package prometheus, for the tests of the alerts; does nothing when it is there.
set -euo pipefail
. "$(dirname "$0")/debian.sh"
if command -v promtool > /dev/null; then
    exit 0
fi
needs_debian prometheus
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Only the tool: the package itself would set up a service.
(cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb | tar x ./usr/bin/promtool)
install -m 755 "$folder/usr/bin/promtool" /usr/local/bin/promtool
