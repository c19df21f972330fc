"""Several workers of one engine: what counts is what all of them have.

A block is there once every worker has stored its part, and it is gone as soon as one of them has removed it.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from octavo.errors import InputError
from octavo.events.messages import AllBlocksCleared, AnyEvent, BlockRemoved, BlockStored, ExternalHash

_Place = tuple[str | None, int | None, ExternalHash]
"""Medium, group and hash."""


class WorkerAggregator:
    """Turns the events of an engine's workers into the engine's. It remembers as much as the workers' caches hold."""

    def __init__(self, num_workers: int) -> None:
        if num_workers < 1:
            raise InputError(f"num_workers must be 1 or more, not {num_workers}")
        self.num_workers = num_workers
        self._all = (1 << num_workers) - 1
        self._holders: dict[_Place, int] = {}
        """The workers that have a block, as bits."""

    def add(self, worker: int, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        """Takes one worker's events, in their order, and returns what they change for the engine."""
        if not 0 <= worker < self.num_workers:
            raise InputError(f"worker {worker} is not one of 0 to {self.num_workers - 1}")
        changed: list[AnyEvent] = []
        for event in events:
            match event:
                case BlockStored():
                    hashes = [h for h in event.block_hashes if self._gain(worker, event, h)]
                case BlockRemoved():
                    hashes = [h for h in event.block_hashes if self._lose(worker, (event.medium, event.group_idx, h))]
                case AllBlocksCleared():
                    lost = [place for place in list(self._holders) if self._lose(worker, place)]
                    changed += [event] if lost or self.num_workers == 1 else []
                    continue
            if hashes:
                changed.append(_only(event, hashes))
        return changed

    def _gain(self, worker: int, event: BlockStored, block_hash: ExternalHash) -> bool:
        """Whether the block is there now, and was not before."""
        place = event.medium, event.group_idx, block_hash
        before = self._holders.get(place, 0)
        self._holders[place] = after = before | 1 << worker
        return before != after == self._all

    def _lose(self, worker: int, place: _Place) -> bool:
        """Whether the block was there, and is no more."""
        before = self._holders.get(place, 0)
        after = before & ~(1 << worker)
        if after:
            self._holders[place] = after
        else:
            self._holders.pop(place, None)
        return before == self._all != after


def _only(event: BlockStored | BlockRemoved, hashes: list[ExternalHash]) -> BlockStored | BlockRemoved:
    """The event with some of its blocks; extra keys go with the blocks that they belong to."""
    if isinstance(event, BlockRemoved) or not event.extra_keys or len(hashes) == len(event.block_hashes):
        return replace(event, block_hashes=hashes)
    kept = set(hashes)
    keys = [k for h, k in zip(event.block_hashes, event.extra_keys, strict=False) if h in kept]
    return replace(event, block_hashes=hashes, extra_keys=keys)
