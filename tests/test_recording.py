"""Recordings: a file of its own, a line for each request, and hashes cut to what names a block."""

import json

import pytest

from octavo.errors import InputError
from octavo.recording import RequestRecorder, check_recording


def test_a_line(tmp_path):
    path = tmp_path / "recording.jsonl"
    recorder = RequestRecorder(path, block_tokens=16)
    hashes = [bytes(range(32)), bytes(range(1, 33))]
    recorder.note(0.5, hashes, {"memory": 16}, num_prompt_tokens=40, num_output_tokens=2)
    recorder.close()
    header, line = map(json.loads, path.read_text().splitlines())
    assert header == {"octavo_recording": 1, "block_tokens": 16}
    assert line == {
        "arrival_s": 0.5,
        "prompt_tokens": 40,
        "output_tokens": 2,
        "blocks": [0x0001_0203_0405, 0x0102_0304_0506],
        "resumed": {"memory": 16},
    }


def test_a_block_that_is_not_computed_is_left_out(tmp_path):
    """The last token of an answer may fill one; an answer without tokens has no last one."""
    path = tmp_path / "recording.jsonl"
    recorder = RequestRecorder(path, block_tokens=16)
    hashes = [bytes([number] * 32) for number in range(4)]
    for output in (8, 9, 0):
        recorder.note(0.0, hashes, {}, num_prompt_tokens=40, num_output_tokens=output)
    recorder.close()
    _, *lines = map(json.loads, path.read_text().splitlines())
    assert [len(line["blocks"]) for line in lines] == [2, 3, 2]


def test_a_file_that_is_there_is_kept(tmp_path, caplog):
    """A supervisor starts a server again with the same flags."""
    path = tmp_path / "recording.jsonl"
    path.write_text("mine")
    for number in (2, 3):
        check_recording(path)
        RequestRecorder(path, block_tokens=16).close()
        new = tmp_path / f"recording-{number}.jsonl"
        assert json.loads(new.read_text()) == {"octavo_recording": 1, "block_tokens": 16}
        assert f"is there already and is kept: requests go to {new}" in caplog.text
    assert path.read_text() == "mine"
    assert len([*tmp_path.iterdir()]) == 3, "a check leaves a file"
    with pytest.raises(InputError, match="is no file"):
        RequestRecorder(tmp_path, block_tokens=16)
    with pytest.raises(InputError, match=r"cannot be made \(No such .*\): name a file in a folder"):
        RequestRecorder(tmp_path / "nowhere" / "recording.jsonl", block_tokens=16)


def test_it_ends_when_the_file_has_its_size(tmp_path, caplog):
    """Nobody may remember that a server records."""
    path, most = tmp_path / "recording.jsonl", 4096
    recorder = RequestRecorder(path, block_tokens=16, most_bytes=most)
    for number in range(100):
        recorder.note(number, [number.to_bytes(32)] * 4, {}, num_prompt_tokens=64, num_output_tokens=1)
    recorder.close()
    _, *lines = map(json.loads, path.read_text().splitlines())
    assert 0 < len(lines) < 100
    assert [line["arrival_s"] for line in lines] == [*range(len(lines))]
    assert most - path.stat().st_size < len(json.dumps(lines[-1])) + 1
    assert recorder.num_dropped == 100 - len(lines)
    assert caplog.messages == [f"the recording of requests ends: {path} has its 4 KiB"]
