"""How dense the promised points of new prompts lie: from what points weigh, and from the room that is left.

A point inside what is computed costs its windows and states. While there is room, points weigh up to 4.5 times the
prefix between two of them; once a quarter of the largest medium is full, a quarter of it, since they take the room of
other prompts then. With a point of 18 parts of a prefix block's bytes (two blocks of windows of 5, a state of 8) the
first are every 4 blocks. States are kept only where a step ends: where a model has some, points lie so far apart that a
prompt is computed in a few pieces.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import lcm

from octavo.chunks import GroupOffloadConfig
from octavo.offload.device import OffloadedRequest
from octavo.specs import GroupAvailability, GroupBytes, PromisePlan, RequestLimits, known_prefix, spacing_of_points

_DENSE, _SPARSE = 4.5, 0.25
"""The most that points weigh in all, as multiples of the prefix between two of them."""
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
        weights = [GroupBytes(group.spec, group.page_size_bytes) for group in groups]
        self._dense, self._sparse = (spacing_of_points(weights, self._unit, ratio) for ratio in (_DENSE, _SPARSE))
        self._limits = limits if any(group.spec.holds_checkpoints for group in groups) else None

    def plan(self, request: OffloadedRequest, groups: Sequence[GroupAvailability], free_share: float) -> None:
        """Tells the request where to promise. `groups` says what device and tiers together have of it."""
        point = request.resume_point(request.num_tokens)
        known = known_prefix(groups, point, granularity=self._granularity)
        request.promises = self.planned(request.promises, known, free_share)

    def planned(self, promises: PromisePlan, known_tokens: int, free_share: float) -> PromisePlan:
        """The same promises, with points inside the part that is computed."""
        spacing = self._dense if free_share > _PRESSURE_BELOW else self._sparse
        if spacing is None:
            return promises
        if self._limits:
            spacing = max(spacing, self._limits.shortest_piece(promises.prompt_boundary, self._unit))
        if self._most_spacing:
            spacing = min(spacing, self._most_spacing)
        before_end = (promises.prompt_boundary - 1) // self._unit * self._unit
        pays = promises.prompt_boundary - known_tokens > spacing and before_end > known_tokens
        return replace(
            promises,
            known_tokens=known_tokens,
            spacing_tokens=spacing,
            before_end=before_end if pays else None,
        )
