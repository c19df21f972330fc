"""What an engine has measured in bytes is told in tokens."""

import pytest
from hypothesis import given, strategies as st

from octavo.chunks import GroupOffloadConfig
from octavo.offload import MovingLine
from octavo.offload.load_speeds import load_speeds
from octavo.specs import CacheDType, FullAttentionSpec, MambaSpec, ResumePoint, SlidingWindowSpec

HEADS = {"block_size": 16, "num_kv_heads": 1, "head_size": 8}
SPECS = [
    FullAttentionSpec(**HEADS),
    SlidingWindowSpec(sliding_window=100, **HEADS),
    MambaSpec(block_size=16, shapes=((4,),), dtypes=(CacheDType.FLOAT32,)),
]
MIB = 1 << 20


def line(fixed_s, s_per_mib):
    made = MovingLine()
    for mib in (4, 64, 4, 64, 4, 64):
        made.note(mib * MIB, fixed_s + s_per_mib * mib)
    return made


def groups(sizes):
    return [
        GroupOffloadConfig(spec=spec, blocks_per_chunk=1, page_size_bytes=size)
        for spec, size in zip(SPECS, sizes, strict=True)
    ]


@given(
    sizes=st.lists(st.integers(1, 64).map(lambda number: number << 12), min_size=3, max_size=3),
    blocks=st.integers(8, 10_000),
    copy=st.tuples(st.floats(0.0001, 0.1), st.floats(0.001, 1)),
    read=st.tuples(st.floats(0.0001, 0.1), st.floats(0.001, 1)),
)
def test_as_long_as_the_bytes_that_a_resume_needs(sizes, blocks, copy, read):
    held, num_tokens = groups(sizes), 16 * blocks
    to_device, from_disk = line(*copy), line(*read)
    point = ResumePoint(num_tokens, num_tokens)
    num_bytes = sum(len(run) * group.page_size_bytes for group in held for run in group.spec.needed_blocks(point))
    speeds = load_speeds(held, to_device, [("disk", from_disk)], "memory")
    copied_s, read_s = to_device.seconds_for(num_bytes), from_disk.seconds_for(num_bytes)
    assert speeds["memory"].seconds_for(num_tokens) == pytest.approx(copied_s)
    assert speeds["disk"].seconds_for(num_tokens) == pytest.approx(read_s + copied_s)


def test_what_was_not_measured_is_not_told():
    held = groups([4096] * 3)
    assert load_speeds(held, MovingLine(), [("disk", MovingLine())], "memory") == {}
    assert set(load_speeds(held, line(0.01, 0.1), [("disk", MovingLine())], "memory")) == {"memory"}


def test_of_two_tiers_of_one_medium_the_slower_one_is_told():
    held = groups([4096] * 3)
    reads = [("disk", line(0.01, 0.1)), ("disk", line(0.01, 0.5)), ("disk", MovingLine())]
    assert load_speeds(held, MovingLine(), reads, "memory") == load_speeds(held, MovingLine(), reads[1:2], "memory")
