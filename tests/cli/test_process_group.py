"""What a command has started, and what that has started, does not outlive the command."""

import os
import signal
import subprocess
import sys

import pytest

from octavo.cli.process_group import run_in_group
from rigs.processes import bound

COMMAND = """
import sys
from octavo.cli import process_group
process_group._PATIENCE_S = float(sys.argv[1])
process_group.run_in_group([sys.executable, "-c", sys.argv[2], *sys.argv[3:]])
"""
PROGRAM = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN if sys.argv[2] == "stubborn" else signal.SIG_DFL)
pipe = open(sys.argv[1], "w")
if sys.argv[3:]:
    subprocess.Popen([sys.executable, "-c", sys.argv[3], *sys.argv[1:3]], pass_fds=[pipe.fileno()])
pipe.write("begun\\n")
pipe.flush()
signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("kind", ["stubborn", "willing"])
@pytest.mark.usefixtures("hanging_up")
def test_nothing_runs_on(tmp_path, number, kind):
    """The pipe has an end once nobody can write there any more."""
    os.mkfifo(pipe := tmp_path / "pipe")
    command = [sys.executable, "-c", COMMAND, 0.1, PROGRAM, pipe, kind, PROGRAM]
    with subprocess.Popen(bound(command)) as process, pipe.open() as told:
        assert [told.readline(), told.readline()] == ["begun\n"] * 2
        process.send_signal(number)
        assert told.read() == ""
        assert process.wait() == 128 + number


def test_both_outputs_are_told():
    said = run_in_group(
        [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.stdin.read()"]
    )
    assert said == ("out\n", "err\n")


CHILD_OF_ONE = """
import sys
from octavo.cli.process_group import own_interpreter, run_in_group
print(*run_in_group([*own_interpreter(), "-c", "import tabnanny; print(tabnanny.__file__)"]))
"""


@pytest.mark.parametrize(("start", "is_mine"), [(["-P", "start.py"], False), (["-m", "start"], True)])
def test_a_program_takes_modules_from_the_current_folder_only_if_the_command_does(tmp_path, start, is_mine):
    (tmp_path / "start.py").write_text(CHILD_OF_ONE)
    (tmp_path / "tabnanny.py").touch()
    command = [sys.executable, *start]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, cwd=tmp_path)
    assert ran.stdout.startswith(str(tmp_path)) == is_mine
