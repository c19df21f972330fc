"""What tests start does not outlive them: `scripts/end_with_parent.sh`."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from rigs.processes import bound, children_of

STARTS = """
import subprocess, sys
from rigs.processes import bound
subprocess.Popen(bound(["bash", "-c", "echo up; exec sleep infinity"]))
subprocess.Popen(bound(["sleep", "infinity"])).wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_ends_with_its_parent(number):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE, text=True, env=env) as parent:
        assert parent.stdout.readline() == "up\n"
        parent.send_signal(number)
        assert parent.stdout.read() == ""  # the pipe closes when the last of them has ended


def test_a_parent_that_has_ended_already_starts_nothing():
    script, number, _, *command = bound(["echo", "up"])
    done = subprocess.run([script, number, "0", *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_it_is_the_command_itself_that_runs():
    with subprocess.Popen(bound(["cat", "-"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write("one line\n")
        process.stdin.flush()
        assert process.stdout.readline() == "one line\n"
        assert process.pid in children_of(os.getpid())
        assert children_of(process.pid) == []
        process.send_signal(signal.SIGINT)
    assert process.returncode == -signal.SIGINT


def test_a_thread_that_will_end_starts_none():
    caught = []

    def start():
        try:
            bound(["true"])
        except AssertionError as error:
            caught.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert caught == ["a process would end with this thread"]
