#!/usr/bin/env bash
# Starts a real S3 server for tests: Ceph's RADOS gateway over one monitor and one storage daemon in memory, all on
# 127.0.0.1. Makes the bucket `octavo`, prints endpoint and keys as shell assignments, then READY, and stays until it is
# told to end (SIGTERM, SIGINT).
#
#   scripts/start_object_store.sh FOLDER [PORT OF THE MONITOR] [PORT OF THE GATEWAY]
#   scripts/start_object_store.sh --install    installs Debian's packages (as root)
#
# Ends with 77 where a tool is not installed.
set -euo pipefail
scripts=$(realpath "$(dirname "$0")")
bound() { exec "$scripts/end_with_parent.sh" KILL $$ "$@"; }

missing() {
    local tool
    for tool in radosgw radosgw-admin ceph-mon ceph-osd ceph monmaptool ceph-authtool; do
        command -v "$tool" >/dev/null || {
            echo "$tool"
            return
        }
    done
}
if [ "${1:-}" = --install ]; then
    . "$scripts/debian.sh"
    [ -z "$(missing)" ] || installs_debian radosgw ceph-mon ceph-osd ceph-base
    exit
fi
if [ -n "$(missing)" ]; then
    echo "$(missing) is missing: scripts/start_object_store.sh --install" >&2
    exit 77
fi
folder=${1:?a new folder for its files}
free_port() { python3 "$scripts/free_port.py"; }
monitor=${2:-$(free_port)}
gateway=${3:-$(free_port)}
mkdir -p "$folder"/{mon,osd,rgw,log}
cd "$folder"
here=$PWD
pids=()
trap 'kill -KILL "${pids[@]}" 2>/dev/null || true; wait' EXIT
trap 'exit 0' TERM INT

cluster=$(cat /proc/sys/kernel/random/uuid)
cat > ceph.conf <<CONF
[global]
fsid = $cluster
mon host = [v1:127.0.0.1:$monitor]
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
ms bind msgr2 = false
public addr = 127.0.0.1
run dir = $here
log file = $here/log/\$name.log
admin socket = $here/\$name.asok
keyring = $here/keyring
mon data = $here/mon
mon data avail crit = 1
mon data avail warn = 1
mon allow pool size one = true
mon allow pool delete = true
osd data = $here/osd
osd objectstore = memstore
memstore device bytes = 2147483648
osd memory target = 1073741824
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd crush chooseleaf type = 0
osd crush update on start = false
osd class update on start = false
osd class load list = *
osd class default list = *
[client.rgw.a]
rgw frontends = beast endpoint=127.0.0.1:$gateway tcp_nodelay=1
rgw data = $here/rgw
CONF
export CEPH_CONF=$here/ceph.conf
# succeeds NAME COMMAND...: tried until it succeeds, for two minutes. A monitor that has just started says no now and then,
# and a busy machine makes a command slower than its own limit; each command here may be given twice.
succeeds() {
    local name=$1 end=$((SECONDS + 120)) part
    shift
    until "$@" >log/command.out 2>&1; do
        for part in "${pids[@]}"; do
            kill -0 "$part" 2>/dev/null || end=0
        done
        if ((SECONDS >= end)); then
            echo "$name: failed, see $here/log" >&2
            tail -n 5 log/command.out log/*.out >&2
            exit 1
        fi
        sleep 0.5
    done
}
ceph_now() { timeout 20 ceph --connect-timeout 15 "$@"; }
storage_is_up() { ceph_now osd stat | grep -q "1 up"; }
listens() { (: <"/dev/tcp/127.0.0.1/$gateway"); }
has_user() { timeout 60 radosgw-admin user info --uid octavo; }
makes_user() {
    has_user || timeout 60 radosgw-admin user create --uid octavo --display-name Octavo --access-key octavo \
        --secret-key octavo-secret
}

ceph-authtool --create-keyring keyring --gen-key -n mon. --cap mon 'allow *' >/dev/null
monmaptool --create --fsid "$cluster" --addv a "[v1:127.0.0.1:$monitor]" monmap >/dev/null
ceph-mon -i a --mkfs --monmap monmap --keyring keyring
bound ceph-mon -i a -f >log/mon.out 2>&1 &
pids+=($!)
succeeds "the monitor's start" ceph_now -s
osd=$(cat /proc/sys/kernel/random/uuid)
succeeds "a name for the storage daemon" ceph_now osd new "$osd"
succeeds "a place for the storage daemon" ceph_now osd crush add osd.0 1.0 host=h root=default
succeeds "the storage daemon's files" ceph-osd -i 0 --mkfs --osd-uuid "$osd"
bound ceph-osd -i 0 -f >log/osd.out 2>&1 &
pids+=($!)
succeeds "the storage daemon's start" storage_is_up
bound radosgw -n client.rgw.a -f >log/rgw.out 2>&1 &
pids+=($!)
cat >make_bucket.py <<'PYTHON'
import base64, email.utils, hashlib, hmac, sys, urllib.request

date = email.utils.formatdate(usegmt=True)
signed = hmac.new(b"octavo-secret", f"PUT\n\n\n{date}\n/octavo".encode(), hashlib.sha1).digest()
headers = {"Date": date, "Authorization": "AWS octavo:" + base64.b64encode(signed).decode()}
urllib.request.urlopen(
    urllib.request.Request(f"http://127.0.0.1:{sys.argv[1]}/octavo", method="PUT", headers=headers), timeout=30
)
PYTHON
succeeds "the gateway's start" listens
succeeds "the gateway's user" makes_user
succeeds "the gateway's bucket" python3 make_bucket.py "$gateway"
printf 'ENDPOINT=http://127.0.0.1:%s\nAWS_ACCESS_KEY_ID=octavo\nAWS_SECRET_ACCESS_KEY=octavo-secret\n' "$gateway"
echo READY
wait -n "${pids[@]}"
echo "a part of the server has ended: see $here/log" >&2
exit 1
