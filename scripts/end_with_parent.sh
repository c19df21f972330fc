#!/usr/bin/env bash
# Runs a command that gets SIGTERM as soon as the process that started it has ended, however that ended:
#
#   scripts/end_with_parent.sh PID COMMAND...
#
# PID is that of the process that starts this. The command keeps the pid of this script, and has to end what it starts.
set -euo pipefail

if ! command -v setpriv >/dev/null; then  # elsewhere than on Linux
    shift
    exec "$@"
fi
# Where the parent ended before the signal was asked for, there is another parent by then.
exec setpriv --pdeathsig TERM -- bash -c '[ "$PPID" = "$0" ] && exec "$@"' "$@"
