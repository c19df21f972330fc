#!/usr/bin/env bash
# Starts a real Redis for tests, on a socket in a folder, prints its URL, then READY, and stays until it is told to end
# (SIGTERM, SIGINT).
#
#   scripts/start_redis.sh FOLDER
#   scripts/start_redis.sh --install    installs Debian's package (as root)
#
# Ends with 77 where redis-server is not installed.
set -euo pipefail

if [ "${1:-}" = --install ]; then
    . "$(dirname "$0")/debian.sh"
    command -v redis-server > /dev/null || installs_debian redis-server
    exit
fi
folder=${1:?a folder for its socket}
command -v redis-server > /dev/null || {
    echo "redis-server is missing: scripts/start_redis.sh --install" >&2
    exit 77
}
socket=$(realpath "$folder")/redis.sock
redis-server --port 0 --unixsocket "$socket" --dir "$folder" --save "" --appendonly no --databases 4 \
    > "$folder/redis.log" &
server=$!
trap 'kill "$server" 2> /dev/null || true; wait' EXIT
trap 'exit 0' TERM INT
until redis-cli -s "$socket" ping > /dev/null 2>&1; do
    kill -0 "$server" 2> /dev/null || {
        cat "$folder/redis.log" >&2
        exit 1
    }
    sleep 0.1
done
echo "URL=unix://$socket"
echo READY
wait "$server"
