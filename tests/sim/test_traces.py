"""Traces: three forms are read, and what is wrong with one is said by the number of its record."""

import gzip
import json
from pathlib import Path

import pytest

from octavo.errors import InputError
from octavo.sim import read_trace


def write(folder, *records, text=None):
    path = folder / "trace.jsonl"
    path.write_text(text if text is not None else "".join(json.dumps(record) + "\n" for record in records))
    return path


def mooncake(**changes):
    return {"timestamp": 3000, "input_length": 1100, "output_length": 50, "hash_ids": [7, 8, 9]} | changes


def test_ids_of_blocks_become_tokens(tmp_path):
    trace = read_trace(write(tmp_path, mooncake(), mooncake(timestamp=1000, hash_ids=[7, 8, 10])))
    first, second = trace.requests
    assert (first.arrival_s, second.arrival_s) == (1.0, 3.0)
    assert trace.block_tokens == 512
    assert trace.longest == 1150
    assert len(first.prompt()) == 1100
    assert (first.prompt()[:1024] == second.prompt()[:1024]).all()
    assert first.prompt()[1024] != second.prompt()[1024]
    assert len(first.output()) == 0, "the trace does not tell"


def test_the_other_form_has_seconds_and_smaller_blocks(tmp_path):
    record = {"chat_id": 5, "timestamp": 2.5, "input_length": 40, "output_length": 3, "hash_ids": [1, 2, 3]}
    (request,) = read_trace(write(tmp_path, record)).requests
    assert (request.arrival_s, request.block_tokens, request.session) == (2.5, 16, "5")


def test_a_conversation_grows(tmp_path):
    said = [("human", "what is a sheet"), ("gpt", "a superpage"), ("human", "and a page"), ("gpt", "a part of it")]
    record = {"id": "x", "conversations": [{"from": who, "value": what} for who, what in said]}
    first, second = read_trace(write(tmp_path, text=json.dumps([record]))).requests
    assert (first.num_prompt_tokens, first.num_output_tokens) == (5, 3)
    whole = [*first.prompt(), *first.output()]
    assert list(second.prompt()[: len(whole)]) == whole, "an answer is a part of the next prompt"


def test_a_text_with_half_a_character_is_read(tmp_path):
    """JSON may hold a lone surrogate, as a text that was cut has."""
    path = tmp_path / "trace.jsonl"
    path.write_text('{"conversations": [{"from": "human", "value": "\\ud83d"}, {"from": "gpt", "value": "\\ude00"}]}\n')
    (request,) = read_trace(path).requests
    assert request.num_prompt_tokens > 0


def test_conversations_as_people_publish_them(tmp_path):
    """An empty one, one that an assistant begins, turns with more keys, a system prompt, and an answer without text."""
    system = {"from": "system", "value": "be brief"}
    records = [
        {"id": "QWJhYvA_0", "conversations": []},
        {"id": "i6IyJda_0", "conversations": [{"from": "gpt", "value": "hello"}, {"from": "human", "value": "thanks"}]},
        {
            "id": "A5AbcES_0",
            "conversations": [
                system,
                {"from": "human", "value": "eins\n\nzwei", "markdown": None, "text": None},
                {"from": "chatgpt", "value": "", "weight": None},
            ],
        },
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "a b"}]},
                {"role": "assistant", "content": None},
            ]
        },
    ]
    requests = read_trace(write(tmp_path, text=json.dumps(records, indent=2))).requests
    assert [(r.num_prompt_tokens, r.num_output_tokens) for r in requests] == [(6, 1), (3, 1)]
    assert [request.session for request in requests] == ["A5AbcES_0", "4"]


def test_files_as_other_programs_write_them(tmp_path):
    """With a mark of the encoding, Windows' ends of lines, blank lines, and marks of lines inside texts."""
    said = [{"from": "human", "value": "one\u2028two\x85three"}, {"from": "gpt", "value": "four"}]
    line = json.dumps({"id": "x", "conversations": said}, ensure_ascii=False)
    path = tmp_path / "trace.jsonl"
    path.write_bytes(f"\ufeff{line}\r\n\r\n{line}\r\n".encode())
    assert len(read_trace(path).requests) == 2


def test_a_recording_knows_its_blocks(tmp_path):
    header = {"octavo_recording": 1, "block_tokens": 4}
    request = {"arrival_s": 1, "prompt_tokens": 9, "output_tokens": 4, "resumed": {"disk": 4}}
    first, second = read_trace(
        write(tmp_path, header, request | {"blocks": [2**47, 5, 6]}, request | {"blocks": [2**47, 5]})
    ).requests
    assert list(first.prompt()[:8]) == list(second.prompt()[:8])
    assert first.prompt()[8] != second.prompt()[8], "what follows the last full block is nobody else's"
    assert len(first.output()) == 4
    assert first.resumed == {"disk": 4}


def test_a_recording_whose_last_line_is_cut_off_is_read_up_to_there(tmp_path, caplog):
    """The disk was full, or the machine lost power."""
    header = {"octavo_recording": 1, "block_tokens": 4}
    request = {"arrival_s": 1, "prompt_tokens": 9, "output_tokens": 4, "blocks": [2**47, 5, 6]}
    whole = "".join(json.dumps(record) + "\n" for record in (header, request, request))
    for cut in (whole[:-2], whole[:-30], whole + "{"):
        assert len(read_trace(write(tmp_path, text=cut)).requests) == cut.count("\n") - 1
        assert "ends in the middle of a record" in caplog.text
        caplog.clear()
    for wrong in (whole + "{\n", json.dumps(mooncake()) + "\n{"):
        with pytest.raises(InputError, match="is no JSON"):
            read_trace(write(tmp_path, text=wrong))


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([mooncake(), mooncake(input_length=0)], "record 2: input_length must be a whole number from 1 on, not 0"),
        ([mooncake(input_length=99)], "99 tokens are 1 blocks of 512, but there are 3 hash_ids"),
        ([mooncake(timestamp="x")], "timestamp must be a number"),
        ([mooncake(timestamp=10**400)], "timestamp must be a number from 0 to 1e+18, not 1000000"),
        ([mooncake(output_length=-1)], "output_length must be a whole number from 0 on"),
        ([mooncake(hash_ids=[1, -2, 3])], "hash_ids must be a list of numbers"),
        ([mooncake(input_length=1 << 60)], "input_length must be"),
        ([{"text": "hello"}], "the first record has text"),
        ([{"octavo_recording": 2}], "recordings of version 2 are not known"),
        ([{"conversations": [{"from": "human"}]}], "a turn has from and value"),
        ([[1, 2]], "an object is wanted"),
        ([], "has no requests"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, records, complaint):
    with pytest.raises(InputError, match="trace") as refused:
        read_trace(write(tmp_path, *records))
    assert complaint in str(refused.value)


def test_so_is_a_file_that_is_none(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(tmp_path / "nothing.jsonl")
    (tmp_path / "trace.jsonl.gz").write_bytes(gzip.compress(b"{}"))
    with pytest.raises(InputError, match="is compressed"):
        read_trace(tmp_path / "trace.jsonl.gz")
    with pytest.raises(InputError, match="record 2 is no JSON"):
        read_trace(write(tmp_path, text=json.dumps(mooncake()) + "\n{\n"))
    with pytest.raises(InputError, match="record 2 has a number of too many digits"):
        read_trace(write(tmp_path, text=json.dumps(mooncake()) + '\n{"timestamp": ' + "9" * 5000 + "}\n"))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero here")
def test_a_line_without_end_is_refused():
    with pytest.raises(InputError, match="in one line"):
        read_trace(Path("/dev/zero"))


def test_a_list_may_begin_after_empty_lines_and_a_byte_order_mark(tmp_path):
    pretty = json.dumps([mooncake(), mooncake()], indent=1)
    for before in ("", "\n \n", "\ufeff", "\ufeff \n"):
        assert len(read_trace(write(tmp_path, text=before + pretty)).requests) == 2
