#!/usr/bin/env bash
# Runs a command that gets a signal as soon as the process that started it has ended, however that ended:
#
#   scripts/end_with_parent.sh SIGNAL PID COMMAND...
#
# SIGNAL is TERM for a command that starts others, since it has to end them, and KILL for all else: a server can hang at
# its own end. PID is that of the process that starts this. The command keeps the pid of this script.
set -euo pipefail

if ! command -v setpriv >/dev/null; then  # elsewhere than on Linux
    shift 2
    exec "$@"
fi
signal=$1
shift
# Where the parent ended before the signal was asked for, there is another parent by then.
exec setpriv --pdeathsig "$signal" -- bash -c '[ "$PPID" = "$0" ] && exec "$@"' "$@"
