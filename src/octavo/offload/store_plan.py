"""What is to be written for a promise: its boundaries as stages, each with the chunks that it needs beyond the last.

    stage 1: resumed at  | stage 2: a point         | stage 3: the prompt's end
    [ prefix ........... ][ ... more prefix .......  ][ ... the rest ........... ]
                  [window]                  [window]                     [window]

A writer that stores stage by stage has a resume point after each stage.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import NamedTuple

from octavo.chunks import GroupOffloadConfig, OffloadKey, PromisedPoint, WantedChunk
from octavo.ids import GroupIdx, enumerate_groups
from octavo.offload.device import Device, DeviceBlocks
from octavo.offload.load_plan import availability, tiered_blocks
from octavo.offload.manager import OffloadingManager
from octavo.offload.manager_values import Room
from octavo.offload.offloaded_blocks import ANYWHERE, TieredBlocks
from octavo.offload.request_state import RequestGroupState, RequestOffloadState, Written
from octavo.specs import longest_resume

_MOST_OF_A_TIER = 0.75
"""The part of a tier's budget that one promise may need, since a tier has overheads and writes in an order of its
own."""

_MOST_WITH_POINTS = 8
"""A promise and all points below it write less than this multiple of what the last point needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Boundaries of a request that are to be stored."""

    state: RequestOffloadState
    points: Sequence[int]
    """The boundaries, ascending."""
    is_final: bool = True
    """False: this stores ahead of a promise that will follow."""
    is_milestone: bool = True
    """Whether the prompt's or the request's end is among the points: then everything stored before is looked up once
    more."""
    resumed_at: int = 0
    """A resume point that the request has used, and whose blocks are stored too."""
    is_staged: bool = False
    """The promise may not fit, so what fits is to end with one of the boundaries."""

    def stage_by_stage(self) -> "Promise":
        """The same promise with all boundaries below it, since it may not fit."""
        below = self.state.request.promises.between(0, self.points[-1])
        points = sorted({*below, *self.points})
        return replace(self, points=points, is_milestone=True, is_staged=True)


class ChunkOnDevice(NamedTuple):
    """A chunk to store, with the blocks of it that the device had when the stage was planned."""

    group_idx: GroupIdx
    blocks: Sequence[int]
    chunk: WantedChunk


@dataclass(slots=True, kw_only=True)
class Stage:
    """One boundary of a promise."""

    num_tokens: int
    promised: PromisedPoint | None
    chunks: list[ChunkOnDevice] = field(default_factory=list)
    """The chunks that no tier has, in the order of the sequence."""
    keys_there: list[OffloadKey] = field(default_factory=list)
    """The chunks that tiers have already, and that no stage brings with more blocks."""
    keys_of_runs: set[OffloadKey] = field(default_factory=set)
    """The chunks of windows and states, which no later boundary needs."""


class StorePlanner:
    """Plans stages with the reader's own rule, over device and tiers together."""

    def __init__(self, device: Device, manager: OffloadingManager, groups: Sequence[GroupOffloadConfig]) -> None:
        self._device = device
        self._manager = manager
        self._groups = groups
        self.is_prefix = [group.spec.needs_whole_prefix for group in groups]

    def writes_more_than(self, num_bytes: int, promise: Promise) -> bool:
        """Whether the promise and all points below it need more than `num_bytes`."""
        state = promise.state
        if self._num_bytes(state, promise.points[-1]) * _MOST_WITH_POINTS <= num_bytes:
            return False
        return self._bytes_up_to(state, promise.points[-1]) > num_bytes

    def stages(self, promise: Promise, room: Room) -> list[Stage]:
        """One stage per boundary: the blocks that a resume there needs and no earlier stage has. Boundaries that the
        largest medium could not hold are left out."""
        state = promise.state
        on_device = self._device.blocks_of(state.request)
        tiered = tiered_blocks(state.groups, on_device, self._manager, ANYWHERE)
        kept = self._kept_on_tiers(promise, tiered) if promise.is_staged else 0
        points = [point for point in promise.points if point > kept]
        boundaries = self._boundaries(promise, points, tiered) if promise.is_final else points
        boundaries = self._that_fit(promise, boundaries, room)
        if promise.resumed_at:
            boundaries = sorted({promise.resumed_at, *boundaries})
        if kept:  # what a later point superseded is not stored again
            boundaries = [kept, *(boundary for boundary in boundaries if boundary > kept)]
        covered = [0 if promise.is_milestone or promise.resumed_at else state.stored_tokens] * len(self._groups)
        planned: set[OffloadKey] = set()
        stages: list[Stage] = []
        for boundary in boundaries:
            before = max(state.stored_tokens, state.promised_before, stages[-1].num_tokens if stages else 0)
            promised = promised_point(self._device, state, boundary, before) if promise.is_final else None
            stage = Stage(num_tokens=boundary, promised=promised)
            for group_idx, runs in enumerate_groups(self._runs(state, boundary)):
                for run in runs:
                    start = max(run.start, covered[group_idx] // self._groups[group_idx].spec.block_size)
                    rest = range(start if self.is_prefix[group_idx] else run.start, run.stop)
                    _add_run(stage, state.groups[group_idx], tiered[group_idx], rest, planned)
            for group_idx, is_prefix in enumerate_groups(self.is_prefix):
                if not is_prefix:
                    self._note_runs(stage, state, group_idx)
                elif self._groups[group_idx].spec.indexes_decoder_tokens:
                    covered[group_idx] = boundary
            stages.append(stage)
        return stages

    def _note_runs(self, stage: Stage, state: RequestOffloadState, group_idx: GroupIdx) -> None:
        keys = state.groups[group_idx].keys
        size = self._groups[group_idx].blocks_per_chunk
        for run in self._runs(state, stage.num_tokens)[group_idx]:
            stage.keys_of_runs.update(keys[run.start // size * size : run.stop])

    def _runs(self, state: RequestOffloadState, num_tokens: int) -> list[tuple[range, ...]]:
        return self._device.config.blocks_to_resume(state.request.resume_point(num_tokens))

    def _boundaries(self, promise: Promise, points: Sequence[int], tiered: Sequence[TieredBlocks]) -> list[int]:
        """The largest boundaries, of these points, at which a reader could resume once everything is stored, by the
        reader's own rule. The last one may be a boundary that was promised before; then the others are left out."""
        config, request = self._device.config, promise.state.request
        groups = availability(config, tiered)
        found: set[int] = set()
        for point in reversed(points):
            asked = request.resume_point(point + 1)
            boundary = longest_resume(groups, asked, granularity=config.resume_granularity).num_tokens
            if boundary and (boundary > promise.state.stored_tokens or promise.is_milestone):
                found.add(boundary)
        return sorted(found)

    def _kept_on_tiers(self, promise: Promise, tiered: Sequence[TieredBlocks]) -> int:
        """The boundary that the tiers keep already."""
        config = self._device.config
        on_tiers = availability(config, [blocks.offloaded for blocks in tiered])
        asked = promise.state.request.resume_point(promise.points[-1] + 1)
        return longest_resume(on_tiers, asked, granularity=config.resume_granularity).num_tokens

    def _that_fit(self, promise: Promise, boundaries: Sequence[int], room: Room) -> list[int]:
        """The boundaries without those that need more writing than the largest tier below memory holds: that tier would
        lose the first chunks when the last ones come. If every boundary of the prefix is a resume point, the largest
        one that fits is added. Whether a promise fits memory shows when it is stored."""
        most = int(room.num_bytes * _MOST_OF_A_TIER)
        if room.is_memory or not boundaries or not self.writes_more_than(most, promise):
            return list(boundaries)
        state = promise.state
        fitting = [boundary for boundary in boundaries if self._bytes_up_to(state, boundary) <= most]
        if len(fitting) < len(boundaries) and all(self.is_prefix):
            granule = self._device.config.resume_granularity
            most_tokens = most * boundaries[-1] // self._num_bytes(state, boundaries[-1]) // granule * granule
            return sorted({*fitting, most_tokens} - {0})
        return fitting

    def _num_bytes(self, state: RequestOffloadState, num_tokens: int) -> int:
        """The bytes that a resume at this boundary needs."""
        return sum(
            len(run) * group.page_size_bytes
            for group, runs in zip(self._groups, self._runs(state, num_tokens), strict=True)
            for run in runs
        )

    def _bytes_up_to(self, state: RequestOffloadState, num_tokens: int) -> int:
        """The bytes that are written for this boundary and for the points before it."""
        known = state.written
        place = bisect_right(known, num_tokens, key=attrgetter("num_tokens"))
        last = known[place - 1] if place else Written(0, 0, [0] * len(self._groups))
        for point in state.request.promises.between(last.num_tokens, num_tokens):
            last = self._with_point(state, last, point)
            if point > (known[-1].num_tokens if known else 0):
                known.append(last)
        return self._with_point(state, last, num_tokens).num_bytes

    def _with_point(self, state: RequestOffloadState, before: Written, point: int) -> Written:
        num_bytes, ends = before.num_bytes, [*before.ends]
        for group_idx, runs in enumerate(self._runs(state, point)):
            for run in runs:
                more = max(0, run.stop - max(run.start, ends[group_idx]))
                num_bytes += more * self._groups[group_idx].page_size_bytes
                ends[group_idx] = max(ends[group_idx], run.stop)
        return Written(point, num_bytes, ends)


def promised_point(
    device: Device, state: RequestOffloadState, num_tokens: int, promised_tokens: int = 0
) -> PromisedPoint | None:
    """The name of a computed boundary; None if no group names it."""
    for group, own in zip(device.config.groups, state.groups, strict=True):
        if group.spec.indexes_decoder_tokens and own.hashes:
            return PromisedPoint(num_tokens, own.hashes[num_tokens // group.block_size - 1], promised_tokens)
    return None


def _add_run(
    stage: Stage, state: RequestGroupState, blocks: TieredBlocks, run: range, planned: set[OffloadKey]
) -> None:
    if not run:
        return
    for chunk in _chunks_to_store(state, blocks.device, blocks.offloaded.missing_in(run), run):
        if chunk.chunk.key not in planned:
            planned.add(chunk.chunk.key)
            stage.chunks.append(chunk)
    keys = blocks.offloaded.keys_in(run)
    stage.keys_there += keys if state.blocks_per_chunk == 1 else [key for key in keys if key not in planned]


def _chunks_to_store(
    state: RequestGroupState, device: DeviceBlocks, missing: Sequence[int], run: range
) -> list[ChunkOnDevice]:
    """The chunks that bring the missing blocks of a run to the tiers, as far as the device has those blocks."""
    size, group_idx, index, hashes = state.blocks_per_chunk, state.group_idx, device.index, device.hashes
    chunks = []
    for first in dict.fromkeys(block // size * size for block in missing) if size > 1 else missing:
        end = min(first + size, run.stop)
        blocks = [block for block in range(first, end) if hashes[block] in index]
        if not blocks or blocks[-1] != end - 1:
            continue  # not computed yet
        held = sum([1 << (block - first) for block in blocks])
        chunks.append(ChunkOnDevice(group_idx, blocks, state.wanted_chunk(first, end - first, held)))
    return chunks
