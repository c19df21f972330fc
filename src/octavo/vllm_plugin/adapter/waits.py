"""`Waits`: requests that wait for chunks below memory, and for how long.

asks for such a chunk --> waits --chunks are in memory--> loads
                            `--deadline, or nothing of it can come--> has given up: every such chunk is a miss
"""

import math
from collections.abc import Sequence

from octavo.chunks import GroupOffloadConfig, LookupResult
from octavo.offload import OffloadingManager
from octavo.vllm_plugin.adapter.request import RequestState

_GAVE_UP = 0.0


class Waits:
    """The waits of all requests. What those of one step ask for is read when the step has been scheduled."""

    def __init__(self, manager: OffloadingManager, groups: Sequence[GroupOffloadConfig], *, timeout_s: float) -> None:
        self.num_given_up = 0
        self._manager = manager
        self._groups = groups
        self._timeout_s = timeout_s
        self._asking: dict[RequestState, None] = {}
        """Those of this step."""

    def has_given_up(self, state: RequestState, now: float) -> bool:
        """Whether the wait is over. It begins with the first question."""
        if state.deadline > now:
            state.deadline = min(state.deadline, now + self._timeout_s)
            return False
        if state.deadline != _GAVE_UP:
            self._give_up(state)
        return True

    def add(self, state: RequestState) -> None:
        """The request waits in this step."""
        self._asking[state] = None

    def end_step(self, now: float) -> None:
        """The step has been scheduled: begins to read what its requests wait for."""
        for state in self._asking:
            if not self._promote(state, now):
                self._give_up(state)
                break  # what it lets go may be the room that the others lack
        self._asking.clear()

    def begin_load(self, state: RequestState) -> None:
        """The request waits no more, also for what else it asked for: vLLM resumes it without."""
        state.deadline = math.inf
        self._asking.pop(state, None)

    def let_go(self, state: RequestState) -> None:
        """Nothing that was read for the request is held for it any more."""
        if state.awaited:
            self._manager.stop_waiting(list(state.awaited))
            state.awaited.clear()

    def _promote(self, state: RequestState, now: float) -> bool:
        """Begins to read the chunks that the request waits for. False if none of them will come, as none is on its way,
        and nothing that would make room for them: memory has no room, or the tier refuses."""
        chunks = state.chunks(list(state.asked), self._groups)
        found = self._manager.lookup([chunk.key for chunk in chunks])
        if state.may_promote:
            promoted = [chunk.key for chunk, was in zip(chunks, found, strict=True) if was is LookupResult.RETRY]
            found = self._manager.promote(chunks, now, state.deadline)
            state.from_tiers.update(promoted)
            state.awaited |= dict.fromkeys(promoted)
        is_coming = LookupResult.HIT_PENDING in found or LookupResult.RETRY not in found
        return is_coming or self._manager.may_find_room(chunks)

    def _give_up(self, state: RequestState) -> None:
        state.deadline, state.gave_up_waiting = _GAVE_UP, True
        self.num_given_up += 1
