#!/usr/bin/env bash
# Starts a real Mooncake for tests on 127.0.0.1: a master, and a client that gives the pool memory. Prints their URL and
# pids, then READY, and stays until it is told to end (SIGTERM, SIGINT).
#
#   scripts/start_mooncake.sh FOLDER [PYTHON] [PORT]
#   scripts/start_mooncake.sh --install    installs Debian's packages that the library needs (as root)
#
# PYTHON (python3) is the one whose package mooncake it takes. Ends with 77 where that is not installed, or does not load.
set -euo pipefail

if [ "${1:-}" = --install ]; then
    . "$(dirname "$0")/debian.sh"
    ldconfig -p | grep -q libibverbs.so.1 || installs_debian libibverbs1 libnl-3-200 libnl-route-3-200
    exit
fi
folder=${1:?a folder for its log}
python=${2:-python3}
"$python" -c 'import mooncake.store' 2> "$folder/import.log" || {
    tail -n 1 "$folder/import.log" >&2
    echo "pip install mooncake-transfer-engine-non-cuda; scripts/start_mooncake.sh --install" >&2
    exit 77
}
free_port() { "$python" "$(dirname "$0")/free_port.py"; }
port=${3:-$(free_port)}
metrics=$(free_port)
pids=()
trap 'kill -KILL "${pids[@]}" 2> /dev/null || true; wait' EXIT
trap 'exit 0' TERM INT
# starts NAME PORT OPTION...: a command of the package, and waits until it listens
starts() {
    local name=$1 port=$2
    shift 2
    "$(dirname "$0")/end_with_parent.sh" KILL $$ "$python" -c "from mooncake.cli${name#master} import main; main()" "$@" \
        > "$folder/$name.log" 2>&1 &
    pids+=($!)
    until (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do
        kill -0 "${pids[-1]}" 2> /dev/null || {
            cat "$folder/$name.log" >&2
            exit 1
        }
        sleep 0.1
    done
}
starts master "$port" --rpc_address=127.0.0.1 --rpc_port="$port" --metrics_host=127.0.0.1 \
    --metrics_port="$metrics" --client_ttl=5
own_port=$(free_port)
starts _client "$own_port" --host=127.0.0.1 --port="$own_port" --metadata_server=P2PHANDSHAKE \
    --master_server_address="127.0.0.1:$port" --global_segment_size="128 MB" --protocol=tcp
echo "URL=mooncake://127.0.0.1:$port"
echo "METRICS=http://127.0.0.1:$metrics"
echo "MASTER=${pids[0]}"
echo "CLIENT=${pids[1]}"
echo READY
wait
