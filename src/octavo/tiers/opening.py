"""All tiers of a configuration are opened, or none."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from octavo.chunks import GroupOffloadConfig
from octavo.tiers.base import OffloadingSpec, Tier, TierContext


@contextmanager
def opened_tiers(
    specs: Sequence[OffloadingSpec], groups: Sequence[GroupOffloadConfig], namespace: bytes
) -> Iterator[list[Tier]]:
    """The tiers, for the block to hand on. They are closed again if one cannot be opened, or if the block raises."""
    context = TierContext(namespace=namespace, max_chunk_bytes=max(group.chunk_bytes for group in groups))
    tiers: list[Tier] = []
    with ExitStack() as to_close:
        for spec in specs:
            tiers.append(spec.build(context))
            to_close.callback(tiers[-1].close)
        yield tiers
        to_close.pop_all()
