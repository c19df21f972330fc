#!/usr/bin/env bash
# Starts a real S3 server for tests: Ceph's RADOS gateway over one monitor and one storage daemon in memory, all on
# 127.0.0.1. Makes the bucket `octavo`, prints endpoint and keys as shell assignments, then READY, and stays until it is
# told to end (SIGTERM, SIGINT).
#
#   scripts/start_object_store.sh FOLDER [PORT OF THE MONITOR] [PORT OF THE GATEWAY]
#
# Needs Debian's packages radosgw, ceph-mon, ceph-osd and ceph-base, and ends with 77 where they are not installed.
set -euo pipefail
scripts=$(realpath "$(dirname "$0")")
bound() { exec "$scripts/end_with_parent.sh" KILL $$ "$@"; }

for tool in radosgw radosgw-admin ceph-mon ceph-osd ceph monmaptool ceph-authtool; do
    command -v "$tool" >/dev/null || {
        echo "$tool is missing: apt-get install --no-install-recommends radosgw ceph-mon ceph-osd ceph-base" >&2
        exit 77
    }
done
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
await() {
    local name=$1
    shift
    for _ in $(seq 120); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.5
    done
    echo "$name did not start: see $here/log" >&2
    exit 1
}
ceph_now() { timeout 20 ceph --connect-timeout 15 "$@"; }

ceph-authtool --create-keyring keyring --gen-key -n mon. --cap mon 'allow *' >/dev/null
monmaptool --create --fsid "$cluster" --addv a "[v1:127.0.0.1:$monitor]" monmap >/dev/null
ceph-mon -i a --mkfs --monmap monmap --keyring keyring
bound ceph-mon -i a -f >log/mon.out 2>&1 &
pids+=($!)
await "the monitor" ceph_now -s
osd=$(cat /proc/sys/kernel/random/uuid)
ceph_now osd new "$osd" >/dev/null
ceph_now osd crush add osd.0 1.0 host=h root=default >/dev/null 2>&1
ceph-osd -i 0 --mkfs --osd-uuid "$osd" >log/mkfs.out 2>&1
bound ceph-osd -i 0 -f >log/osd.out 2>&1 &
pids+=($!)
await "the storage daemon" bash -c 'timeout 20 ceph osd stat | grep -q "1 up"'
bound radosgw -n client.rgw.a -f >log/rgw.out 2>&1 &
pids+=($!)
await "the gateway" python3 -c "import urllib.request as r; r.urlopen('http://127.0.0.1:$gateway', timeout=2)"
timeout 60 radosgw-admin user create --uid octavo --display-name Octavo --access-key octavo --secret-key octavo-secret \
    >log/user.out 2>&1
python3 - "$gateway" <<'MAKE_BUCKET'
import base64, email.utils, hashlib, hmac, sys, urllib.request

date = email.utils.formatdate(usegmt=True)
signed = hmac.new(b"octavo-secret", f"PUT\n\n\n{date}\n/octavo".encode(), hashlib.sha1).digest()
headers = {"Date": date, "Authorization": "AWS octavo:" + base64.b64encode(signed).decode()}
urllib.request.urlopen(
    urllib.request.Request(f"http://127.0.0.1:{sys.argv[1]}/octavo", method="PUT", headers=headers), timeout=30
)
MAKE_BUCKET
printf 'ENDPOINT=http://127.0.0.1:%s\nAWS_ACCESS_KEY_ID=octavo\nAWS_SECRET_ACCESS_KEY=octavo-secret\n' "$gateway"
echo READY
wait -n "${pids[@]}"
echo "a part of the server has ended: see $here/log" >&2
exit 1
