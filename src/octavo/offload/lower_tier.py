"""One tier below the arena behind a fence: what the tier does wrong, or raises, never reaches the engine.

    available --a job missed its deadline--> paused --------------------------------------> available
    available --a call raised--------------> broken --its jobs and a reset are made up for--> available

A pause lasts 1 s, 2 s, 4 s, ... 60 s; a job that works sets it back to 1 s. A paused tier is not asked for
anything new. A broken one is not called at all: its jobs are cancelled, and fail as misses.

Who follows the changes is told that a tier which is off for longer than 2 s has nothing, be it in a pause or turned off
by itself, and when it is on again, what it has.

Slots whose job could not be cancelled are in quarantine: the tier may still read or write them. They keep a reader
until the tier answers a cancel.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from octavo.chunks import (
    ChunkBytes,
    ChunkSizes,
    Departures,
    Leaving,
    MediumPlace,
    OffloadKey,
    SequenceNames,
    TierChanges,
    TierResult,
)
from octavo.errors import OffloadError
from octavo.ids import Slot
from octavo.offload.told_chunks import ToldChunks
from octavo.tiers import Tier, TierState, TierStatus

logger = logging.getLogger(__name__)
T = TypeVar("T")
Release = Callable[[Sequence[OffloadKey], Sequence[Slot]], None]
"""Removes a reader from chunks, given by key and head."""
_OFF_UNTOLD_S = 2.0
"""A tier that is off for less long, as until a first probe that succeeds, costs no events."""
_LOOK_AT_STATE_S = 0.25
"""Between two looks whether the tier is off, as a status takes as long as some lookups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadLimits:
    """Bounds of the traffic between the arena and the tiers below."""

    store_timeout_s: float = 30.0
    """A store that a tier has not finished within this time is given up."""
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0
    """The first and the longest pause of a tier that missed a deadline or raised."""
    chunks_per_job: int = 64
    """The most chunks of one job."""
    waiting_share: float = 0.25
    """The part of the arena's slots that may wait to be written to the tiers below. Chunks beyond it are dropped."""
    most_failed_keys: int = 4096
    """The most keys of a tier that are remembered as unreadable for `first_pause_s`. A new one replaces the oldest."""


class LowerTier:
    """A tier, and whether it is worth asking now."""

    def __init__(
        self,
        tier: Tier,
        limits: OffloadLimits,
        release: Release,
        departures: Departures | None = None,
        *,
        sizes: ChunkSizes,
        is_followed: bool = False,
    ) -> None:
        """`release` gets back the slots of a cancelled job. `departures` is told which chunks the tier gives up.
        `sizes` says which blocks a chunk can have.
        `is_followed`: whether somebody keeps account of what the tier has, by its changes."""
        self._departures = departures
        self._sizes = sizes
        self._told = ToldChunks() if is_followed else None
        self.medium = tier.medium
        self.cold_start = tier.cold_start
        self.asks_ahead = tier.asks_ahead
        self.shared_as = tier.shared_as
        self.gather_s = tier.gather_s
        self.is_available = True
        self.is_broken = False
        self.num_pauses = 0
        self.num_errors = 0
        """Calls that raised or broke the contract."""
        self._tier = tier
        self._limits = limits
        self._release = release
        self._jobs: dict[int, int] = {}
        """Job -> its number of chunks."""
        self._quarantine: dict[int, tuple[Sequence[OffloadKey], Sequence[Slot]]] = {}
        """Job -> the keys and heads that the tier may still touch."""
        self._unreadable: dict[OffloadKey, float] = {}
        """Key -> when it may be read again, in the order in which they failed."""
        self._owes_reset = False
        self._owes_announcement = False
        self._has_more_changes = False
        self._untaken = TierChanges([], [])
        """What changed before the last reset or announcement."""
        self._is_told = False
        """Whether the log says that the tier is off."""
        self._now = 0.0
        self._off_since: float | None = None
        self._look_at = 0.0
        self._pause_s = limits.first_pause_s
        self._resume_at = 0.0
        self._status = TierStatus(
            state=TierState.OK, reason="", bytes_used=0, bytes_budget=0, num_chunks=0, counters={}
        )
        self.status()

    # ---- what is there ------------------------------------------------------------------------------------------

    def masks(self, keys: Sequence[OffloadKey]) -> list[int]:
        """Per key: the blocks that the tier has; 0 while it is not available, and for a while after a read failed."""
        masks = self._lookup(keys) if self.is_available else [0] * len(keys)
        if self._unreadable:
            return [0 if key in self._unreadable else mask for key, mask in zip(keys, masks, strict=True)]
        return masks

    def ask(self, sequence: SequenceNames, *, wants_answer: bool) -> bool:
        """Whether the tier has not yet said what it holds of the sequence."""
        return self.is_available and self._ask(
            "ask", lambda: self._tier.ask(sequence, wants_answer=wants_answer), otherwise=False
        )

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        self._ask("touch", lambda: self._tier.touch(keys), None)

    def take_changes(self) -> MediumPlace:
        """What changed on the medium for those who follow it, and how to find what is there for them."""
        changes, self._untaken = self._net_changes(), TierChanges([], [])
        if self._told is not None:
            changes = self._told.pass_on(changes, self._lookup, is_off=self.is_told_as_off)
        self._has_more_changes = changes.has_more
        return MediumPlace(changes, self._lookup_told)

    @property
    def is_told_as_off(self) -> bool:
        """Whether followers are told that the tier has nothing, as it is off."""
        return self._off_since is not None and self._now >= self._off_since + _OFF_UNTOLD_S

    def owned_by(self, tenants: Collection[bytes]) -> list[tuple[OffloadKey, bytes, int]]:
        return self._ask("owned_by", lambda: list(self._tier.owned_by(tenants)), [])

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        """Removes chunks whose tenant has no more room."""
        if self._departures is not None:
            there = [key for key, mask in zip(keys, self._lookup(keys), strict=True) if mask]
            self._departures.note(there, self.medium, Leaving.QUOTA)
        self._ask("remove", lambda: self._tier.remove(keys), None)

    def announce(self) -> None:
        """Tells all that is there anew, now or as soon as the tier answers."""
        self._owes_announcement = True
        self._make_up()

    @property
    def has_more_changes(self) -> bool:
        """Whether the next `take_changes` goes on with an announcement, or with what a tier has that is off, or on
        again."""
        return self._has_more_changes

    def status(self) -> TierStatus:
        """The tier's status; of a broken tier the last one that it told, marked as off."""
        self._status = self._ask("status", lambda: replace(self._tier.status()), self._status)
        if self.is_broken:
            return replace(self._status, state=TierState.DEGRADED, reason="it raised an error: see the log")
        return self._status

    # ---- jobs ---------------------------------------------------------------------------------------------------

    def submit_store(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        return self._submit("submit_store", job_id, chunks, lambda: self._tier.submit_store(job_id, chunks))

    def submit_load(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        return self._submit("submit_load", job_id, chunks, lambda: self._tier.submit_load(job_id, chunks))

    def cancel(self, job_id: int, keys: Sequence[OffloadKey], heads: Sequence[Slot]) -> None:
        """Gives up a job. Its slots are released as soon as the tier no longer touches them."""
        self._jobs.pop(job_id, None)
        if self._has_cancelled(job_id):
            self._release(keys, heads)
        else:
            self._quarantine[job_id] = keys, heads

    @property
    def quarantined_heads(self) -> list[Slot]:
        return [head for _, heads in self._quarantine.values() for head in heads]

    def poll(self, now: float) -> list[TierResult]:
        """The jobs that have ended."""
        self._now = now
        if not self.is_available and now >= self._resume_at:
            self._resume()
        while self._unreadable and next(iter(self._unreadable.values())) <= now:
            del self._unreadable[next(iter(self._unreadable))]
        results: list[TierResult] = self._ask("poll", lambda: self._known(self._tier.poll(now)), [])
        if self._told is not None and now >= self._look_at:
            self._note_state()
        return results

    def could_not_read(self, keys: Sequence[OffloadKey]) -> None:
        """These chunks could not be read. If they were damaged, the next changes say that they are gone."""
        if self._departures is not None:
            self._departures.note(keys, self.medium, Leaving.UNREADABLE)
        for key in keys:
            self._unreadable[key] = self._now + self._limits.first_pause_s
        while len(self._unreadable) > self._limits.most_failed_keys:
            del self._unreadable[next(iter(self._unreadable))]

    def missed_deadline(self) -> None:
        if self.is_available:  # else the job is from before the pause
            self._pause()

    def worked(self) -> None:
        """Notes a job that ended well. A tier that raised counts as well again after it has worked for as long as its
        next pause."""
        if self._is_told and self._now < self._resume_at + self._pause_s:
            return
        self._pause_s = self._limits.first_pause_s
        if self._is_told:
            self._is_told = False
            logger.info("the tier %r works again", self.medium)

    # ---- all of it ----------------------------------------------------------------------------------------------

    def reset(self, *, tells_each: bool = False) -> None:
        """Forgets everything, now or as soon as the tier answers. `tells_each`: its followers hear of no clear, but of
        each chunk that went."""
        self._unreadable.clear()
        if self._told is not None and not tells_each:
            self._told.clear()
        self._owes_reset = True
        self._make_up()

    def is_reset_durable(self) -> bool:
        return not self._owes_reset and self._ask("is_reset_durable", self._tier.is_reset_durable, otherwise=False)

    def flush(self, timeout_s: float) -> bool:
        return self._ask("flush", lambda: self._tier.flush(timeout_s), otherwise=False)

    def close(self) -> None:
        """Ends the tier, also a broken one."""
        self._does("close", self._tier.close)

    # ---- helpers ------------------------------------------------------------------------------------------------

    def _ask(self, method: str, call: Callable[[], T], otherwise: T) -> T:
        """The tier's answer; `otherwise` if it is broken or breaks now."""
        return otherwise if self.is_broken else self._try(method, call, otherwise)

    def _does(self, method: str, call: Callable[[], object]) -> bool:
        """Whether the call came back without raising."""
        return self._try(method, lambda: (call(), True)[1], otherwise=False)

    def _try(self, method: str, call: Callable[[], T], otherwise: T) -> T:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - a third party's tier may raise anything
            self._break(method, error)
            return otherwise

    def _break(self, method: str, error: Exception) -> None:
        self.num_errors += 1
        if self.is_broken:
            return
        self.is_broken = True
        self._pause()
        if not self._is_told:
            self._is_told = True
            logger.error(
                "the tier %r raised in %s, and is off: it is tried again after a while, and until then its chunks are "
                "misses",
                self.medium,
                method,
                exc_info=error,
            )

    def _pause(self) -> None:
        self.is_available = False
        self.num_pauses += 1
        self._resume_at = self._now + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._limits.longest_pause_s)

    def _resume(self) -> None:
        """Ends the pause. A broken tier must first give up its former jobs and make up for a missed reset."""
        was_broken, self.is_broken = self.is_broken, False
        if was_broken:
            for job_id in list(self._quarantine):
                if not self._has_cancelled(job_id):
                    return
                self._release(*self._quarantine.pop(job_id))
            self._make_up()
        self.is_available = not self.is_broken

    def _make_up(self) -> None:
        """Does what is left to do on the tier, unless it is broken or breaks now."""
        if self._owes_reset:
            self._owes_reset = self.is_broken or not self._does("reset", self._tier.reset)
            self._keep_changes()
        if self._owes_announcement:
            self._keep_changes()
            self._owes_announcement = self.is_broken or not self._does("announce", self._tier.announce)

    def _keep_changes(self) -> None:
        """Takes what changed up to now. Those who know nothing from now on are to hear of a chunk that went before and
        comes again; to the tier that is no change if it is asked only then."""
        if self._told is not None:
            self._untaken = self._net_changes()

    def _net_changes(self) -> TierChanges:
        """What changed since `_untaken` was empty."""
        changes = self._ask("take_changes", self._known_changes, TierChanges([], []))
        if self._departures is not None:
            self._departures.note_gone(changes.removed, self.medium, rule="the tier's own order")
        former = self._untaken
        if not any(former):
            return changes
        gone = set(changes.removed)
        return TierChanges(
            list(dict.fromkeys([*former.removed, *changes.removed])),
            list(dict.fromkeys([*(key for key in former.stored if key not in gone), *changes.stored])),
            list(dict.fromkeys([*(key for key in former.changed if key not in gone), *changes.changed])),
            changes.has_more,
        )

    def _known_changes(self) -> TierChanges:
        removed, stored, changed, has_more = TierChanges(*self._tier.take_changes())
        known = self._sizes.of_groups
        return TierChanges(known(removed), known(stored), known(changed), has_more)

    def _has_cancelled(self, job_id: int) -> bool:
        return self._does("cancel", lambda: self._tier.cancel(job_id))

    def _lookup(self, keys: Sequence[OffloadKey]) -> list[int]:
        if not keys:
            return []
        masks = self._ask("lookup", lambda: _as_many(self._tier.lookup(keys), keys), [0] * len(keys))
        return self._sizes.possible(keys, masks)

    def _lookup_told(self, keys: Sequence[OffloadKey]) -> list[int]:
        """The blocks that followers are to believe in."""
        masks = self._lookup(keys)
        return masks if self._told is None else self._told.told_masks(keys, masks)

    def _note_state(self) -> None:
        self._look_at = self._now + _LOOK_AT_STATE_S
        if self.is_available and self.status().state is TierState.OK:
            self._off_since = None
        elif self._off_since is None:
            self._off_since = self._now

    def _submit(self, method: str, job_id: int, chunks: Sequence[ChunkBytes], call: Callable[[], bool]) -> bool:
        """Submits a job. A tier that raised may have taken the job all the same, unless it answers a cancel."""
        self._jobs[job_id] = len(chunks)
        num_errors = self.num_errors
        is_taken = self._ask(method, call, otherwise=False)
        if self.num_errors > num_errors:
            is_taken = not self._has_cancelled(job_id)
        if not is_taken:
            del self._jobs[job_id]
        return is_taken

    def _known(self, results: Sequence[TierResult]) -> list[TierResult]:
        """The results of jobs that are under way, each once, with valid indices."""
        known = {result.job_id: result for result in results if result.job_id in self._jobs}
        for job_id, failed, _ in known.values():
            if not failed <= frozenset(range(self._jobs[job_id])):
                raise OffloadError(f"job {job_id} of {self._jobs[job_id]} chunks failed at indices {set(failed)}")
        for job_id in known:
            del self._jobs[job_id]
        return list(known.values())


def _as_many(masks: list[int], keys: Sequence[OffloadKey]) -> list[int]:
    if len(masks) != len(keys):
        raise OffloadError(f"a lookup of {len(keys)} keys was answered with {len(masks)} masks")
    return masks
