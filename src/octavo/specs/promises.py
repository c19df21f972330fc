"""The rule of promises: the boundaries of a request at which its writer says that others can resume.

    0 ..... resumed |........|.. branch point |........|.... before the end, end |........|.... the answer's end
                     [ computed: points `spacing_tokens` apart, and the boundaries named here                  ]

Device cache, offload scheduler, the plug-in and the simulator ask the same plan. What is stored for a promise follows
from the resume rule, so that what a reader asks for at a promised boundary is there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from octavo.specs.base import FAR, KVCacheSpec, ResumePoint, ceil_div
from octavo.specs.resume import GroupAvailability, last_boundary, resume_and_known


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisePlan:
    """The promised boundaries of one request. Its end is promised besides, when it is known."""

    granularity: int
    prompt_boundary: int
    """The prompt's end: where a request with the same prompt will want to resume."""
    branch_point: int | None = None
    """Where other requests left this one's prefix, if not all groups have what a resume there needs."""
    known_tokens: int = 0
    """Others have computed so much of the prompt."""
    spacing_tokens: int | None = None
    """The distance of points inside what is computed. What others computed counts if it is computed again: its states
    are gone, or were never kept."""
    before_end: int | None = None
    """Shortly before the prompt's end: what comes last may be the prompt's own, as a question about a document is."""
    asked: tuple[int, ...] = ()
    """Further boundaries, for which the client has asked, or at which the engine was asked to keep what it has."""

    def with_branch_point(self, branch_point: int | None) -> "PromisePlan":
        return self if branch_point == self.branch_point else replace(self, branch_point=branch_point)

    def is_promised(self, num_tokens: int) -> bool:
        if num_tokens % self.granularity or not num_tokens:
            return False
        if num_tokens in (self.prompt_boundary, self.branch_point, self.before_end, *self.asked):
            return True
        return self.spacing_tokens is not None and not num_tokens % self.spacing_tokens

    def next_after(self, num_tokens: int) -> int | None:
        """The first promised boundary after `num_tokens`."""
        points = [self.prompt_boundary, self.branch_point or 0, self.before_end or 0, *self.asked]
        if self.spacing_tokens:
            points.append((num_tokens // self.spacing_tokens + 1) * self.spacing_tokens)
        return min((point for point in points if point > num_tokens), default=None)

    def between(self, after: int, until: int) -> list[int]:
        """The promised boundaries in `(after, until]`, ascending."""
        points: list[int] = []
        point = self.next_after(after)
        while point is not None and point <= until:
            points.append(point)
            point = self.next_after(point)
        return points


def known_prefix(groups: Sequence[GroupAvailability], request: ResumePoint, *, granularity: int) -> int:
    """What `resume_and_known` knows, without a look at the groups that do not need their whole prefix."""
    prefix_groups = [group for group in groups if group.spec.needs_whole_prefix]
    most = last_boundary(request.num_tokens, granularity, has_draft=any(group.is_draft for group in groups))
    return min(most, resume_and_known(prefix_groups, request, granularity=granularity)[1])


class GroupBytes(NamedTuple):
    """One group, as far as its weight in promises goes."""

    spec: KVCacheSpec
    page_bytes: int


class PointWeights:
    """What points inside a prompt weigh beside its prefix: their windows and states."""

    def __init__(self, groups: Iterable[GroupBytes], unit_tokens: int) -> None:
        """Points lie at multiples of `unit_tokens`."""
        decoders = [group for group in groups if group.spec.indexes_decoder_tokens]
        others = [group for group in decoders if not group.spec.needs_whole_prefix and _num_needed(group.spec)]
        self._unit = unit_tokens
        self._prefix_bytes = sum(page / spec.block_size for spec, page in decoders if spec.needs_whole_prefix)
        self._state_bytes = sum(page for spec, page in others if spec.holds_checkpoints)
        self._windows = [(group, _num_needed(group.spec)) for group in others if not group.spec.holds_checkpoints]

    @property
    def are_needed(self) -> bool:
        """False where points need nothing beside the prefix, or no prefix grows."""
        return self._prefix_bytes > 0 and (self._state_bytes > 0 or bool(self._windows))

    def spacing(self, most_ratio: float) -> int:
        """The least distance of points at which all that they need beside the prefix weighs at most `most_ratio` times
        the prefix. It is a unit times a power of two, so that points of different distances meet."""
        spacing = self._unit
        while self._state_bytes + self._window_bytes(spacing) > most_ratio * self._prefix_bytes * spacing:
            spacing *= 2
        return spacing

    def distance_before(self, end: int, num_new_tokens: int, most_tokens: int, most_ratio: float) -> int:
        """How long before the end of what is new one more point may lie, at most `most_tokens`. What it needs beside
        the end weighs at most `most_ratio` times what is new of the prefix, and windows half of that: so it is nearer
        where they are heavy. 0 if there is no such point, or if it needs no more than the end."""
        most_bytes = most_ratio * self._prefix_bytes * num_new_tokens
        distance = max(self._unit, most_tokens // self._unit * self._unit)
        while distance and self._window_bytes(distance, end) > most_bytes / 2:
            distance = distance // 2 // self._unit * self._unit
        is_light = 0 < self._state_bytes + self._window_bytes(distance, end) <= most_bytes
        return distance if is_light else 0

    def _window_bytes(self, spacing_tokens: int, end: int = FAR) -> int:
        """Of one point for each `spacing_tokens`, up to this end: windows that overlap are kept once."""
        num_bytes = 0
        for (spec, page_bytes), needed in self._windows:
            apart, before = ceil_div(spacing_tokens, spec.block_size), ceil_div(end, spec.block_size) - needed
            num_bytes += page_bytes * max(0, min(needed, apart, before))
        return num_bytes


def _num_needed(spec: KVCacheSpec) -> int:
    """The blocks that a resume far from the beginning needs."""
    return sum(len(run) for run in spec.needed_blocks(ResumePoint(FAR // spec.block_size * spec.block_size)))
