"""The servers that tests and benchmarks start: how they start, and that they end with the run that started them."""

import os
import select
import shutil
import signal
import subprocess
import sys

import pytest

from rigs.processes import children_of, command_of, family_of
from rigs.store_servers import MissingError, serving

pytestmark = [pytest.mark.stores, pytest.mark.timeout(300)]
PATIENCE_S = 300
SERVERS = {
    "start_redis.sh": ["redis"],
    "start_object_store.sh": [],
    "start_mooncake.sh": [sys.executable],
}
STARTS = """
import sys
from rigs.store_servers import serving
with serving(*sys.argv[1:]):
    print("READY", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("script", SERVERS)
def test_nothing_is_left_of_a_run_that_was_killed(script, tmp_path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", STARTS, script, str(tmp_path), *SERVERS[script]]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as run:
        if not run.stdout.readline():
            skip_if_missing(run.stderr.read().decode())
        family = [os.pidfd_open(pid) for pid in family_of(run.pid)]
        run.kill()
    assert len(family) > 1
    await_ends(family)


@pytest.mark.parametrize("script", SERVERS)
def test_servers_that_hang_end_with_their_script(script, tmp_path):
    try:
        with serving(script, tmp_path, *SERVERS[script]):
            (script_pid,) = (pid for pid in children_of(os.getpid()) if str(tmp_path) in command_of(pid))
            family = [os.pidfd_open(pid) for pid in family_of(script_pid)]
            for hanging in family:
                signal.pidfd_send_signal(hanging, signal.SIGSTOP)
            os.kill(script_pid, signal.SIGKILL)
    except MissingError as missing:
        pytest.skip(str(missing))
    assert family
    await_ends(family)


@pytest.fixture
def shim(tmp_path, monkeypatch):
    """Puts a script before a command of the system; `$real` is that command."""
    folder = tmp_path / "shims"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def put(command, script):
        real = shutil.which(command, path=os.environ["PATH"].partition(os.pathsep)[2])
        if real is None:
            pytest.skip(f"{command} is missing")
        path = folder / command
        path.write_text(f"#!/usr/bin/env bash\nreal={real}\nfolder={folder}\n{script}\n")
        path.chmod(0o755)

    return put


def test_a_monitor_that_says_no_once_is_asked_again(shim, tmp_path):
    says_no_once = (
        'said="$folder/${*//[^a-z]/}"; [ -e "$said" ] || { touch "$said"; echo EPERM >&2; exit 1; }; exec $real "$@"'
    )
    for command in ("ceph", "radosgw-admin"):
        shim(command, says_no_once)
    with serving("start_object_store.sh", tmp_path / "server") as told:
        assert told["ENDPOINT"]


def test_a_server_that_cannot_start_says_why(shim, tmp_path):
    shim("ceph-osd", '[ "${!#}" != -f ] || { echo "no such disk" >&2; exit 1; }; exec $real "$@"')
    with (
        pytest.raises(RuntimeError, match=r"the storage daemon's start: failed, see (?s:.*)no such disk"),
        serving("start_object_store.sh", tmp_path / "server"),
    ):
        pass


def skip_if_missing(errors):
    assert "MissingError" in errors, errors
    pytest.skip(errors.splitlines()[-1])


def await_ends(pidfds):
    for pidfd in pidfds:
        assert select.select([pidfd], [], [], PATIENCE_S)[0], "it lives on"
        os.close(pidfd)
