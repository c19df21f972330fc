"""Which layers vLLM gives one block table."""

from collections.abc import Mapping

from octavo.specs import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowMLASpec, SlidingWindowSpec

Group = dict[str, KVCacheSpec]
"""Layers that share a block table."""


def can_share_block_table(layers: Mapping[str, KVCacheSpec]) -> bool:
    """Whether vLLM gives all of `layers` one block table. It asks the first layer only."""
    specs = list(layers.values())
    first = specs[0]
    if len({spec.block_size for spec in specs}) > 1:
        return False
    match first:
        case MambaSpec():  # pages of one size too, and shares or whole states, unlike Octavo's rule
            are_alike = len({(spec.page_size_bytes, getattr(spec, "is_replicated", None)) for spec in specs}) == 1
            return are_alike and first.is_uniform_with_collection(layers)
        case FullAttentionSpec():  # sinks too
            return all(isinstance(spec, FullAttentionSpec) for spec in specs)
        case SlidingWindowSpec():  # latent windows too, where the first is not one
            base = SlidingWindowMLASpec if isinstance(first, SlidingWindowMLASpec) else SlidingWindowSpec
            return all(isinstance(spec, base) and spec.sliding_window == first.sliding_window for spec in specs)
        case _:
            return first.is_uniform_with_collection(layers)
