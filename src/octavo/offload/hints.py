"""`Hinter`: carries out what requests hint of their resume points, at the right time of a request's life.

begin       parts that are to be retained become promised points; prefetch begins; release
promised    points that are to be retained are weighed
ended       points that are to be demoted are weighed
"""

from collections.abc import Sequence
from dataclasses import replace

from octavo.chunks import GroupOffloadConfig, Hint, HintKind, HintOutcome, OffloadKey
from octavo.ids import BlockHash
from octavo.offload.device import Device
from octavo.offload.load_plan import plan_load, tiered_blocks
from octavo.offload.manager import OffloadingManager
from octavo.offload.offloaded_blocks import ANYWHERE
from octavo.offload.request_state import RequestOffloadState
from octavo.offload.store_plan import promised_point


class Hinter:
    """The hints of all requests that have some."""

    def __init__(self, device: Device, manager: OffloadingManager, groups: Sequence[GroupOffloadConfig]) -> None:
        self._device = device
        self._manager = manager
        self._groups = groups
        self._hints: dict[str, Sequence[Hint]] = {}

    def add(self, request_id: str, hints: Sequence[Hint]) -> None:
        """Before the request begins."""
        if hints:
            self._hints[request_id] = hints

    def take(self, request_id: str) -> Sequence[Hint]:
        """The request has no more hints."""
        return self._hints.pop(request_id, ())

    def begin(self, state: RequestOffloadState, now: float) -> None:
        """The request is about to be looked up for the first time."""
        hints = self._hints.get(state.request.request_id, ())
        if asked := {self._boundary(state, hint.end_tokens) for hint in hints if hint.end_tokens is not None} - {0}:
            state.request.promises = replace(state.request.promises, asked=tuple(sorted(asked)))
        for hint in hints:
            if hint.kind is HintKind.RELEASE:
                self._manager.retentions.release(self._hashes(state))
            elif hint.kind is HintKind.PREFETCH:
                self._prefetch(state, now)
            elif hint.end_tokens is not None and not self._boundary(state, hint.end_tokens):
                self._manager.retentions.note(hint.kind, HintOutcome.NO_POINT)

    def promised(self, state: RequestOffloadState, points: Sequence[int], now: float, *, is_milestone: bool) -> None:
        """These boundaries are computed. A milestone says that the end of the prompt or of the request is among
        them."""
        for hint in self._hints.get(state.request.request_id, ()):
            if hint.kind is HintKind.RETAIN:
                point = self._point_of(state, hint, points, is_milestone=is_milestone)
                if point:
                    self._retain(state, point, hint, now)

    def _point_of(
        self, state: RequestOffloadState, hint: Hint, points: Sequence[int], *, is_milestone: bool
    ) -> int | None:
        """The boundary that the hint is on, if it is one of these."""
        if hint.end_tokens is not None:
            boundary = self._boundary(state, hint.end_tokens)
            return boundary if boundary in points else None
        prompt = state.request.promises.prompt_boundary
        if not is_milestone or prompt in points:
            return prompt if is_milestone else None
        end = self._whole(points[-1])
        return end if end > prompt else None

    def ended(self, state: RequestOffloadState, hints: Sequence[Hint]) -> None:
        """The request has ended and makes no more promises."""
        if not any(hint.kind is HintKind.DEMOTE for hint in hints):
            return
        computed = state.request.num_computed_tokens
        points = {min(state.request.promises.prompt_boundary, computed), self._whole(computed)} - {0}
        for point in sorted(points):
            promised = promised_point(self._device, state, point)
            if promised is not None:
                self._manager.retentions.demote(promised.block_hash)

    def _retain(self, state: RequestOffloadState, point: int, hint: Hint, now: float) -> None:
        promised = promised_point(self._device, state, point)
        if promised is not None:
            sizes = self._sizes(state, point)
            self._manager.retentions.retain(promised.block_hash, sizes, state.tenant, hint.lifetime_s, now)

    def _prefetch(self, state: RequestOffloadState, now: float) -> None:
        retentions = self._manager.retentions
        on_device = self._device.blocks_of(state.request)
        tiered = tiered_blocks(state.groups, on_device, self._manager, ANYWHERE)
        plan = plan_load(state.request, tiered, self._device.config)
        chunks = [] if plan is None else plan.chunks_not_in_memory(state.groups)
        if chunks:
            self._manager.promote(chunks, now, state.deadline)
        retentions.note(HintKind.PREFETCH, HintOutcome.TAKEN if chunks else HintOutcome.NO_POINT)

    def _boundary(self, state: RequestOffloadState, end_tokens: int) -> int:
        """The last boundary at or before the end of a part where the request can resume; 0 if there is none."""
        return min(self._whole(end_tokens), state.request.promises.prompt_boundary)

    def _whole(self, num_tokens: int) -> int:
        granule = self._device.config.resume_granularity
        return num_tokens // granule * granule

    def _hashes(self, state: RequestOffloadState) -> set[BlockHash]:
        self._device.blocks_of(state.request)  # which names its blocks
        return {block_hash for group in state.groups for block_hash in group.hashes}

    def _sizes(self, state: RequestOffloadState, num_tokens: int) -> dict[OffloadKey, int]:
        """Per block that a resume needs: its bytes."""
        needed = self._device.config.blocks_to_resume(state.request.resume_point(num_tokens))
        return {
            key: offloaded.page_size_bytes
            for own, offloaded, runs in zip(state.groups, self._groups, needed, strict=True)
            for run in runs
            for key in own.keys[run.start : run.stop]
        }
