"""The contract of a `KVCacheSpec`, as a suite that its test subclasses:

class TestReferenceWindowSpec(KVCacheSpecSuite):
    def specs(self):
        return st.builds(ReferenceWindowSpec, block_size=st.integers(1, 64), ...)
"""

from collections.abc import Sequence
from dataclasses import FrozenInstanceError, fields, replace
from inspect import isabstract
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.strategies import SearchStrategy

from octavo.errors import SpecError
from octavo.specs import (
    KVCacheSpec,
    KVCacheSpecRegistry,
    RequestLimits,
    ResumePoint,
    SingleTypeKVCacheManager,
    ceil_div,
)
from octavo.testing import strategies

_shared = settings(suppress_health_check=[HealthCheck.differing_executors], deadline=None)
"""Subclasses run the same test; each asks its own `specs()`, so none sees another's examples. A busy machine fails
none."""


class KVCacheSpecSuite:
    """The contract of a spec. A subclass names the specs; it may override a test with a reason."""

    max_tokens = 20_000
    """The tokens of the longest request that is tried."""

    def specs(self) -> SearchStrategy[KVCacheSpec] | Sequence[KVCacheSpec]:
        """The specs to check: a strategy, or a few."""
        raise TypeError(f"{type(self).__name__} must override specs()")

    @_shared
    @given(data=st.data())
    def test_is_a_frozen_value(self, data: st.DataObject) -> None:
        spec = self._draw_spec(data)
        twin = replace(spec)
        assert twin is not spec
        assert twin == spec
        assert hash(twin) == hash(spec)
        assert replace(spec, page_size_padded=spec.page_size_bytes + 1) != spec
        for field in fields(spec):
            with pytest.raises(FrozenInstanceError):
                setattr(spec, field.name, getattr(spec, field.name))

    @_shared
    @given(data=st.data())
    def test_a_page_holds_its_bytes(self, data: st.DataObject) -> None:
        spec = replace(self._draw_spec(data), page_size_padded=None)
        unpadded = spec.unpadded_page_size_bytes
        assert unpadded > 0
        assert spec.page_size_bytes == unpadded
        assert spec.alignment_bytes > 0
        assert spec.reserved_blocks >= 0
        padding = data.draw(st.integers(0, 10_000))
        assert replace(spec, page_size_padded=unpadded + padding).page_size_bytes == unpadded + padding
        with pytest.raises(SpecError, match="page_size_padded"):
            replace(spec, page_size_padded=data.draw(st.integers(0, unpadded - 1)))

    @_shared
    @given(data=st.data())
    def test_needed_blocks_are_ascending_and_disjoint(self, data: st.DataObject) -> None:
        spec = self._draw_spec(data)
        ranges = spec.needed_blocks(self._draw_point(data))
        assert all(r and r.step == 1 and r.start >= 0 for r in ranges)
        assert all(before.stop <= after.start for before, after in pairwise(ranges))

    @_shared
    @given(data=st.data())
    def test_needs_only_what_was_computed(self, data: st.DataObject) -> None:
        spec, point = self._draw_spec(data), self._draw_point(data)
        if spec.indexes_decoder_tokens:
            computed = ceil_div(point.num_tokens, spec.block_size)
            assert all(r.stop <= computed for r in spec.needed_blocks(point))
            assert spec.needed_blocks(point._replace(num_tokens=0)) == ()

    @_shared
    @given(data=st.data())
    def test_obeys_the_law_of_resumption(self, data: st.DataObject) -> None:
        """A block that was complete at n' and is needed at n > n' is needed at n' too."""
        spec, point = self._draw_spec(data), self._draw_point(data)
        earlier = point._replace(num_tokens=data.draw(self._earlier_than(point, spec.block_size)))
        if spec.indexes_decoder_tokens:
            complete = range(earlier.num_tokens // spec.block_size)
            lost = (_blocks(spec, point) & set(complete)) - _blocks(spec, earlier)
            assert not lost, f"blocks {sorted(lost)} are needed at {point} but not at {earlier.num_tokens} tokens"

    @_shared
    @given(data=st.data())
    def test_needs_its_last_block_where_it_says_so(self, data: st.DataObject) -> None:
        spec, point = self._draw_spec(data), self._draw_point(data)
        if spec.always_needs_last_block and point.num_tokens:
            assert ceil_div(point.num_tokens, spec.block_size) - 1 in _blocks(spec, point)

    @_shared
    @given(data=st.data())
    def test_a_request_never_needs_more_than_its_most(self, data: st.DataObject) -> None:
        spec = self._draw_spec(data)
        limits = data.draw(strategies.request_limits(self.max_tokens))
        point = data.draw(_points_within(limits))
        most = spec.max_blocks_per_request(limits)
        assert most >= 0
        if not spec.holds_checkpoints:
            assert sum(map(len, spec.needed_blocks(point))) <= most

    @_shared
    @given(data=st.data())
    def test_another_block_size_and_back(self, data: st.DataObject) -> None:
        spec = self._draw_spec(data)
        factor = data.draw(st.integers(1, 5))
        other = spec.with_block_size(spec.block_size * factor)
        assert type(other) is type(spec)
        assert other.block_size == spec.block_size * factor
        assert other.page_size_padded is None
        assert other.with_block_size(spec.block_size) == spec.with_block_size(spec.block_size)

    @_shared
    @given(data=st.data())
    def test_is_registered(self, data: st.DataObject) -> None:
        spec = self._draw_spec(data)
        KVCacheSpecRegistry.check_kv_cache_spec_registry({"layer": spec})
        manager_class = KVCacheSpecRegistry.get_manager_class(spec)
        assert issubclass(manager_class, SingleTypeKVCacheManager)
        assert not isabstract(manager_class)

    @_shared
    @given(data=st.data())
    def test_is_uniform_with_itself(self, data: st.DataObject) -> None:
        spec = self._draw_spec(data)
        assert isinstance(spec, KVCacheSpecRegistry.get_uniform_type_base_spec(spec))
        assert spec.is_uniform_with_collection({"one": spec, "other": replace(spec)})

    def _draw_spec(self, data: st.DataObject) -> KVCacheSpec:
        specs = self.specs()
        return data.draw(specs if isinstance(specs, SearchStrategy) else st.sampled_from(specs), label="spec")

    def _draw_point(self, data: st.DataObject) -> ResumePoint:
        return data.draw(strategies.resume_points(self.max_tokens), label="point")

    @staticmethod
    def _earlier_than(point: ResumePoint, block_size: int) -> SearchStrategy[int]:
        """Boundaries of blocks and what lies between them, near and far."""
        n = point.num_tokens
        return st.one_of(
            st.integers(0, n // block_size).map(lambda block: block * block_size),
            st.integers(max(0, n - 2 * block_size), n),
            st.integers(0, n),
        )


def _blocks(spec: KVCacheSpec, point: ResumePoint) -> set[int]:
    return {block for r in spec.needed_blocks(point) for block in r}


def _points_within(limits: RequestLimits) -> SearchStrategy[ResumePoint]:
    return st.builds(
        ResumePoint,
        num_tokens=st.integers(0, limits.max_model_len),
        num_prompt_tokens=st.integers(0, limits.max_model_len),
        num_encoder_tokens=st.integers(0, limits.max_encoder_tokens),
    )
