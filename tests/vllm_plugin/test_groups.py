"""Which blocks of a chunk nobody will ask for, by the resume rule."""

import msgspec
import pytest

from octavo.vllm_plugin.groups import draft_tokens, groups_of_engine, most_missing
from octavo.vllm_plugin.ranks import GroupReport, GroupRule, RankReport

GROUP = GroupReport(group_id=0, rule=GroupRule.WINDOW, reach_tokens=16, tokens_per_block=16, page_bytes=4096)


@pytest.mark.parametrize(
    ("rule", "reach", "most"),
    [
        (GroupRule.WHOLE, 0, 0),
        (GroupRule.STATE, 0, 3),
        (GroupRule.WINDOW, 16, 3),
        (GroupRule.WINDOW, 17, 2),
        (GroupRule.WINDOW, 1000, 0),
        (GroupRule.WINDOW, 1, 3),
        (GroupRule.CHUNK, 32, 2),
    ],
)
def test_first_blocks_that_nobody_asks_for(rule, reach, most):
    group = msgspec.structs.replace(GROUP, rule=rule, reach_tokens=reach)
    assert most_missing([group], 4) == [most]
    assert most_missing([group], 1) == [0]


def test_windows_of_groups_that_end_elsewhere_are_whole():
    whole, state, longer = (
        msgspec.structs.replace(GROUP, group_id=1, rule=rule, tokens_per_block=tokens)
        for rule, tokens in ((GroupRule.WHOLE, 16), (GroupRule.STATE, 32), (GroupRule.WHOLE, 32))
    )
    assert most_missing([GROUP, whole], 3) == [2, 0]
    assert most_missing([GROUP, longer], 3) == [0, 0]
    assert most_missing([GROUP, state], 3) == [0, 2]


def test_beside_a_draft_group_windows_reach_a_chunk_further_back():
    """The rank that has the draft layers tells of them; with pipeline parallelism it is the last one."""
    whole = msgspec.structs.replace(GROUP, group_id=1, rule=GroupRule.WHOLE, reach_tokens=0)
    reports = [
        RankReport(
            rank=rank,
            process=1,
            groups=(GROUP, msgspec.structs.replace(whole, is_draft=bool(rank))),
            identity={},
            models=("m",),
            hash_algorithm="sha256",
            started_ns=1,
        )
        for rank in range(2)
    ]
    assert groups_of_engine(reports[:1], 3)[0].spec.sliding_window == 16
    groups = groups_of_engine(reports, 3)
    assert groups[0].spec.sliding_window == 16 + 3 * 16
    assert draft_tokens(groups) == 3 * 16
