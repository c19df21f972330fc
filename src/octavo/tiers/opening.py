"""All tiers of a configuration are opened, or none."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType

from octavo.chunks import GroupOffloadConfig
from octavo.tiers.base import OffloadingSpec, Tier, TierContext


@contextmanager
def opened_tiers(
    specs: Sequence[OffloadingSpec],
    groups: Sequence[GroupOffloadConfig],
    namespace: bytes,
    *,
    family: bytes = b"",
    identity: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[list[Tier]]:
    """The tiers, for use in the block. They are closed again if one cannot be opened or the block raises."""
    max_chunk_bytes = max(group.chunk_bytes for group in groups)
    context = TierContext(namespace=namespace, family=family, max_chunk_bytes=max_chunk_bytes, identity=identity)
    tiers: list[Tier] = []
    with ExitStack() as to_close:
        for spec in specs:
            tiers.append(spec.build(context))
            to_close.callback(tiers[-1].close)
        yield tiers
        to_close.pop_all()
