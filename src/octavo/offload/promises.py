"""How dense the promised points of new prompts lie: from what points weigh, and from the room that is left.

A point inside what is computed costs its windows and states. While there is room, points weigh up to 4.5 times the
prefix between two of them; once a quarter of the largest medium is full, a quarter of it, since they take the room of
other prompts then. With a point of 18 parts of a prefix block's bytes (two blocks of windows of 5, a state of 8) the
first are every 4 blocks. States are kept only where a step ends: where a model has some, points lie so far apart that a
prompt is computed in a few pieces.

One more point lies before a prompt's end, since what comes last is often the prompt's own: the second question about a
document goes on from there, before anybody has seen where questions begin.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import lcm

from octavo.chunks import GroupOffloadConfig
from octavo.offload.device import OffloadedRequest
from octavo.specs import (
    GroupAvailability,
    GroupBytes,
    PointWeights,
    PromisePlan,
    RequestLimits,
    ceil_div,
    known_prefix,
)

_DENSE, _SPARSE = 4.5, 0.25
"""The most that points weigh in all, as multiples of the prefix between two of them."""
_BEFORE_END = 0.5
"""The most that the point before the end weighs under pressure, as a multiple of what is new of the prefix."""
_END_SHARE, _END_TOKENS = 16, 512
"""It lies a part of this share before the end, and at most so many tokens: questions rarely are longer."""
_LEAST_UNITS, _LEAST_SHARE = 4, 4
"""It needs more than so many units of new tokens, and more than a part of this share of the prompt: the next turn of a
chat is little beside what came before."""
_PRESSURE_BELOW = 0.75
"""Points are sparse while the free share of the largest medium is less than this."""


class PromiseRule:
    """Plans a request's promises once it is known what device and tiers have of it."""

    def __init__(
        self,
        groups: Sequence[GroupOffloadConfig],
        granularity: int,
        limits: RequestLimits | None = None,
        *,
        most_spacing: int | None = None,
    ) -> None:
        """Points lie where chunks of several blocks end, since a chunk that ends earlier would be stored beside the
        whole one. `limits` are those of an engine that ends a step at each point, to keep the states there.
        `most_spacing`: the distance that somebody asked for."""
        self._granularity = granularity
        self._most_spacing = most_spacing
        whole = [g.tokens_per_chunk for g in groups if g.spec.indexes_decoder_tokens and not g.spec.holds_checkpoints]
        self._unit = lcm(granularity, *whole)
        self._weights = PointWeights([GroupBytes(group.spec, group.page_size_bytes) for group in groups], self._unit)
        self._dense, self._sparse = (
            self._weights.spacing(ratio) if self._weights.are_needed else None for ratio in (_DENSE, _SPARSE)
        )
        self._limits = limits if any(group.spec.holds_checkpoints for group in groups) else None

    def plan(self, request: OffloadedRequest, groups: Sequence[GroupAvailability], free_share: float) -> None:
        """Tells the request where to promise. `groups` says what device and tiers together have of it."""
        point = request.resume_point(request.num_tokens)
        known = known_prefix(groups, point, granularity=self._granularity)
        request.promises = self.planned(request.promises, known, free_share)

    def planned(self, promises: PromisePlan, known_tokens: int, free_share: float) -> PromisePlan:
        """The same promises, with points inside the part that is computed."""
        has_room = free_share > _PRESSURE_BELOW
        spacing = self._dense if has_room else self._sparse
        if spacing is None:
            return promises
        boundary = promises.prompt_boundary
        shortest = self._limits.shortest_piece(boundary, self._unit) if self._limits else 0
        spacing = max(spacing, shortest)
        return replace(
            promises,
            known_tokens=known_tokens,
            spacing_tokens=min(spacing, self._most_spacing or spacing),
            before_end=self._before_end(boundary, known_tokens, _DENSE if has_room else _BEFORE_END, shortest),
        )

    def _before_end(self, boundary: int, known_tokens: int, most_ratio: float, shortest_piece: int) -> int | None:
        """The point before a prompt's end; None if too little is new, or if it would weigh too much."""
        num_new = boundary - known_tokens
        if num_new <= max(shortest_piece, _LEAST_UNITS * self._unit, boundary // _LEAST_SHARE):
            return None
        most = min(boundary // _END_SHARE, _END_TOKENS)
        distance = self._weights.distance_before(boundary, num_new, most, most_ratio)
        return ceil_div(boundary - distance, self._unit) * self._unit if distance else None
