"""vLLM's groups where a kernel wants blocks outermost (as DeepSeek V4's): pages of several sizes share a block.

    bucket      layers that can share a block table
    pattern     one layer of each page size. A bucket repeats it, unless its page sizes have unequally many layers
    group       a bucket's part: as many repeats as waste the least, or the whole of a bucket without a pattern

A block is as large as the pages of the largest group. States and circular buffers are cut into groups that fit into the
block of the others, and so are windows where no pattern has several page sizes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

from octavo.planning.vllm_way.block_tables import Group, can_share_block_table
from octavo.specs import CircularBufferSpec, KVCacheSpec, MambaSpec, MLAAttentionSpec, SlidingWindowSpec, ceil_div


def are_packed(layers: Mapping[str, KVCacheSpec]) -> bool:
    """Whether vLLM packs these layers. A latent that stands for several tokens tells the model."""
    return any(isinstance(spec, MLAAttentionSpec) and spec.tokens_per_state > 1 for spec in layers.values())


def packed_groups(layers: Mapping[str, KVCacheSpec]) -> list[Group]:
    """The groups, in vLLM's order."""
    buckets = _buckets(layers)
    repeats = _repeats_per_group(buckets)
    counts = [ceil_div(bucket.num_repeats, repeats) if repeats and bucket.has_pattern else 1 for bucket in buckets]
    return [
        group
        for bucket, count in zip(buckets, _counts_that_fit(buckets, counts, cuts_windows=not repeats), strict=True)
        for group in bucket.cut(count)
    ]


class _Bucket:
    """Layers that can share a block table."""

    def __init__(self, layers: Group) -> None:
        self.layers = layers

    @cached_property
    def by_page(self) -> dict[int, list[str]]:
        """Page size -> its layers."""
        by_page: dict[int, list[str]] = defaultdict(list)
        for name, spec in self.layers.items():
            by_page[spec.page_size_bytes].append(name)
        return dict(by_page)

    @property
    def has_pattern(self) -> bool:
        return len({len(names) for names in self.by_page.values()}) == 1

    @property
    def num_repeats(self) -> int:
        return max(len(names) for names in self.by_page.values())

    def has_only(self, *kinds: type[KVCacheSpec]) -> bool:
        return all(isinstance(spec, kinds) for spec in self.layers.values())

    def cut(self, count: int) -> list[Group]:
        """So many groups, of every `count`-th repeat each."""
        if count == 1:
            return [self.layers]
        repeats = list(zip(*self.by_page.values(), strict=True))
        return [
            {name: self.layers[name] for repeat in repeats[index::count] for name in repeat} for index in range(count)
        ]

    def bytes_of_widest(self, count: int) -> int:
        """Bytes of a block of the largest group, if it is cut into so many."""
        return sum(ceil_div(len(names), count) * page for page, names in self.by_page.items())


def _buckets(layers: Mapping[str, KVCacheSpec]) -> list[_Bucket]:
    """Each layer joins the first bucket that takes it."""
    buckets: list[Group] = []
    homes: dict[KVCacheSpec, Group] = {}
    for name, spec in layers.items():
        if spec not in homes:
            takers = (bucket for bucket in buckets if can_share_block_table({**bucket, name: spec}))
            homes[spec] = next(takers, {})
            if not homes[spec]:
                buckets.append(homes[spec])
        homes[spec][name] = spec
    return [_Bucket(bucket) for bucket in buckets]


def _repeats_per_group(buckets: Sequence[_Bucket]) -> int:
    """Of buckets with a pattern; 0 where no pattern has several page sizes."""
    repeats = [bucket.num_repeats for bucket in buckets if bucket.has_pattern]
    least = max((bucket.num_repeats for bucket in buckets if bucket.has_pattern and len(bucket.by_page) > 1), default=0)
    return _least_padded(repeats, least) if least else 0


def _least_padded(numbers: Sequence[int], least: int) -> int:
    """The length, at least `least`, for which the fewest are missing when each number is cut into groups as long; the
    largest of equal ones."""
    return min(range(least, max(numbers) + 1), key=lambda length: (sum(-n % length for n in numbers), -length))


def _counts_that_fit(buckets: Sequence[_Bucket], counts: Sequence[int], *, cuts_windows: bool) -> list[int]:
    """How many groups each bucket is cut into, so that states and circular buffers, and windows if they are cut too, do
    not widen the block."""
    kinds = (MambaSpec, CircularBufferSpec, *((SlidingWindowSpec,) if cuts_windows else ()))
    are_cut = [bucket.has_pattern and bucket.has_only(*kinds) for bucket in buckets]
    block = max(
        bucket.bytes_of_widest(len(bucket.layers) if is_cut else count)
        for bucket, count, is_cut in zip(buckets, counts, are_cut, strict=True)
    )
    return [
        max(count, ceil_div(len(bucket.layers), max(1, block // max(bucket.by_page)))) if is_cut else count
        for bucket, count, is_cut in zip(buckets, counts, are_cut, strict=True)
    ]
