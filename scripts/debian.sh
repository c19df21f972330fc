# Sourced by scripts that need Debian's packages.

# needs_debian PACKAGE...: ends the script, and says what to do, unless they can be installed.
needs_debian() {
    local script
    script=$(basename "$0")
    if ! command -v apt-get > /dev/null; then
        echo "$script: no apt-get here; install by hand: $*" >&2
        exit 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        echo "$script: needs root: sudo apt-get install $*" >&2
        exit 1
    fi
    apt-get update -qq
}

# installs_debian PACKAGE...: without what they only recommend.
installs_debian() {
    needs_debian "$@"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" > /dev/null
}
