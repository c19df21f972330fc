"""`LoadWorth`: whether what can be loaded for a waiting request is worth it.

It reckons what each way to the first token takes: by where the chunks are, and by what other requests compute and wait
for meanwhile. `LoadChooser` knows how fast all that is, and takes the cheapest way.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from octavo.chunks import LookupResult, WantedChunk
from octavo.offload.load_choice import LoadChooser, LoadRule, Outlook, Way
from octavo.offload.load_plan import LoadPlan
from octavo.offload.manager import OffloadingManager
from octavo.offload.request_state import LoadPhase, RequestOffloadState


class LoadWorth:
    """Makes the choices for all requests. It changes nothing but what the request's state says of its choice."""

    def __init__(
        self,
        manager: OffloadingManager,
        page_sizes: Sequence[int],
        rule: LoadRule,
        *,
        requests: Mapping[str, RequestOffloadState],
    ) -> None:
        """`page_sizes`: per group, in bytes. `requests`: all requests that run or were looked at."""
        self.chooser = LoadChooser(rule)
        self.num_too_slow = 0
        """Loads that were not begun because computing is quicker."""
        self.num_cut_short = 0
        """Loads only of the part that is in memory, because computing the rest is quicker than reading it."""
        self._manager = manager
        self._page_sizes = page_sizes
        self._requests = requests

    def choose(
        self, state: RequestOffloadState, plan: LoadPlan, part: LoadPlan | None, now: float, *, bytes_in_flight: int
    ) -> LoadPlan | None:
        """The plan; or `part`, what memory alone has, while a tier below is slow; or None where computing is quicker.
        `bytes_in_flight`: what is being copied to the device."""
        num_tokens = state.request.num_tokens
        whole_way = self._way(state, plan, bytes_in_flight)
        part_way = None if part is None else self._way(state, part, bytes_in_flight)
        state.outlook = self.chooser.choose(
            whole_way,
            part_way,
            tokens_alone=num_tokens - plan.num_device_tokens,
            tokens_ahead=self._tokens_ahead(state),
            loads_end_in=self._loads_end_in(state, now),
        )
        way = part_way if state.outlook is Outlook.LOAD_PART else whole_way
        if way is not None and state.outlook is not Outlook.COMPUTE:
            state.load_ends_at = now + self.chooser.loading_s(way)
        chosen = {Outlook.LOAD: plan, Outlook.LOAD_PART: part, Outlook.COMPUTE: None}[state.outlook]
        state.tokens_to_compute = num_tokens - (plan.num_device_tokens if chosen is None else chosen.num_tokens)
        self.num_too_slow += state.outlook is Outlook.COMPUTE
        self.num_cut_short += state.outlook is Outlook.LOAD_PART
        return chosen

    def chunks_to_probe(self, state: RequestOffloadState, refused: LoadPlan) -> list[WantedChunk]:
        """The chunks of a plan that was not chosen which are read all the same, to measure their tier."""
        below = [
            (
                group.wanted_chunk(chunk.first_block, chunk.num_blocks, chunk.held_blocks),
                chunk.held_blocks.bit_count() * page_bytes,
            )
            for page_bytes, group, part in zip(self._page_sizes, state.groups, refused.groups, strict=True)
            for chunk in part.chunks
            if chunk.stands is LookupResult.RETRY
        ]
        depths = self._manager.depths_of([wanted.key for wanted, _ in below])
        reads = [(depths.get(wanted.key, 0), num_bytes) for wanted, num_bytes in below]
        num_refused = self.num_too_slow + self.num_cut_short
        count = self.chooser.chunks_to_probe(reads, num_refused, self._manager.seconds_to_read)
        return [wanted for wanted, _ in below[:count]]

    def of_an_answer_s(self, state: RequestOffloadState, *, device_tokens: int) -> float | None:
        """How long to wait for tiers that have not yet said what they hold; None: loads always pay, or nothing was
        measured."""
        return self.chooser.worth_of_an_answer_s(
            tokens_alone=state.request.num_tokens - device_tokens, tokens_ahead=self._tokens_ahead(state)
        )

    def _way(self, state: RequestOffloadState, plan: LoadPlan, bytes_in_flight: int) -> Way:
        """What it takes to load up to the plan's resume point."""
        below = {chunk.key for chunk in plan.chunks if chunk.stands is LookupResult.RETRY}
        depths = self._manager.depths_of(list(below)) if below else {}
        to_device = bytes_in_flight
        to_read: Counter[int] = Counter()
        for page_bytes, part in zip(self._page_sizes, plan.groups, strict=True):
            for chunk in part.chunks:
                num_bytes = chunk.held_blocks.bit_count() * page_bytes
                to_device += num_bytes
                if chunk.key in depths:
                    to_read[depths[chunk.key]] += num_bytes
        waits_for_others = any(chunk.stands is LookupResult.HIT_PENDING for chunk in plan.chunks)
        return Way(
            tokens_left=state.request.num_tokens - plan.num_tokens,
            bytes_to_device=to_device,
            reading_s=self._manager.seconds_to_read(to_read, waits_for_others=waits_for_others),
            is_in_memory=not below and not waits_for_others,
        )

    def _tokens_ahead(self, state: RequestOffloadState) -> int:
        """Prompt tokens that other requests compute before this one: the missing tokens of all that need not wait."""
        return sum(
            max(0, min(other.tokens_to_compute, other.request.num_prompt_tokens - other.request.num_computed_tokens))
            for other in self._requests.values()
            if other is not state and other.phase is LoadPhase.READY
        )

    def _loads_end_in(self, asking: RequestOffloadState, now: float) -> list[float]:
        """For each other request that waits for a load: the seconds until the load ends, as expected when it was
        chosen."""
        return [
            state.load_ends_at - now
            for state in self._requests.values()
            if state is not asking and state.phase is not LoadPhase.READY and state.load_ends_at is not None
        ]
