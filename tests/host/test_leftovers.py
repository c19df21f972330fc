"""What dead processes left is deleted, and nothing else."""

import os
import signal
import subprocess
import sys
import time

import pytest

from octavo.host import find_old, is_unlocked, temporary_folder
from rigs.processes import bound

HOLDS = """
import signal
from octavo.host import temporary_folder
with temporary_folder("octavo-test-") as folder:
    (folder / "weights").write_bytes(b"much")
    print(folder, flush=True)
    signal.pause()
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The folder of temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


@pytest.fixture
def holder(here):
    """A process that has a temporary folder."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(bound([sys.executable, "-c", HOLDS]), stdout=subprocess.PIPE, text=True, env=env) as process:
        process.folder = here / process.stdout.readline().strip()
        yield process
        process.kill()


def grow_old(*paths):
    then = time.time() - 3600
    for path in paths:
        os.utime(path, (then, then))


def test_it_is_there_and_then_gone(here):
    with temporary_folder("octavo-test-") as folder:
        assert list(here.iterdir()) == [folder]
        (lock,) = folder.iterdir()
        assert not is_unlocked(lock)
    assert list(here.iterdir()) == []


def test_what_a_killed_process_left_is_deleted(here, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    grow_old(holder.folder)
    with temporary_folder("octavo-test-") as folder:
        assert list(here.iterdir()) == [folder]


def test_a_living_process_keeps_its_own(holder):
    grow_old(holder.folder)
    with temporary_folder("octavo-test-"):
        assert (holder.folder / "weights").read_bytes() == b"much"


def test_what_is_young_or_has_another_name_or_leads_elsewhere_stays(here):
    young, other, elsewhere = here / "octavo-test-young", here / "octavo-other", here / "mine"
    for folder in (young, other, elsewhere):
        folder.mkdir()
    link, pipe = here / "octavo-test-link", here / "octavo-test-pipe"
    link.symlink_to(elsewhere)
    os.mkfifo(pipe)
    grow_old(other, elsewhere, pipe)
    os.utime(link, (0, 0), follow_symlinks=False)
    assert set(find_old(here, "octavo-test-")) == {link, pipe}
    assert not is_unlocked(link)
    with temporary_folder("octavo-test-"):
        assert all(path.exists() for path in (young, other, elsewhere, link, pipe))


def test_what_a_clock_has_dated_that_was_ahead_is_old(here):
    ahead = here / "octavo-test-ahead"
    ahead.mkdir()
    os.utime(ahead, (0, time.time() + 3600))
    assert find_old(here, "octavo-test-") == [ahead]


def test_a_persons_own_folder_of_that_name_stays(here):
    own = here / "octavo-test-notes"
    own.mkdir()
    (own / "thesis.txt").write_text("years of work")
    grow_old(own)
    with temporary_folder("octavo-test-"):
        assert (own / "thesis.txt").exists()


def test_what_is_somebody_elses_stays(here, monkeypatch):
    foreign = here / "octavo-test-foreign"
    foreign.mkdir()
    grow_old(foreign)
    monkeypatch.setattr(os, "geteuid", lambda: foreign.stat().st_uid + 1)
    assert find_old(here, "octavo-test-") == []
