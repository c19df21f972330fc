"""`WhyLog`: a bounded ring of records, one for each request that started, with what was known at that moment.

The engine's thread only looks up what it needs, once per request and never per token. Sentences and comparisons are
made when somebody asks (`explain_request`), from records that no longer change.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from octavo.blocks import KVCacheManager, RequestBlocks
from octavo.chunks import Departure, Departures, Leaving, OffloadKey, make_offload_key, name_tenant
from octavo.ids import BlockHash, GroupIdx
from octavo.offload import LoadStory, MovingLine
from octavo.tables import Recent
from octavo.why.causes import Cause, Loss, find_loss
from octavo.why.fingerprint import Fingerprint, FingerprintMaker

MOST_RECORDS = 1024
_MOST_FINGERPRINTS = 1 << 20
"""The most blocks in the fingerprints of all records, of 8 bytes each."""
_FEWEST_SEEN = 1 << 17
"""The blocks that are remembered as computed, at the least."""
CAUSE_OF = {
    Leaving.EVICTED: Cause.EVICTED,
    Leaving.QUOTA: Cause.EVICTED,
    Leaving.UNREADABLE: Cause.DAMAGED,
    Leaving.DAMAGED: Cause.DAMAGED,
}


class BelowDevice(Protocol):
    """The side below the device, as far as it can tell why. `octavo.offload.OffloadScheduler` can."""

    @property
    def cold_starts(self) -> Sequence[str]: ...
    def load_story(self, request: RequestBlocks) -> LoadStory | None: ...
    def missing_below(self, request: RequestBlocks, group_idx: GroupIdx, run: range) -> Sequence[int]: ...
    def chunks_of(self, request: RequestBlocks, group_idx: GroupIdx, block: int) -> Sequence[OffloadKey]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord:
    """What was known when a request started."""

    request_id: str
    blocks_id: str
    """The request's name in departures."""
    tenant: bytes
    generation: int
    """The number of resets before it."""
    started_at: float
    waited_s: float
    bypassed: bool
    num_prompt_tokens: int
    most_tokens: int
    """The last boundary below the prompt's end."""
    resumed: Mapping[str, int]
    num_resumed: int
    num_before: int
    before_by: str
    lost_s: float | None
    loss: Loss | None
    load: LoadStory | None
    departures: Sequence[Departure]
    """The departures of the missing block."""
    has_forgotten: bool
    fingerprint: Fingerprint


class WhyLog:
    """The log of one engine. Only the engine's thread writes; any thread may read records."""

    def __init__(
        self,
        manager: KVCacheManager,
        departures: Departures,
        below: BelowDevice | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`manager`'s pool and the side below it write to `departures`."""
        self.config = manager.config
        self.cold_starts = () if below is None else tuple(below.cold_starts)
        self._indexes = manager.pool.indexes
        self._departures = departures
        self._below = below
        self._clock = clock
        self._maker = FingerprintMaker(self.config.hash_block_size)
        self._seen: Recent[BlockHash, str] = Recent(_FEWEST_SEEN)
        self._prefill = MovingLine()
        self._records: dict[str, StartRecord] = {}
        self._num_fingerprints = 0
        self._generation = 0

    def note_prefill(self, tokens: int, seconds: float) -> None:
        """Notes how long computing prompt tokens took."""
        self._prefill.note(tokens, seconds)

    def records(self) -> tuple[StartRecord, ...]:
        """All records, the oldest first."""
        return tuple(self._records.values())

    def started(
        self,
        request_id: str,
        blocks: RequestBlocks,
        resumed: Mapping[str, int],
        *,
        waited_s: float,
        bypassed: bool = False,
    ) -> None:
        """A request starts, resumed at `blocks.num_computed_tokens`."""
        config, num_resumed = self.config, blocks.num_computed_tokens
        most = config.last_boundary(blocks.num_prompt_tokens)
        num_before, before_by = (num_resumed, "") if bypassed else self._computed_before(blocks, most)
        loss = None
        if num_before > num_resumed:
            loss = find_loss(config, blocks, num_before, lambda group, needed: self._became_of(blocks, group, needed))
        self._add(
            StartRecord(
                request_id=request_id,
                blocks_id=blocks.request_id,
                tenant=name_tenant(blocks.identity.cache_salt),
                generation=self._generation,
                started_at=self._clock(),
                waited_s=waited_s,
                bypassed=bypassed,
                num_prompt_tokens=blocks.num_prompt_tokens,
                most_tokens=most,
                resumed=dict(resumed),
                num_resumed=num_resumed,
                num_before=num_before,
                before_by=before_by,
                lost_s=self._prefill.seconds_for(num_before - num_resumed) if self._prefill.is_known else None,
                loss=loss,
                load=None if self._below is None or bypassed else self._below.load_story(blocks),
                departures=self._departures_of(blocks, loss),
                has_forgotten=self._departures.has_forgotten,
                fingerprint=self._maker.of(blocks.tokens[: blocks.num_prompt_tokens], blocks.identity),
            )
        )

    def ended(self, request_id: str, blocks: RequestBlocks) -> None:
        """A request has ended: others may continue from what it has computed."""
        hashes = blocks.hashed[: blocks.num_computed_tokens // self.config.hash_block_size]
        known = bisect_left(hashes, True, key=lambda name: not self._seen.is_young(name))
        self._seen.put(hashes[known:], request_id)

    def reset(self) -> None:
        """Notes that all that was cached is forgotten."""
        self._generation += 1
        self._seen.clear()

    # ---- helpers -----------------------------------------------------------------------------------------------

    def _computed_before(self, blocks: RequestBlocks, most: int) -> tuple[int, str]:
        """The last boundary up to which others have computed the same tokens, and the id of one of them if that is
        known. As hashes are chained, none is known after the first that is not."""
        hashes, granule = blocks.hashed, self.config.resume_granularity
        known = bisect_left(hashes, True, key=lambda name: name not in self._seen)
        seen = known * self.config.hash_block_size
        told = max(seen, blocks.promises.known_tokens, blocks.promises.branch_point or 0, blocks.num_computed_tokens)
        before = min(most, told // granule * granule)
        return before, (self._seen.get(hashes[known - 1]) or "") if known and seen >= before else ""

    def _became_of(self, blocks: RequestBlocks, group_idx: GroupIdx, needed: Sequence[int]) -> list[Cause | None]:
        index, hashes = self._indexes[group_idx], blocks.hashes(group_idx)
        missing = [block for block in needed if hashes[block] not in index]
        if missing and self._below is not None:
            run = range(missing[0], missing[-1] + 1)
            below = set(self._below.missing_below(blocks, group_idx, run))
            missing = [block for block in missing if block in below]
        causes = {block: self._cause_of(blocks, group_idx, block) for block in missing}
        return [causes.get(block) for block in needed]

    def _cause_of(self, blocks: RequestBlocks, group_idx: GroupIdx, block: int) -> Cause:
        own = self._departures.last(make_offload_key(blocks.hashes(group_idx)[block], group_idx))
        if self._below is not None:
            others = map(self._departures.last, self._below.chunks_of(blocks, group_idx, block))
            own = max([d for d in (own, *others) if d is not None], key=lambda d: d.at, default=None)
        return Cause.NEVER_KEPT if own is None else CAUSE_OF[own.how]

    def _departures_of(self, blocks: RequestBlocks, loss: Loss | None) -> Sequence[Departure]:
        if loss is None or loss.group_idx is None or loss.block is None:
            return ()
        return self._departures_of_block(blocks, loss.group_idx, loss.block)

    def _departures_of_block(self, blocks: RequestBlocks, group_idx: GroupIdx, block: int) -> list[Departure]:
        """The last departure of a block from each medium, the newest last."""
        own = make_offload_key(blocks.hashes(group_idx)[block], group_idx)
        keys = {own} if self._below is None else {own, *self._below.chunks_of(blocks, group_idx, block)}
        by_medium: dict[str, Departure] = {}
        for departure in sorted((d for key in keys for d in self._departures.find(key)), key=lambda d: d.at):
            by_medium.pop(departure.medium, None)
            by_medium[departure.medium] = departure
        return list(by_medium.values())

    def _add(self, record: StartRecord) -> None:
        if (namesake := self._records.pop(record.request_id, None)) is not None:
            self._num_fingerprints -= len(namesake.fingerprint.blocks)
        self._records[record.request_id] = record
        self._num_fingerprints += len(record.fingerprint.blocks)
        while len(self._records) > 1 and (
            len(self._records) > MOST_RECORDS or self._num_fingerprints > _MOST_FINGERPRINTS
        ):
            oldest = self._records.pop(next(iter(self._records)))
            self._num_fingerprints -= len(oldest.fingerprint.blocks)
