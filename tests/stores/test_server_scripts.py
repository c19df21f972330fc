"""The servers that tests and benchmarks start end with the run that started them, even where that is killed."""

import os
import select
import signal
import subprocess
import sys

import pytest

from rigs.processes import children_of, command_of, family_of
from rigs.store_servers import MissingError, serving

pytestmark = [pytest.mark.stores, pytest.mark.timeout(300)]
PATIENCE_S = 60
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


def skip_if_missing(errors):
    assert "MissingError" in errors, errors
    pytest.skip(errors.splitlines()[-1])


def await_ends(pidfds):
    for pidfd in pidfds:
        assert select.select([pidfd], [], [], PATIENCE_S)[0], "it lives on"
        os.close(pidfd)
