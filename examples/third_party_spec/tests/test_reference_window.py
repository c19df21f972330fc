"""The conformance suite of `octavo.testing`, and what the model reads, token by token."""

import pytest
from hypothesis import given, strategies as st
from octavo_rswa import ReferenceWindowSpec

from octavo.errors import SpecError
from octavo.specs import ResumePoint
from octavo.testing import KVCacheSpecSuite, SingleTypeKVCacheManagerSuite

SPECS = st.builds(
    ReferenceWindowSpec,
    block_size=st.sampled_from([1, 3, 16, 48]),
    num_kv_heads=st.integers(1, 8),
    head_size=st.sampled_from([64, 128]),
    window=st.integers(1, 200),
)


class TestReferenceWindowSpec(KVCacheSpecSuite):
    """The contract of every spec."""

    def specs(self) -> st.SearchStrategy[ReferenceWindowSpec]:
        return SPECS


class TestReferenceWindowManager(SingleTypeKVCacheManagerSuite):
    """The contract of every manager."""

    def specs(self) -> list[ReferenceWindowSpec]:
        return [ReferenceWindowSpec(block_size=4, num_kv_heads=1, head_size=4, window=window) for window in (1, 13)]


@given(spec=SPECS, num_tokens=st.integers(0, 300), num_prompt_tokens=st.integers(0, 300))
def test_needs_the_blocks_that_the_next_token_reads(
    spec: ReferenceWindowSpec, num_tokens: int, num_prompt_tokens: int
) -> None:
    point = ResumePoint(num_tokens=num_tokens, num_prompt_tokens=num_prompt_tokens)
    read = {t for t in range(num_tokens) if t < num_prompt_tokens or t > num_tokens - spec.window}
    needed = {block for r in spec.needed_blocks(point) for block in r}
    assert needed == {token // spec.block_size for token in read}


def test_prompt_and_window_apart() -> None:
    spec = ReferenceWindowSpec(block_size=16, num_kv_heads=1, head_size=64, window=33)
    point = ResumePoint(num_tokens=320, num_prompt_tokens=100)
    assert spec.needed_blocks(point) == (range(7), range(18, 20))


def test_an_impossible_window_is_refused() -> None:
    with pytest.raises(SpecError, match="window"):
        ReferenceWindowSpec(block_size=16, num_kv_heads=1, head_size=64, window=0)
