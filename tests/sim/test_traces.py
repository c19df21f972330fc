"""Traces: four forms are read, and what is wrong with one is said by the number of its record."""

import bz2
import gzip
import io
import json
import lzma
import re
import tarfile
from pathlib import Path

import pytest

from octavo.errors import InputError
from octavo.sim import read_trace


def archive(data):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        member = tarfile.TarInfo("trace.jsonl")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


ARCHIVE = archive(b"{}\n")


def write(folder, *records, text=None):
    path = folder / "trace.jsonl"
    path.write_text(text if text is not None else "".join(json.dumps(record) + "\n" for record in records))
    return path


def mooncake(**changes):
    return {"timestamp": 3000, "input_length": 1100, "output_length": 50, "hash_ids": [7, 8, 9]} | changes


def without(key):
    return {name: value for name, value in mooncake().items() if name != key}


def chat(*turns, **others):
    return {"conversations": [{"from": who, "value": text} for who, text in turns]} | others


def session(*requests, **others):
    """An agent's session; a request as its time and ids, or a time and a list of those of a subagent."""
    made = [asked(since, ids) if isinstance(ids[0], int) else subagent(since, ids) for since, ids in requests]
    return {"id": "s", "block_size": 4, "hash_id_scope": "local", "requests": made} | others


def asked(since, ids, **others):
    return {"t": since, "type": "n", "in": 4 * len(ids) + 1, "out": 3, "hash_ids": ids} | others


def subagent(since, requests):
    return {"t": since, "type": "subagent", "requests": [asked(later, ids) for later, ids in requests]}


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


def test_blocks_may_be_longer_than_any_memory(tmp_path):
    path = write(tmp_path, mooncake(input_length=5, hash_ids=[7]))
    (request,) = read_trace(path, block_tokens=1 << 40).requests
    assert request.prompt().tolist() == [1] * 5


def test_the_other_form_has_seconds_and_smaller_blocks(tmp_path):
    record = {"chat_id": 5, "timestamp": 2.5, "input_length": 40, "output_length": 3, "hash_ids": [1, 2, 3]}
    (request,) = read_trace(write(tmp_path, record)).requests
    assert (request.arrival_s, request.block_tokens, request.session) == (2.5, 16, "5")


def test_the_other_form_names_the_request_that_one_goes_on_with(tmp_path):
    """Two conversations, and one that began before the trace did."""
    asked = {"timestamp": 1, "input_length": 10, "output_length": 3, "hash_ids": [1]}
    names = [(55, -1), (56, -1), (159, 55), (160, 159), (170, 3), (171, 3), (172, None)]
    records = [asked | {"chat_id": own, "parent_chat_id": parent} for own, parent in names]
    trace = read_trace(write(tmp_path, *records))
    assert [request.session for request in trace.requests] == ["55", "56", "55", "55", "3", "3", "172"]


def test_conversations_without_a_name_are_not_one(tmp_path):
    said = ("human", "hi"), ("gpt", "ho")
    trace = read_trace(write(tmp_path, chat(*said, id=None), chat(*said), chat(*said, id="x")))
    assert [request.session for request in trace.requests] == ["1", "2", "x"]


def test_a_conversation_grows(tmp_path):
    said = [("human", "what is a sheet"), ("gpt", "a superpage"), ("human", "and a page"), ("gpt", "a part of it")]
    record = {"id": "x", "conversations": [{"from": who, "value": what} for who, what in said]}
    first, second = read_trace(write(tmp_path, text=json.dumps([record]))).requests
    assert (first.num_prompt_tokens, first.num_output_tokens) == (5, 3)
    whole = [*first.prompt(), *first.output()]
    assert list(second.prompt()[: len(whole)]) == whole, "an answer is a part of the next prompt"


def test_texts_without_spaces_are_as_long_as_they_look(tmp_path):
    """One character of Chinese, Japanese, Thai or an emoji is about a token; words of other scripts are."""
    for text, tokens in (
        ("请给我讲一个故事。谢谢", 11),
        ("物語をください。", 8),
        ("สวัสดี", 6),
        ("\U0001f600\U0001f680 ok", 3),
        ("안녕 세상", 2),
        ("use Qwen模型 v3", 5),
    ):
        (request,) = read_trace(write(tmp_path, chat(("human", text), ("gpt", "so")))).requests
        assert request.num_prompt_tokens == 1 + tokens, text


def test_speakers_may_be_written_large(tmp_path):
    (request,) = read_trace(write(tmp_path, chat(("Human", "hi there"), ("GPT", "ho")))).requests
    assert request.num_prompt_tokens == 3


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


def test_conversations_of_lmsys_and_wildchat(tmp_path):
    said = [{"content": "one two", "role": "user"}, {"content": "three", "role": "assistant"}]
    record = {"conversation_id": "33f8", "model": "vicuna", "conversation": said, "turn": 1, "language": "English"}
    (request,) = read_trace(write(tmp_path, record)).requests
    assert (request.num_prompt_tokens, request.num_output_tokens, request.session) == (3, 2, "33f8")


@pytest.mark.parametrize(
    "table",
    [
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,API log\n",
    ],
    ids=["azure", "burstgpt"],
)
def test_a_table_of_lengths_is_refused_with_the_reason(tmp_path, table):
    with pytest.raises(InputError, match=r"looks like a table.* do not tell what requests share"):
        read_trace(write(tmp_path, text=table))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_refused_with_the_remedy(tmp_path, encoding):
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(mooncake()), encoding=encoding)
    with pytest.raises(InputError, match=r"is UTF-16.*save it as UTF-8"):
        read_trace(path)


def test_files_as_other_programs_write_them(tmp_path):
    """With a mark of the encoding, Windows' ends of lines, blank lines, and marks of lines inside texts."""
    said = [{"from": "human", "value": "one\u2028two\x85three"}, {"from": "gpt", "value": "four"}]
    line = json.dumps({"id": "x", "conversations": said}, ensure_ascii=False)
    path = tmp_path / "trace.jsonl"
    path.write_bytes(f"\ufeff{line}\r\n\r\n{line}\r\n".encode())
    assert len(read_trace(path).requests) == 2


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files_are_read(tmp_path, compress):
    """Whatever they are called; and in a folder those with the endings that compression leaves."""
    lines = "".join(json.dumps(mooncake(timestamp=stamp)) + "\n" for stamp in (1, 2))
    path = tmp_path / "trace.json.gz"
    path.write_bytes(compress(lines.encode()))
    assert len(read_trace(path).requests) == 2
    assert len(read_trace(tmp_path).requests) == 2
    path.write_bytes(compress(json.dumps([mooncake()], indent=1).encode()))
    assert len(read_trace(path).requests) == 1


def test_dynamos_words_for_lengths_and_times(tmp_path):
    """And a session, which Dynamo and AIPerf name in such traces."""
    record = {"session_id": "s", "created_time": 2500, "input_tokens": 600, "output_tokens": 5, "hash_ids": [1, 2]}
    (request,) = read_trace(write(tmp_path, record)).requests
    assert (request.arrival_s, request.num_prompt_tokens, request.num_output_tokens) == (2.5, 600, 5)
    assert request.session == "s"


@pytest.mark.parametrize("delay", ["delay", "delay_ms"])
def test_a_request_may_come_after_the_end_of_the_one_before_in_its_session(tmp_path, delay):
    """Dynamo's and AIPerf's conversations. `arrival_s` is when it could come if answers took no time."""
    turn = without("timestamp")
    turns = [mooncake(session_id="a"), mooncake(session_id="b", timestamp=3200)]
    turns += [turn | {"session_id": "a", delay: 250}, turn | {"session_id": "a", delay: 100}]
    first, second, third, other = (read_trace(write(tmp_path, *turns)).requests[index] for index in (0, 2, 3, 1))
    assert [(asked.follows, asked.delay_s) for asked in (first, other)] == [("", 0), ("", 0)]
    assert (second.follows, second.delay_s, second.arrival_s) == (first.place, 0.25, 3.25)
    assert (third.follows, third.delay_s, third.arrival_s) == (second.place, 0.1, pytest.approx(3.35))


def test_null_is_no_time_and_no_delay(tmp_path):
    first, second = mooncake(session_id="a", delay=None), mooncake(session_id="a", timestamp=None, delay=250)
    assert [asked.delay_s for asked in read_trace(write(tmp_path, first, second)).requests] == [0, 0.25]
    with pytest.raises(InputError, match=r"line 1: timestamp must be a number from 0 to .*, not null"):
        read_trace(write(tmp_path, mooncake(timestamp=None)))


def test_a_delay_after_nobodys_end_is_refused(tmp_path):
    for session in ({}, {"session_id": "b"}):
        with pytest.raises(
            InputError, match="line 2: timestamp is missing: a delay counts from the end of the request"
        ):
            read_trace(write(tmp_path, mooncake(session_id="a"), without("timestamp") | {"delay": 250} | session))


def test_a_wait_for_others_is_refused_with_the_reason(tmp_path):
    with pytest.raises(InputError, match=r"line 2: timestamp is missing\. It tells which others it waits for"):
        read_trace(write(tmp_path, mooncake(), without("timestamp") | {"wait_for": [1]}))


@pytest.mark.parametrize(
    ("stamps", "seconds"),
    [
        ((0, 1500), (0, 1.5)),
        ((1_700_000_000_000, 1_700_000_001_500), (1_700_000_000, 1_700_000_001.5)),
        ((1_700_000_001.5, 1_700_000_000), (1_700_000_000, 1_700_000_001.5)),
        (("2023-11-14T22:13:20Z", "2023-11-15 00:13:21.5+02:00"), (1_700_000_000, 1_700_000_001.5)),
        (("2023-11-14 22:13:20", "2023-11-14 22:13:21.5000000"), (1_700_000_000, 1_700_000_001.5)),
    ],
    ids=["milliseconds", "milliseconds-since-1970", "seconds-since-1970", "dates", "dates-without-a-zone"],
)
def test_times_as_people_have_them(tmp_path, stamps, seconds):
    requests = read_trace(write(tmp_path, *(mooncake(timestamp=stamp) for stamp in stamps))).requests
    assert tuple(request.arrival_s for request in requests) == pytest.approx(seconds, abs=1e-6)


def test_a_short_last_block_may_have_no_id(tmp_path):
    """As where only full blocks are hashed. It is nobody else's."""
    first, second = read_trace(write(tmp_path, *[mooncake(hash_ids=[7, 8])] * 2)).requests
    assert (first.prompt()[:1024] == second.prompt()[:1024]).all()
    assert first.prompt()[1024] != second.prompt()[1024]


def test_a_session_is_an_agent_with_its_subagents(tmp_path):
    trace = read_trace(write(tmp_path, session((0.5, [1, 2]), (2, [(0, [1, 7]), (3, [1, 7, 8])]), (4, [1, 2, 3]))))
    assert trace.block_tokens == 4
    assert [(r.arrival_s, r.num_prompt_tokens, r.num_output_tokens, r.session) for r in trace.requests] == [
        (0.5, 9, 3, "s"),
        (2, 9, 3, "s"),
        (4, 13, 3, "s"),
        (5, 13, 3, "s"),
    ]
    first, below, second, _ = [list(request.prompt()) for request in trace.requests]
    assert first[:8] == second[:8]
    assert first[:4] == below[:4]
    assert first[4] != below[4]
    assert len({first[8], below[8], second[12]}) == 3, "a short last block is nobody else's"


def test_times_of_subagents_may_be_the_sessions(tmp_path):
    """SemiAnalysis's traces tell them so: then none is before its subagent's. Others are since its beginning."""
    told = [(0, [1]), (100, [(100, [1, 7]), (110, [1, 7, 8])]), (150, [1, 2])]
    since = [(0, [1]), (100, [(0, [1, 7]), (10, [1, 7, 8])]), (150, [1, 2])]
    mixed = [*since, (160, [(160, [5])])]
    for requests, times in ((told, [0, 100, 110, 150]), (since, [0, 100, 110, 150]), (mixed, [0, 100, 110, 150, 320])):
        found = read_trace(write(tmp_path, session(*requests))).requests
        assert [request.arrival_s for request in found] == times


def test_ids_are_a_sessions_own_unless_it_says_otherwise(tmp_path):
    for scope, are_equal in (("local", False), ("global", True)):
        said = session((0, [1, 2]), hash_id_scope=scope)
        first, second = read_trace(write(tmp_path, said, said)).requests
        assert (first.prompt()[:8] == second.prompt()[:8]).all() == are_equal
        assert first.prompt()[8] != second.prompt()[8]


def test_a_last_block_that_is_short_may_have_an_id(tmp_path):
    said = session((0, [1]), (1, [1]))
    said["requests"] = [request | {"in": 3} for request in said["requests"]]
    first, second = read_trace(write(tmp_path, said)).requests
    assert list(first.prompt()) == list(second.prompt())


def test_the_next_session_begins_when_one_ends(tmp_path):
    lengths = (9, 4, 1, 7)
    path = write(tmp_path, *(session((0, [1]), (length, [1, 2]), id=str(length)) for length in lengths))
    for open_sessions, begins in ((1, (0, 9, 13, 14)), (2, (0, 0, 4, 5)), (3, (0, 0, 0, 1)), (None, (0, 0, 0, 0))):
        requests = read_trace(path, open_sessions=open_sessions).requests
        begun = {request.session: request.arrival_s for request in reversed(requests)}
        assert tuple(begun[str(length)] for length in lengths) == begins


def test_a_folder_is_one_trace(tmp_path):
    (tmp_path / "b.json").write_text(json.dumps(session((1, [1])), indent=2))
    (tmp_path / "a.jsonl").write_text(json.dumps(session((2, [1]))) + "\n")
    (tmp_path / "notes.txt").write_text("none")
    requests = read_trace(tmp_path, open_sessions=1).requests
    assert [request.place for request in requests] == ["a.jsonl, line 1, request 1", "b.json, line 1, request 1"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"is a folder without files that end in \.json or \.jsonl"):
        read_trace(tmp_path / "empty")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"id": "x", "requ', "', b.json, line 1: it is no JSON: Unterminated string"),
        (b"[1]", "', b.json, record 1: an object is wanted, not 1"),
        (b"PAR1", "' has b.json, which is Parquet: "),
        (gzip.compress(b"{}")[:-4], "' has b.json, which is compressed, and damaged or cut off: "),
        (None, "' has b.json, which cannot be read: "),
    ],
)
def test_of_a_folder_the_file_that_is_wrong_is_named(tmp_path, content, told):
    (tmp_path / "a.jsonl").write_text(json.dumps(session((2, [1]))) + "\n")
    if content is None:
        (tmp_path / "b.json").mkdir()
    else:
        (tmp_path / "b.json").write_bytes(content)
    with pytest.raises(InputError, match=re.escape(told)):
        read_trace(tmp_path)


def test_requests_that_are_too_long_are_refused(tmp_path):
    path = write(tmp_path, mooncake(), mooncake(input_length=1101), mooncake(output_length=51))
    trace = read_trace(path, max_model_len=1150)
    assert (len(trace.requests), trace.num_refused, trace.longest) == (1, 2, 1150)
    with pytest.raises(InputError, match=r"has no request that short: the shortest has 1,150 tokens \(--max-"):
        read_trace(path, max_model_len=1149)


def test_only_sessions_can_be_open(tmp_path):
    with pytest.raises(InputError, match=r"has no sessions, but requests with times of their own \(--sessions\)"):
        read_trace(write(tmp_path, mooncake()), open_sessions=4)


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
        with pytest.raises(InputError, match="it is no JSON"):
            read_trace(write(tmp_path, text=wrong))


def nested(depth):
    requests = [asked(0, [1])]
    for _ in range(depth):
        requests = [{"t": 0, "requests": requests}]
    return session((0, [1]), requests=requests)


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([mooncake(), mooncake(input_length=0)], "line 2: input_length must be a whole number from 1 to 1,073,741,824"),
        (
            [mooncake(input_length=99)],
            "takes 1 block of 512, but hash_ids has 3; if the trace has blocks of another size, such as 32, say",
        ),
        (
            [mooncake(hash_ids=[])],
            "but hash_ids has 0; if the trace has blocks of another size, say so (--trace-block)",
        ),
        ([mooncake(input_length=600)], "input_length of 600 takes 2 blocks of 512, but hash_ids has 3"),
        (
            [mooncake(timestamp="x")],
            "timestamp must be a number from 0 to 1e+13, or a date and time such as 2026-11-30T09:05:00Z, not 'x'",
        ),
        (
            [mooncake(timestamp=10**400)],
            "timestamp must be a number from 0 to 1e+13, or a date and time such as 2026-11-30T09:05:00Z, not 1000000",
        ),
        (
            [mooncake(timestamp=1_764_374_400_000_000)],
            "to 1e+13, or a date and time such as 2026-11-30T09:05:00Z, not 1764374400000000",
        ),
        ([without("timestamp")], "timestamp is missing; it must be a number"),
        ([without("output_length")], "output_length is missing; it must be a whole number from 0"),
        ([mooncake(), without("hash_ids")], "line 2: hash_ids is missing; it must be a list"),
        ([mooncake(output_length=-1)], "output_length must be a whole number from 0 to"),
        ([mooncake(hash_ids=[1, -2, 3])], "hash_ids must be a list of whole numbers from 0 on, and has -2"),
        ([mooncake(hash_ids=[1, True, 3])], "and has true"),
        ([mooncake(hash_ids=7)], "hash_ids must be a list of whole numbers from 0 on, not 7"),
        ([mooncake(input_length=1 << 60)], "input_length must be"),
        ([session((0, [1]), requests=5)], "line 1: requests must be a list, not 5"),
        ([session((0, [1])), session((0, [1]), block_size=8)], "line 2: the session has blocks of 8 tokens, and the"),
        ([session((0, [1]), block_size=0)], "block_size must be a whole number from 1"),
        ([session((0, [1]), requests=[asked(0, [1]), 7])], "line 1, request 2: an object is wanted, not 7"),
        (
            [session((0, [1]), requests=[asked(0, [1, 2], **{"in": 20})])],
            "an input of 20 tokens takes 5 blocks of 4, but hash_ids has 2",
        ),
        ([session((0, [1]), requests=[asked(-1, [1])])], "line 1, request 1: t must be a number from 0"),
        ([nested(40)], "subagents are nested more than 16 deep"),
        ([session((0, [1])), mooncake()], "line 2: block_size is missing"),
        ([{"octavo_recording": 1, "block_tokens": 4}] * 2, "line 2: another recording begins; each must be replayed"),
        ([{"text": "hello"}], "line 1: it has text; a trace has hash_ids"),
        ([{"octavo_recording": 2}], "recordings of version 2 are not known"),
        ([chat(("human", "hi"), ("gpt", "ho")), {"conversations": [{"from": "human"}]}], "line 2: turn 1 of conver"),
        ([{"messages": "hello"}], "messages must be a list of turns, not 'hello'"),
        ([chat(("human", "hi"), ("robot", "ho"))], "one is a turn of gpt, assistant, model, chatgpt, bing, bard, bot"),
        ([chat(("human", "hi"), ("robot", "ho"))], "and there are 'human', 'robot'"),
        ([{"messages": []}], "and there are no turns"),
        ([[1, 2]], "record 1: an object is wanted, not 1"),
        ([[mooncake(), None]], "record 2: an object is wanted, not null"),
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


@pytest.mark.parametrize(
    ("begin", "advice"),
    [
        (b"\x28\xb5\x2f\xfd\x20\x03", "unzstd"),
        (b"PK\x03\x04\x14", "unzip"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:41ac\nsize 27901454\n", "git lfs pull"),
        (b"PAR1\x15\x04", r"is Parquet: pandas.read_parquet\(FILE\).to_json"),
        (ARCHIVE, "is an archive: give the file that tar takes out of it"),
        (gzip.compress(ARCHIVE), "is an archive"),
        (b"prompt_tokens\toutput_tokens\n12\t3\n", "looks like a table"),
        (gzip.compress(b"{}" * 99)[:-9], "is compressed, and damaged or cut off: "),
        (lzma.compress(b"{}")[:20] + b"????", "is compressed, and damaged or cut off: "),
    ],
    ids=["zstd", "zip", "git-lfs", "parquet", "tar", "tar-gz", "tabs", "gzip-cut-off", "xz-damaged"],
)
def test_a_file_that_is_not_yet_the_trace_says_how_to_get_it(tmp_path, begin, advice):
    (tmp_path / "trace.jsonl").write_bytes(begin)
    with pytest.raises(InputError, match=advice):
        read_trace(tmp_path / "trace.jsonl")


def test_the_line_and_the_column_are_those_of_the_file(tmp_path):
    """Empty lines are lines too, and JSON's own numbers begin anew in each."""
    whole = json.dumps(mooncake())
    for wrong, complaint in (
        (f"{whole}\n\n\n{{\n", "line 4: it is no JSON: .* at column 2"),
        (f"{whole}\n\n{whole} and more\n", f"line 3: it is no JSON: Extra data at column {len(whole) + 2}$"),
        (f"\n[\n {whole},\n {whole} x\n]", f"line 4: it is no JSON: .* at column {len(whole) + 3}$"),
        (f'{whole}\n{{"timestamp": {"9" * 5000}}}\n', "line 2: it has a number of too many digits"),
        (f"{whole}\n\n{json.dumps(mooncake(timestamp=-1))}\n", "line 3: timestamp must be a number from 0"),
    ):
        with pytest.raises(InputError, match=complaint):
            read_trace(write(tmp_path, text=wrong))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero here")
def test_a_line_without_end_is_refused():
    with pytest.raises(InputError, match="in one line"):
        read_trace(Path("/dev/zero"))


def test_a_list_may_begin_after_empty_lines_and_a_byte_order_mark(tmp_path):
    pretty = json.dumps([mooncake(), mooncake()], indent=1)
    for before in ("", "\n \n", "\ufeff", "\ufeff \n"):
        assert len(read_trace(write(tmp_path, text=before + pretty)).requests) == 2
