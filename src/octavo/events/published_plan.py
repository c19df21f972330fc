"""`PublishedPlan`: the part of a publisher's plan that others need to apply the resume rule to its events."""

from collections.abc import Callable, Sequence

import msgspec

from octavo.errors import InputError
from octavo.specs import (
    CacheDType,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)


class PublishedGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One group: its kind and the numbers that its resume rule needs."""

    kind: str
    block_size: int
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    is_draft: bool = False

    def spec(self) -> KVCacheSpec:
        """A spec with this group's resume rule. Its sizes in bytes are not the publisher's."""
        try:
            make = _SPECS[self.kind]
        except KeyError:
            known = ", ".join(_SPECS)
            raise InputError(
                f"the resume rule of kind {self.kind!r} is not known here: known are {known}. "
                "Make a GroupView of specs instead of a plan."
            ) from None
        return make(self)


class PublishedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of a publisher, in the order of their `group_idx`."""

    hash_block_size: int
    groups: list[PublishedGroup]

    @classmethod
    def of_specs(
        cls, specs: Sequence[KVCacheSpec], *, hash_block_size: int, draft_groups: Sequence[int] = ()
    ) -> "PublishedPlan":
        """The plan of groups with these specs."""
        layers = [spec.first if isinstance(spec, UniformTypeKVCacheSpecs) else spec for spec in specs]
        groups = [
            PublishedGroup(
                kind=spec.kind,
                block_size=spec.block_size,
                sliding_window=getattr(spec, "sliding_window", None),
                attention_chunk_size=getattr(spec, "attention_chunk_size", None),
                is_draft=index in draft_groups,
            )
            for index, spec in enumerate(layers)
        ]
        return cls(hash_block_size=hash_block_size, groups=groups)


def _full(group: PublishedGroup) -> KVCacheSpec:
    return FullAttentionSpec(block_size=group.block_size, num_kv_heads=1, head_size=1)


def _window(group: PublishedGroup) -> KVCacheSpec:
    if group.sliding_window is None:
        raise InputError(f"a group of kind {group.kind!r} needs sliding_window")
    return SlidingWindowSpec(
        block_size=group.block_size, num_kv_heads=1, head_size=1, sliding_window=group.sliding_window
    )


def _chunk(group: PublishedGroup) -> KVCacheSpec:
    if group.attention_chunk_size is None:
        raise InputError(f"a group of kind {group.kind!r} needs attention_chunk_size")
    return ChunkedLocalAttentionSpec(
        block_size=group.block_size, num_kv_heads=1, head_size=1, attention_chunk_size=group.attention_chunk_size
    )


def _state(group: PublishedGroup) -> KVCacheSpec:
    return MambaSpec(block_size=group.block_size, shapes=((1,),), dtypes=(CacheDType.FLOAT32,))


def _cross(group: PublishedGroup) -> KVCacheSpec:
    return CrossAttentionSpec(block_size=group.block_size, num_kv_heads=1, head_size=1)


def _encoder_only(group: PublishedGroup) -> KVCacheSpec:
    return EncoderOnlyAttentionSpec(block_size=group.block_size, num_kv_heads=1, head_size=1)


_SPECS: dict[str, Callable[[PublishedGroup], KVCacheSpec]] = {
    "full_attention": _full,
    "mla_attention": _full,
    "sink_full_attention": _full,
    "hidden_state": _full,
    "sliding_window": _window,
    "sliding_window_mla": _window,
    "chunked_local_attention": _chunk,
    "mamba": _state,
    "cross_attention": _cross,
    "encoder_only_attention": _encoder_only,
}
