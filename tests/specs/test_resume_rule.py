"""The resume rule, against what the model reads: token by token, block by block, boundary by boundary."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from octavo.errors import BlockSizeError
from octavo.specs import (
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    GroupAvailability,
    MambaSpec,
    MLAAttentionSpec,
    Resume,
    ResumePoint,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
    longest_resume,
    resume_granularity,
)
from octavo.specs.base import union_of_ranges
from octavo.testing import strategies
from rigs.resume_questions import SMALL_BLOCKS, attention, mamba, questions, thorough

HYBRID_BLOCKS = st.sampled_from([16, 48, 64, 528])


# What the model reads. Nothing here knows of blocks or ranges.


def reads(spec, reader, token):
    """Whether computing the token at position `reader` looks at the cache entry of the token at `token`."""
    match spec:
        case SlidingWindowSpec():
            return reader - spec.sliding_window < token <= reader
        case ChunkedLocalAttentionSpec():
            size = spec.attention_chunk_size
            return reader // size == token // size and token <= reader
        case CircularBufferSpec():  # those that share a record with it
            return reader // spec.tokens_per_state == token // spec.tokens_per_state and token <= reader
        case FullAttentionSpec():
            return token <= reader
    raise TypeError(f"there is no definition for {spec}")


def tokens_read_from(spec, n):
    """The tokens before n that any token from n on looks at."""
    horizon = max(getattr(spec, "sliding_window", 0), getattr(spec, "attention_chunk_size", 0)) + 1
    return {token for token in range(n) for reader in range(n, n + horizon) if reads(spec, reader, token)}


def blocks_read_at(spec, point):
    b = spec.block_size
    match spec:
        case UniformTypeKVCacheSpecs():
            return set().union(*(blocks_read_at(layer, point) for layer in spec.specs.values()))
        case EncoderOnlyAttentionSpec():
            return set()
        case CrossAttentionSpec():
            return {token // b for token in range(point.num_encoder_tokens)}  # every reader looks at all of them
        case MambaSpec():
            return {token // b for token in range(point.num_tokens) if token == point.num_tokens - 1}
    return {token // b for token in tokens_read_from(spec, point.num_tokens)}


@pytest.mark.parametrize("kind", strategies.BUILTIN_KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_needed_blocks_are_those_the_model_reads(kind, data):
    spec = data.draw(strategies.specs(kind, SMALL_BLOCKS))
    for name in ("sliding_window", "attention_chunk_size"):
        if hasattr(spec, name):
            spec = replace(spec, **{name: data.draw(st.integers(1, 40))})
    point = data.draw(strategies.resume_points(max_tokens=80))
    assert blocks_of(spec, point) == blocks_read_at(spec, point)


@given(group=strategies.uniform_groups(SMALL_BLOCKS), point=strategies.resume_points(max_tokens=500))
def test_a_uniform_group_needs_what_its_layers_need(group, point):
    assert blocks_of(group, point) == set().union(*(blocks_of(layer, point) for layer in group.specs.values()))


def blocks_of(spec, point):
    return {block for r in spec.needed_blocks(point) for block in r}


@given(ranges=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=8))
def test_union_of_ranges(ranges):
    ranges = [range(start, start + length) for start, length in ranges]
    union = union_of_ranges(ranges)
    assert [block for r in union for block in r] == sorted(set().union(*ranges))
    assert all(before.stop < after.start for before, after in pairwise(union))


# The longest resume: every boundary from the top, every block of each.


def brute_force(groups, request, step):
    n = (request.num_tokens - 1) // step * step
    if any(g.is_draft for g in groups):
        n = min(n, request.num_tokens // step * step - step)  # the granule that vouches for n is known
    while n > 0 and not all(can_resume(group, request, n, step) for group in groups):
        n -= step
    return max(n, 0)


def can_resume(group, request, n, step):
    spec = group.spec
    needed = blocks_of(spec, request._replace(num_tokens=n))
    if group.is_draft and spec.indexes_decoder_tokens and not spec.holds_checkpoints:
        needed |= set(range(n // spec.block_size, (n + step) // spec.block_size))  # slot p is made from token p + 1
    return needed <= group.blocks.present


def check_against_brute_force(groups, request, step):
    resume = longest_resume(groups, request, granularity=step)
    assert resume.num_tokens == brute_force(groups, request, step)
    next_boundary = resume.num_tokens + step
    if resume.limited_by is not None:
        assert not can_resume(groups[resume.limited_by], request, next_boundary, step)
    else:
        lookahead = step if any(group.is_draft for group in groups) else 0
        assert next_boundary + lookahead >= request.num_tokens


@thorough
@given(question=questions(SMALL_BLOCKS, max_boundaries=12))
def test_longest_resume_is_what_brute_force_finds(question):
    check_against_brute_force(*question)


@thorough
@given(question=questions(HYBRID_BLOCKS, max_boundaries=5))
def test_longest_resume_with_the_block_sizes_of_hybrids(question):
    check_against_brute_force(*question)


@thorough
@given(data=st.data())
def test_windows_that_are_no_multiple_of_a_block(data):
    windows = data.draw(st.lists(st.integers(1, 200), min_size=1, max_size=3))
    specs = [attention(SlidingWindowSpec, 16, sliding_window=size) for size in windows]
    specs.append(attention(FullAttentionSpec, 48))
    num_tokens = data.draw(st.integers(1, 1500))
    groups = [
        GroupAvailability(spec=spec, blocks=data.draw(strategies.block_sets(num_tokens // spec.block_size + 1)))
        for spec in specs
    ]
    check_against_brute_force(groups, ResumePoint(num_tokens=num_tokens), 48)


@given(data=st.data())
def test_checkpoints_limit_the_other_groups(data):
    """Where all else is there, a hybrid resumes at its last checkpoint that is a boundary."""
    num_tokens = data.draw(st.integers(1, 2000))
    checkpoints = data.draw(st.sets(st.integers(0, num_tokens // 16), max_size=8))
    groups = [
        GroupAvailability(spec=attention(FullAttentionSpec, 64), blocks=strategies.BlockSet(frozenset(range(200)))),
        GroupAvailability(spec=mamba(16), blocks=strategies.BlockSet(frozenset(checkpoints))),
    ]
    ends = [(block + 1) * 16 for block in checkpoints]
    usable = [end for end in ends if end % 64 == 0 and end < num_tokens]
    assert longest_resume(groups, ResumePoint(num_tokens=num_tokens)).num_tokens == max(usable, default=0)


# Cases by hand.


def resume(groups, num_tokens, **values):
    groups = [
        GroupAvailability(spec=spec, blocks=strategies.BlockSet(frozenset(present)), is_draft=bool(draft))
        for spec, present, *draft in groups
    ]
    return longest_resume(groups, ResumePoint(num_tokens=num_tokens, **values))


FULL = attention(FullAttentionSpec, 16)
WINDOW = attention(SlidingWindowSpec, 16, sliding_window=33)
CROSS = attention(CrossAttentionSpec, 16)


def test_one_token_is_always_left_to_compute():
    assert resume([(FULL, range(4))], 64) == Resume(num_tokens=48, limited_by=None)
    assert resume([(FULL, range(4))], 65) == Resume(num_tokens=64, limited_by=None)


@pytest.mark.parametrize("num_tokens", [0, 1, 16])
def test_a_short_request_has_no_boundary(num_tokens):
    assert resume([(FULL, range(4))], num_tokens) == Resume(num_tokens=0, limited_by=None)


def test_without_groups_only_the_length_limits():
    assert resume([], 10) == Resume(num_tokens=9, limited_by=None)


def test_a_window_needs_only_its_end():
    # To go on at 160, tokens [128, 160) are read: blocks 8 and 9.
    assert resume([(FULL, range(10)), (WINDOW, {8, 9})], 161) == Resume(num_tokens=160, limited_by=None)


def test_a_lost_window_costs_its_length_not_the_hit():
    # Block 9 of the window is lost; 144 needs blocks 7 and 8.
    assert resume([(FULL, range(10)), (WINDOW, {7, 8})], 161) == Resume(num_tokens=144, limited_by=1)


def test_full_attention_is_limited_by_its_first_hole():
    assert resume([(WINDOW, range(10)), (FULL, {0, 1, 3, 4, 5})], 161) == Resume(num_tokens=32, limited_by=1)


def test_a_draft_group_gives_up_one_granule():
    assert resume([(FULL, range(10)), (FULL, range(10), "draft")], 161) == Resume(num_tokens=144, limited_by=None)
    assert resume([(FULL, range(10)), (FULL, range(8), "draft")], 161) == Resume(num_tokens=112, limited_by=1)


def test_the_others_must_hold_the_lower_point_of_a_draft():
    # 144 needs blocks 7 and 8 of the window; that 8 and 9 are there helps only 160.
    assert resume([(WINDOW, {8, 9}), (FULL, range(10), "draft")], 161).num_tokens < 144


def test_cross_attention_is_all_or_nothing():
    assert resume([(FULL, range(10)), (CROSS, range(3))], 161, num_encoder_tokens=48).num_tokens == 160
    assert resume([(FULL, range(10)), (CROSS, range(2))], 161, num_encoder_tokens=48) == Resume(
        num_tokens=0, limited_by=1
    )


def test_cross_attention_alone_knows_no_boundaries_of_the_decoder():
    assert resume_granularity([CROSS]) == 1
    assert resume([(CROSS, range(3))], 20, num_encoder_tokens=48).num_tokens == 19


def test_granularity_is_the_least_common_multiple():
    specs = [attention(FullAttentionSpec, b) for b in (16, 48, 64, 528)]
    assert resume_granularity(specs) == math.lcm(16, 48, 64, 528) == 2112
    assert resume_granularity([*specs, attention(CrossAttentionSpec, 7)]) == 2112  # it has no decoder boundaries


@pytest.mark.parametrize("granularity", [8, 24, 33])
def test_a_granularity_that_cuts_blocks_is_refused(granularity):
    groups = [GroupAvailability(spec=FULL, blocks=strategies.BlockSet(frozenset()))]
    with pytest.raises(BlockSizeError, match=f"granularity {granularity} is not a positive multiple of 16"):
        longest_resume(groups, ResumePoint(num_tokens=100), granularity=granularity)


@pytest.mark.parametrize("granularity", [0, -16])
def test_a_granularity_below_one_is_refused(granularity):
    groups = [GroupAvailability(spec=FULL, blocks=strategies.BlockSet(frozenset()))]
    with pytest.raises(BlockSizeError, match=f"granularity {granularity}"):
        longest_resume(groups, ResumePoint(num_tokens=100), granularity=granularity)


# What the search costs.


# A kind whose answer has a gap: the first tokens and the last ones.


@dataclass(frozen=True, kw_only=True)
class EndsSpec(MLAAttentionSpec):
    """The first `head` tokens stay visible, and the last `tail`."""

    head: int = 20
    tail: int = 20

    def needed_blocks(self, point):
        n, b = point.num_tokens, self.block_size
        tokens = {*range(min(n, self.head)), *range(max(0, n - self.tail), n)}
        return union_of_ranges(range(token // b, token // b + 1) for token in sorted(tokens))


@given(data=st.data(), step=st.sampled_from([8, 16, 48]), is_draft=st.booleans())
def test_several_ranges(data, step, is_draft):
    spec = EndsSpec(block_size=8, head_size=4, head=data.draw(st.integers(0, 60)), tail=data.draw(st.integers(0, 60)))
    num_tokens = data.draw(st.integers(0, 500))
    groups = [
        GroupAvailability(spec=spec, blocks=data.draw(strategies.block_sets(num_tokens // 8 + 1)), is_draft=is_draft),
        GroupAvailability(spec=FULL.with_block_size(8), blocks=data.draw(strategies.block_sets(num_tokens // 8 + 1))),
    ]
    check_against_brute_force(groups, ResumePoint(num_tokens=num_tokens), step)
