"""Recordings: one line for each request that ended, no text, and nobody waits for the disk."""

import json
import logging

from workloads import families, generate

from octavo.engine import SamplingParams
from octavo.recording import RequestRecorder

family = families("gemma3")


def test_a_line_for_each_request(family, tmp_path):
    path = tmp_path / "recording.jsonl"
    engine = family.engine(recorder=RequestRecorder(path, block_tokens=8))
    shared = list(range(3, 60))
    generate(engine, [shared, [*shared[:40], *range(100, 120)]], 4)
    engine.close()
    header, first, second = map(json.loads, path.read_text().splitlines())
    assert header == {"octavo_recording": 1, "block_tokens": 8}
    assert {first["prompt_tokens"], second["prompt_tokens"]} == {57, 60}
    assert first["output_tokens"] == second["output_tokens"] == 4
    assert first["blocks"][:5] == second["blocks"][:5]
    assert set(first["blocks"][5:]).isdisjoint(second["blocks"][5:])
    assert len(first["blocks"]) == (57 + 3) // 8, "the last token of an answer is not computed"


def test_a_client_that_leaves_after_the_first_token_has_a_line(family, tmp_path):
    """Its prompt was computed, and others resume it. One that leaves before that has none."""
    path = tmp_path / "recording.jsonl"
    engine = family.engine(recorder=RequestRecorder(path, block_tokens=8))
    params = SamplingParams(max_tokens=50, temperature=0, ignore_eos=True)
    for name in ("left", "waits"):
        engine.add_request(name, list(range(3, 61)), params)
        if name == "left":
            while not any(output.token_ids for output in engine.step()):
                pass
            for _ in range(6):
                engine.step()
        engine.abort(name)
    engine.close()
    _, line = map(json.loads, path.read_text().splitlines())
    assert (line["prompt_tokens"], line["output_tokens"]) == (58, 7)
    assert len(line["blocks"]) == (58 + 6) // 8, "the last token of an answer is not computed"


def test_a_full_disk_ends_the_recording_and_nothing_else(family, caplog):
    recorder = RequestRecorder.__new__(RequestRecorder)
    with caplog.at_level(logging.WARNING):
        recorder.__init__(FullDisk(), block_tokens=8)
        engine = family.engine(recorder=recorder)
        (answer,) = generate(engine, [list(range(3, 60))], 4)
        engine.close()
    assert len(answer.tokens) == 4
    assert "the recording of requests ends: No space left" in caplog.text.replace("[Errno 28] ", "")
    assert recorder.num_dropped == 1


class FullDisk:
    """The system's own."""

    def open(self, _mode, *, encoding):
        return open("/dev/full", "w", buffering=1, encoding=encoding)  # noqa: PTH123 - the recorder closes it
