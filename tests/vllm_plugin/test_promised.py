"""Which of the chunks that vLLM offers are stored."""

import pytest

from octavo.chunks import GroupOffloadConfig
from octavo.specs import (
    CacheDType,
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    MambaSpec,
    ResumePoint,
    SlidingWindowSpec,
)
from octavo.vllm_plugin.promised import PromisedChunks

BLOCK = 16
FULL = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1)
WINDOW = SlidingWindowSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, sliding_window=2 * BLOCK)
STATE = MambaSpec(block_size=BLOCK, shapes=((1,),), dtypes=(CacheDType.FLOAT32,))


def promised(*groups, blocks_per_chunk=1, draft_tokens=0):
    return PromisedChunks(
        [
            GroupOffloadConfig(spec=spec, blocks_per_chunk=blocks_per_chunk, page_size_bytes=page_bytes)
            for spec, page_bytes in groups
        ],
        draft_tokens=draft_tokens,
    )


def stored(chunks, group_idx, num_prompt_tokens, *, known_tokens=0, size=BLOCK):
    """The chunks of a group that are stored, by their number, of all that end within 20 blocks."""
    plan = chunks.plan(num_prompt_tokens, known_tokens)
    ends = range(size, 20 * BLOCK + 1, size)
    return [number for number, end in enumerate(ends) if chunks.is_needed(plan, group_idx, end)]


def test_full_attention_is_stored():
    assert stored(promised((FULL, 1), (WINDOW, 100)), 0, 10 * BLOCK) == list(range(20))


@pytest.mark.parametrize("num_tokens", [10 * BLOCK + 5, 10 * BLOCK + 1])
def test_of_windows_what_the_prompts_end_needs_and_all_after_it(num_tokens):
    assert stored(promised((FULL, 1), (WINDOW, 100)), 1, num_tokens) == [8, 9, *range(10, 20)]


def test_the_same_prompt_again_computes_its_last_token():
    """Then it resumes one token before its end, or one chunk."""
    assert stored(promised((FULL, 1), (WINDOW, 100)), 1, 10 * BLOCK) == [7, 8, 9, *range(10, 20)]


def test_where_others_left_the_prefix_and_at_points_inside_what_is_new():
    heavy = promised((FULL, 1), (WINDOW, 100))
    assert stored(heavy, 1, 10 * BLOCK + 1, known_tokens=4 * BLOCK) == [2, 3, 8, 9, *range(10, 20)]


def test_the_states_that_vllm_takes_are_stored():
    assert stored(promised((FULL, 1), (STATE, 100)), 1, 10 * BLOCK) == list(range(20))


def test_where_windows_weigh_little_all_is_stored():
    assert stored(promised((FULL, 8), (WINDOW, 2)), 1, 10 * BLOCK + 1) == list(range(20))


def test_chunks_of_several_blocks():
    chunks = promised((FULL, 1), (WINDOW, 100), blocks_per_chunk=4)
    assert stored(chunks, 1, 10 * BLOCK + 1, size=4 * BLOCK) == [1, 2, 3, 4]


def test_of_chunked_local_attention_a_whole_chunk_before_the_end():
    """Octavo's rule needs nothing at block 8, where an attention chunk of four blocks begins; vLLM asks for four."""
    local = ChunkedLocalAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, attention_chunk_size=4 * BLOCK)
    assert local.needed_blocks(ResumePoint(8 * BLOCK)) == ()
    assert stored(promised((FULL, 1), (local, 100)), 1, 8 * BLOCK + 1) == [4, 5, 6, 7, *range(8, 20)]


def test_a_window_that_needs_nothing_is_not_stored():
    one = SlidingWindowSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, sliding_window=1)
    assert stored(promised((FULL, 1), (one, 100)), 1, 10 * BLOCK + 1) == list(range(10, 20))


@pytest.mark.parametrize(("block", "window"), [(128, 128), (16, 512), (16, 1024)])
def test_of_a_long_prompt_where_windows_are_five_of_six_at_most_two_fifths_are_stored(block, window):
    """As in Gemma 3."""
    full = FullAttentionSpec(block_size=block, num_kv_heads=1, head_size=1)
    windows = SlidingWindowSpec(block_size=block, num_kv_heads=1, head_size=1, sliding_window=window)
    chunks = promised((full, 1), (windows, 5))
    plan = chunks.plan(4000, 0)
    offered = range(block, 4001, block)
    of_windows = sum(chunks.is_needed(plan, 1, end) for end in offered)
    assert 0 < len(offered) + 5 * of_windows <= 0.4 * 6 * len(offered)


def ends(chunks, group_idx, num_prompt_tokens, *, known_tokens=0):
    """The promised boundaries at which a chunk of this group ends, in blocks, within 20 blocks."""
    plan = chunks.plan(num_prompt_tokens, known_tokens)
    return [block for block in range(1, 21) if chunks.is_promised(plan, group_idx, block * BLOCK)]


def test_what_the_policy_is_told_is_what_windows_are_stored_for():
    chunks = promised((FULL, 1), (WINDOW, 100))
    assert ends(chunks, 0, 10 * BLOCK + 5) == ends(chunks, 1, 10 * BLOCK + 5) == list(range(10, 21))
    assert ends(chunks, 0, 10 * BLOCK + 1, known_tokens=4 * BLOCK) == [4, *range(10, 21)]


def test_a_state_is_a_point_wherever_vllm_takes_it():
    chunks = promised((FULL, 1), (STATE, 100))
    plan = chunks.plan(10 * BLOCK + 1, 0)
    assert chunks.is_promised(plan, 1, 3 * BLOCK)
    assert not chunks.is_promised(plan, 0, 3 * BLOCK)


def test_the_chunks_that_a_resume_needs():
    chunks = promised((FULL, 1), (WINDOW, 100), (FULL, 0))
    assert list(chunks.chunks_of_resume(4 * BLOCK)) == [
        *((0, end * BLOCK) for end in (1, 2, 3, 4)),
        *((1, end * BLOCK) for end in (3, 4)),
    ]
    several = promised((FULL, 1), (WINDOW, 100), blocks_per_chunk=4)
    assert list(several.chunks_of_resume(8 * BLOCK)) == [(0, 4 * BLOCK), (0, 8 * BLOCK), (1, 8 * BLOCK)]
    assert list(several.chunks_of_resume(2 * BLOCK)) == []


@pytest.mark.parametrize(
    ("other", "known_tokens", "branch"),
    [
        (WINDOW, 4 * BLOCK + 5, 3 * BLOCK),  # where the third request resumes that leaves the prefix there
        (STATE, 4 * BLOCK + 5, 3 * BLOCK),
        (WINDOW, 0, 9 * BLOCK),  # where the same prompt resumes
        (STATE, 0, 0),  # vLLM takes that state by itself
        (WINDOW, BLOCK, 0),
    ],
)
def test_with_drafts_vllm_resumes_a_chunk_before_the_end_of_what_is_there(other, known_tokens, branch):
    drafts = promised((FULL, 1), (other, 100), draft_tokens=BLOCK)
    assert drafts.branch(10 * BLOCK + 5, known_tokens) == branch


@pytest.mark.parametrize(
    ("other", "num_blocks", "known_blocks", "inside"),
    [
        (WINDOW, 100, 0, 94),
        (STATE, 100, 0, 94),
        (WINDOW, 100, 60, 94),
        (WINDOW, 100, 80, 0),  # most of it is known
        (WINDOW, 3, 0, 0),
    ],
)
def test_of_a_long_prompt_vllm_keeps_a_point_a_sixteenth_before_its_end(other, num_blocks, known_blocks, inside):
    chunks = promised((FULL, 1), (other, 1))
    assert chunks.inside(num_blocks * BLOCK + 5, known_blocks * BLOCK) == inside * BLOCK


def test_where_windows_weigh_much_vllm_keeps_no_point_inside():
    assert promised((FULL, 1), (WINDOW, 100)).inside(100 * BLOCK + 5, 0) == 0


def test_with_drafts_vllm_keeps_no_point_inside():
    assert promised((FULL, 1), (STATE, 1), draft_tokens=BLOCK).inside(100 * BLOCK + 5, 0) == 0


def test_what_windows_need_at_a_point_inside_is_stored():
    chunks = promised((FULL, 1), (WINDOW, 1))
    plans = [chunks.plan(100 * BLOCK + 5, 0, inside) for inside in (0, 94 * BLOCK)]
    without, with_point = ([end for end in range(89, 98) if chunks.is_needed(p, 1, end * BLOCK)] for p in plans)
    assert without == [95, 96]
    assert with_point == [93, 94, 95, 96]
    assert [chunks.is_promised(plan, 0, 94 * BLOCK) for plan in plans] == [False, True]


def test_the_point_that_a_resume_uses_ends_with_the_drafts_or_with_the_state():
    windows, states = (promised((FULL, 1), (other, 100), draft_tokens=BLOCK) for other in (WINDOW, STATE))
    assert windows.prompt_point(10 * BLOCK + 5) == windows.point_of_resume(9 * BLOCK) == 10 * BLOCK
    assert states.prompt_point(10 * BLOCK + 5) == states.point_of_resume(9 * BLOCK) == 9 * BLOCK
    assert list(states.chunks_of_resume(2 * BLOCK)) == [(0, BLOCK), (0, 2 * BLOCK), (0, 3 * BLOCK), (1, 2 * BLOCK)]
    assert windows.point_of_resume(0) == 0
