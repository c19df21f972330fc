import errno
import os
import threading

import pytest

from octavo.replacing import replacing


def test_a_file_is_replaced_at_the_blocks_end(tmp_path):
    path = tmp_path / "memory.json"
    path.write_bytes(b"before")
    with replacing(path) as file:
        file.write(b"after")
        file.flush()
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_a_failure_leaves_what_was_there(tmp_path, failure):
    path = tmp_path / "memory.json"
    path.write_bytes(b"before")

    def write():
        with replacing(path) as file:
            file.write(b"half")
            raise failure

    with pytest.raises(type(failure)):
        write()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_process_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "memory.json"
    both_write = threading.Barrier(2, timeout=60)

    def write(content):
        with replacing(path) as file:
            both_write.wait()
            file.write(content)

    threads = [threading.Thread(target=write, args=(content,)) for content in (b"one", b"two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in (b"one", b"two")
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_replaced_and_not_followed(tmp_path):
    path, theirs = tmp_path / "memory.json", tmp_path / "theirs"
    theirs.write_bytes(b"theirs")
    path.symlink_to(theirs)
    with replacing(path) as file:
        file.write(b"ours")
    assert theirs.read_bytes() == b"theirs"
    assert not path.is_symlink()


def test_what_a_killed_process_left_is_in_the_way_of_none_of_the_same_number(tmp_path):
    """In a container each process may have it."""
    path = tmp_path / "memory.json"
    (tmp_path / f"memory.json.{os.getpid()}.tmp").write_bytes(b"half")
    with replacing(path) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]
