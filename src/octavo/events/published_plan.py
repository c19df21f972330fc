"""`PublishedPlan`: the part of a publisher's plan that others need to apply the resume rule to its events."""

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from octavo.errors import InputError
from octavo.ids import GroupIdx, enumerate_groups
from octavo.specs import (
    CacheDType,
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

_MOST_GROUPS = 1 << 10
_MOST_STORES = 1 << 6
_Positive = Annotated[int, Meta(ge=1)]


class PublishedGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One group: its kind and the numbers that its resume rule needs."""

    kind: str
    block_size: _Positive
    sliding_window: _Positive | None = None
    attention_chunk_size: _Positive | None = None
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


class PublishedPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The groups of a publisher, in the order of their `group_idx`."""

    hash_block_size: _Positive
    groups: Annotated[list[PublishedGroup], Meta(max_length=_MOST_GROUPS)]
    clears_all_media: bool = False
    """Whether AllBlocksCleared means all media, as Octavo's does, or the device only."""
    heartbeat_s: Annotated[float, Meta(gt=0)] | None = None
    """The publisher says its plan anew after this time at the latest; a longer silence means that it is gone."""
    stores_off: Annotated[list[str], Meta(max_length=_MOST_STORES)] = []
    """The media, as events own them, whose shared stores the publisher cannot use now. It tells its plan anew whenever
    that changes."""

    @property
    def specs(self) -> list[KVCacheSpec]:
        """A spec of each group. InputError for a kind whose resume rule is not known here."""
        return [group.spec() for group in self.groups]

    @property
    def draft_groups(self) -> list[GroupIdx]:
        """The groups of draft models."""
        return [index for index, group in enumerate_groups(self.groups) if group.is_draft]

    @property
    def at_rest(self) -> "PublishedPlan":
        """What stays while the publisher runs: the groups and their rules."""
        return msgspec.structs.replace(self, heartbeat_s=None, stores_off=[])

    @classmethod
    def of_specs(
        cls,
        specs: Sequence[KVCacheSpec],
        *,
        hash_block_size: int,
        draft_groups: Sequence[int] = (),
        clears_all_media: bool = False,
        heartbeat_s: float | None = None,
    ) -> "PublishedPlan":
        """The plan of groups with these specs. InputError for a kind whose resume rule no plan can tell."""
        layers = [spec.first if isinstance(spec, UniformTypeKVCacheSpecs) else spec for spec in specs]
        groups = [
            PublishedGroup(
                kind=_published_kind(spec),
                block_size=spec.block_size,
                sliding_window=getattr(spec, "sliding_window", None),
                attention_chunk_size=getattr(spec, "attention_chunk_size", None),
                is_draft=index in draft_groups,
            )
            for index, spec in enumerate(layers)
        ]
        return cls(
            hash_block_size=hash_block_size, groups=groups, clears_all_media=clears_all_media, heartbeat_s=heartbeat_s
        )


def _published_kind(spec: KVCacheSpec) -> str:
    """The kind of the nearest ancestor that readers know. It must have the same resume rule."""
    for ancestor in type(spec).__mro__:
        kind = getattr(ancestor, "kind", "")
        if kind in _SPECS and ancestor.__module__.startswith(f"{KVCacheSpec.__module__.rpartition('.')[0]}."):
            if getattr(ancestor, "needed_blocks", None) is type(spec).needed_blocks:
                return str(kind)
            break
    raise InputError(
        f"kind {spec.kind!r} ({type(spec).__qualname__}) has a resume rule of its own, which a published plan cannot "
        "tell: make the GroupView of the specs instead of the plan"
    )


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


def _circular(group: PublishedGroup) -> KVCacheSpec:
    size = group.block_size  # no resume is asked for inside a block
    return CircularBufferSpec(block_size=size, num_kv_heads=1, head_size=1, tokens_per_state=size)


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
    "circular_buffer": _circular,
    "mamba": _state,
    "cross_attention": _cross,
    "encoder_only_attention": _encoder_only,
}
