"""What tiers say of a request of another engine, from its looks to a line of a log and back."""

import msgspec
import pytest

from octavo.chunks import Departures, GroupOffloadConfig, Leaving, make_offload_key
from octavo.cli import run
from octavo.ids import BlockHash, GroupIdx
from octavo.specs import FullAttentionSpec, SlidingWindowSpec
from octavo.why import MARK, Cause, Looks, MissLog, find_report

FULL = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=8)
WINDOW = SlidingWindowSpec(block_size=4, num_kv_heads=1, head_size=8, sliding_window=13)
GROUPS = [GroupOffloadConfig(spec=spec, blocks_per_chunk=1, page_size_bytes=64) for spec in (FULL, WINDOW)]


def key(number, group=0):
    return make_offload_key(BlockHash(bytes([number]) * 16), GroupIdx(group))


@pytest.fixture
def departures():
    return Departures(lambda: 50.0)


def test_the_first_miss_of_each_group_counts(departures):
    log, looks = MissLog(departures, GROUPS), Looks()
    departures.note([key(3)], "memory", Leaving.EVICTED, rule="lru")
    departures.note([key(9, 1)], "disk", Leaving.UNREADABLE)
    for number, is_there in enumerate([True, True, True, False, False]):
        log.looked(looks, key(number), 4 * number + 4, is_there=is_there)
    log.looked(looks, key(9, 1), 40, is_there=False)
    report = log.report("r", looks, gave_up_waiting=False)
    assert report.found == {"0 full_attention": 3}
    full, window = report.missed
    assert (full.group, full.tokens_until, full.cause, full.left[0].rule) == (0, 16, Cause.EVICTED, "lru")
    assert (window.kind, window.cause) == ("sliding_window", Cause.DAMAGED)


def test_what_came_meanwhile_is_no_miss(departures):
    log, looks = MissLog(departures, GROUPS), Looks()
    log.looked(looks, key(1), 4, is_there=False)
    log.looked(looks, key(1), 4, is_there=True)
    looks.is_over = True
    log.looked(looks, key(2), 8, is_there=False)
    assert log.report("r", looks, gave_up_waiting=False).missed == []


def test_a_cold_start_is_told_where_nothing_was_found(departures):
    log = MissLog(departures, GROUPS, ["/disk: dtype was a and is b"])
    assert log.report("r", Looks(), gave_up_waiting=False).cold_start == "/disk: dtype was a and is b"


def test_the_command_finds_the_line(departures, tmp_path, capsys):
    log, looks = MissLog(departures, GROUPS), Looks()
    log.looked(looks, key(1), 4, is_there=False)
    report = log.report("cmpl-1a-0-9f", looks, gave_up_waiting=True)
    file = tmp_path / "vllm.log"
    lines = ["INFO 11-22 something else", f"INFO 11-22 [manager.py:1] {MARK}{msgspec.json.encode(report).decode()}"]
    file.write_text("\n".join([*lines, f"{MARK}{{", f'{MARK}{{"request_id": "cmpl-1a"}}']) + "\n")
    assert run(["why", "cmpl-1a", "--log", str(file)]) == 0
    told = capsys.readouterr().out
    assert "ends at token 4: never kept." in told
    assert "It waited for chunks" in told
    assert run(["why", "cmpl-1a", "--log", str(file), "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["request_id"] == "cmpl-1a-0-9f"
    assert run(["why", "cmpl-1", "--log", str(file)]) == 2
    assert "has no line about" in capsys.readouterr().err
    assert run(["why", "cmpl-1", "--log", str(tmp_path / "none")]) == 2
    assert find_report(lines, "cmpl-2") is None


def test_an_id_may_have_what_json_escapes(departures):
    name = 'a"b\\c\u00e9'
    line = MARK + msgspec.json.encode(MissLog(departures, GROUPS).report(name, Looks(), gave_up_waiting=False)).decode()
    assert find_report([line], name).request_id == name
