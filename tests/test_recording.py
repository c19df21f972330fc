"""Recordings: a file of its own, a line for each request, and hashes cut to what names a block."""

import json

import pytest

from octavo.errors import InputError
from octavo.recording import RequestRecorder


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


def test_a_file_that_is_there_is_kept(tmp_path):
    path = tmp_path / "recording.jsonl"
    path.write_text("mine")
    with pytest.raises(InputError, match="is there already"):
        RequestRecorder(path, block_tokens=16)
    assert path.read_text() == "mine"
    with pytest.raises(InputError, match="cannot be made"):
        RequestRecorder(tmp_path / "nowhere" / "recording.jsonl", block_tokens=16)
