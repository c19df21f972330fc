"""Copies objects into the folder of a disk tier, before an engine starts there.

Both tiers of an engine keep the same bytes under the same keys and in the same namespace, so each chunk is copied as it
is, verified. What is encrypted is opened, and filed under the namespace that its description tells. The oldest of the
newest objects is copied first: a disk gives up first what was written first.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from octavo.chunks import ChunkBytes, OffloadKey
from octavo.errors import InputError, TierError
from octavo.namespace import NAMESPACE_PART
from octavo.stores import Envelopes, Share, StoredItem, examine, is_ahead, read_all
from octavo.stores.objects.keeper import ObjectsKeeper
from octavo.stores.objects.layout import Entry
from octavo.stores.tenants import tenant_of
from octavo.tiers import Tier, TierState
from octavo.tiers.disk import DiskConfig, DiskTier, RecordCipher

_WAIT_S = 0.1
_FLUSH_S = 60.0
_IS_NAMESPACE = re.compile(r"[0-9a-f]{32}")


class Outcome(Enum):
    """What became of an object."""

    COPIED = "copied"
    THERE = "there already"
    DAMAGED = "damaged, gone or of a later format"


class Chosen(NamedTuple):
    """An object that is to be copied."""

    item: StoredItem
    chunks: Sequence[Entry]
    """Its chunks, but for those of which a newer object has others."""


def choose_newest(
    keeper: ObjectsKeeper,
    items: Iterable[StoredItem],
    config: DiskConfig,
    now_s: float,
    tell: Callable[[Share], None],
) -> tuple[list[Chosen], list[StoredItem]]:
    """The newest objects whose chunks fit, the oldest of them first; and those whose index is damaged. `tell` gets the
    count of the chosen ones as it grows."""
    chosen: list[Chosen] = []
    damaged: list[StoredItem] = []
    share, seen = Share(), set[bytes]()
    largest = room = 0
    newest = sorted(items, key=lambda item: _rank(item, now_s), reverse=True)
    for item, index in read_all(newest, keeper.read_index):
        if index is None:
            damaged.append(item)
            continue
        chunks = [chunk for chunk in index.chunks if chunk.key not in seen]
        seen.update(chunk.key for chunk in chunks)
        largest = max([largest, *(chunk.num_bytes for chunk in chunks)])
        room += sum(config.room_of_record(chunk.num_bytes) for chunk in chunks)
        if room > config.room_in_a_row(largest):
            break
        if chunks:
            chosen.append(Chosen(item, chunks))
            share.add(item)
            tell(share)
    return chosen[::-1], damaged


def _rank(item: StoredItem, now_s: float) -> int:
    """The newest item has the highest one."""
    return 0 if item.modified_s is None or is_ahead(item.modified_s, now_s) else item.modified_s


def envelopes_of(keeper: ObjectsKeeper, item: StoredItem, cipher: RecordCipher | None) -> tuple[bytes, Envelopes]:
    """The namespace of an engine's disk that has what is in the object's namespace, and what opens its envelopes."""
    stored = bytes.fromhex(item.namespace)
    told = keeper.describe(item.family, item.namespace).get(NAMESPACE_PART, "")
    if cipher is not None and _IS_NAMESPACE.fullmatch(told):
        namespace = bytes.fromhex(told)
        if cipher.namespace(namespace) == stored:
            return namespace, Envelopes(namespace, cipher)
    return stored, Envelopes(stored)


def warm_disk(
    keeper: ObjectsKeeper, chosen: Iterable[Chosen], envelopes: Envelopes, tier: DiskTier
) -> Iterator[tuple[StoredItem, Outcome]]:
    """Copies objects of one namespace, and tells what became of each. An object whose chunks are all there is not
    read. Raises TierError if the disk takes no more."""
    lacking: dict[StoredItem, Sequence[Entry]] = {}
    for item, chunks in chosen:
        masks = tier.lookup([OffloadKey(chunk.key) for chunk in chunks])
        missing = [chunk for chunk, mask in zip(chunks, masks, strict=True) if mask != chunk.held_blocks]
        if missing:
            lacking[item] = missing
        else:
            yield item, Outcome.THERE
    for item, packed in read_all(lacking, keeper.read):
        copies = None if packed is None else _open(packed, item, lacking[item], envelopes)
        if copies is not None:
            _store(tier, copies)
        yield item, Outcome.DAMAGED if copies is None else Outcome.COPIED
    if not tier.flush(_FLUSH_S):
        raise TierError(_reason(tier))


def _open(
    packed: memoryview, item: StoredItem, chunks: Sequence[Entry], envelopes: Envelopes
) -> Sequence[ChunkBytes] | None:
    """The chunks with their bytes; None if any is damaged or forged."""
    tenant, copies = tenant_of(item.tenant), []
    for chunk in chunks:
        key, envelope = OffloadKey(chunk.key), packed[chunk.offset : chunk.offset + chunk.length]
        payload = envelopes.open(envelope, key, chunk.held_blocks, chunk.num_bytes)
        if payload is None:
            if envelopes.is_encrypted:
                return None
            if not examine(envelope, (key, envelopes.namespace, chunk.held_blocks), chunk.num_bytes, None).is_bad:
                raise InputError(
                    f"{item.name} is encrypted, and no description that the key opens tells under which namespace an "
                    "engine's disk keeps it: give the key of the engines that stored it (--key-file)"
                )
            return None
        copies.append(ChunkBytes(key, [payload], chunk.held_blocks, tenant=tenant))
    return copies


def _store(tier: DiskTier, chunks: Sequence[ChunkBytes]) -> None:
    """One object at a time: the writer thread writes one while the next ones are read."""
    if not tier.submit_store(1, chunks):
        raise TierError(_reason(tier))
    while not (results := tier.poll(time.monotonic())):
        if tier.status().state is not TierState.OK:
            raise TierError(_reason(tier))
        tier.wait(_WAIT_S)
    tier.take_changes()
    if results[0].failed:
        raise TierError(_reason(tier))


def _reason(tier: Tier) -> str:
    return f"disk tier: it takes no more: {tier.status().reason or 'its file system is full'}"
