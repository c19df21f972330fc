"""What a selection service knows, as JSON, a part at a time."""

from collections.abc import Iterator, Mapping

import msgspec

from octavo.events import BlockStored
from octavo.router.selection.partition import Partition, Rank

_encode = msgspec.json.encode


def dump_as_json(partitions: Mapping[str, Partition]) -> Iterator[bytes]:
    """By name: what is known of each rank there, and the events that would tell what it holds. Empty for a part of its
    blocks that it has nothing of. Between two parts, ranks may come and go."""
    before = b"{"
    for name, partition in partitions.items():
        yield before + _encode(name) + b":"
        yield from _dump_ranks(partition)
        before = b","
    yield b"}" if partitions else b"{}"


def _dump_ranks(partition: Partition) -> Iterator[bytes]:
    before = b"["
    for rank in list(partition.ranks.values()):
        yield before + _encode(partition.about(rank))[:-1] + b',"events":'
        start = b"["
        for event in _look_for_events(rank):
            if event is None:
                yield b""
            else:
                yield start + _encode(event)
                start = b","
        yield b"]}" if start == b"," else b"[]}"
        before = b","
    yield b"]" if before == b"," else b"[]"


def _look_for_events(rank: Rank) -> Iterator[BlockStored | None]:
    """Until it has left, or its plan has grown."""
    index = rank.member.index
    if index is not None:
        for event in index.look_for_events(rank.name):
            yield event
            if rank.member.index is not index:
                return
