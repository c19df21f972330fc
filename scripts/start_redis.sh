#!/usr/bin/env bash
# Starts a real Redis or Valkey for tests: on a socket in a folder, on TCP, and on TLS with a certificate of its own.
# Prints URL, TCP_URL and TLS_URL (as a user that may do what engines and `octavo store` need, and no more), CA_FILE, then
# READY, and stays until it is told to end (SIGTERM, SIGINT).
#
#   scripts/start_redis.sh FOLDER [redis|valkey]
#   scripts/start_redis.sh --install    installs Debian's packages (as root): Redis, and Valkey where there is one
#
# Ends with 77 where the server is not installed.
set -euo pipefail

if [ "${1:-}" = --install ]; then
    . "$(dirname "$0")/debian.sh"
    command -v redis-server > /dev/null || installs_debian redis-server
    command -v valkey-server > /dev/null || ! apt-cache show valkey-server > /dev/null 2>&1 || installs_debian valkey-server
    exit
fi
folder=$(realpath "${1:?a folder for its socket}")
kind=${2:-redis}
for tool in "$kind-server" "$kind-cli" openssl; do
    command -v "$tool" > /dev/null || {
        echo "$tool is missing: scripts/start_redis.sh --install" >&2
        exit 77
    }
done
free_port() { python3 "$(dirname "$0")/free_port.py"; }
port=$(free_port)
tls_port=$(free_port)
socket=$folder/redis.sock
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=octavo \
    -addext subjectAltName=IP:127.0.0.1 -keyout "$folder/key.pem" -out "$folder/certificate.pem" 2> /dev/null
cat > "$folder/redis.conf" <<CONF
port $port
tls-port $tls_port
bind 127.0.0.1
tls-cert-file $folder/certificate.pem
tls-key-file $folder/key.pem
tls-auth-clients no
unixsocket $socket
dir $folder
save ""
appendonly no
databases 4
user octavo on >octavo-secret ~octavo* +get +set +getrange +pexpire +del +unlink +scan +memory|usage +select
CONF
"$(dirname "$0")/end_with_parent.sh" KILL $$ "$kind-server" "$folder/redis.conf" > "$folder/redis.log" &
server=$!
trap 'kill -KILL "$server" 2> /dev/null || true; wait' EXIT
trap 'exit 0' TERM INT
until "$kind-cli" -s "$socket" ping > /dev/null 2>&1; do
    kill -0 "$server" 2> /dev/null || {
        cat "$folder/redis.log" >&2
        exit 1
    }
    sleep 0.1
done
echo "URL=unix://$socket"
echo "TCP_URL=redis://octavo:octavo-secret@127.0.0.1:$port/0"
echo "TLS_URL=rediss://octavo:octavo-secret@127.0.0.1:$tls_port/0"
echo "CA_FILE=$folder/certificate.pem"
echo READY
wait "$server"
