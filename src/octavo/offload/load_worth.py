"""`LoadWorth`: whether what can be loaded for a waiting request is worth it.

It reckons what each way to the first token takes: by where the chunks are, and by what other requests compute and wait
for meanwhile. `LoadChooser` knows how fast all that is, and takes the cheapest way.
"""

from collections.abc import Mapping, Sequence

from octavo.chunks import WantedChunk
from octavo.offload.load_choice import LoadChooser, LoadRule, Outlook, Way
from octavo.offload.load_plan import LoadPlan
from octavo.offload.load_ways import ChunkToLoad, keys_to_probe, way_to_load
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
        return chosen

    def chunks_to_probe(self, state: RequestOffloadState, refused: LoadPlan) -> list[WantedChunk]:
        """The chunks of a plan that was not chosen which are read all the same, to measure their tier."""
        keys = set(keys_to_probe(self._chunks_of(refused), self._manager, self.chooser))
        return [wanted for wanted in refused.chunks_not_in_memory(state.groups) if wanted.key in keys]

    def of_an_answer_s(self, state: RequestOffloadState, *, device_tokens: int) -> float | None:
        """How long to wait for tiers that have not yet said what they hold; None: loads always pay, or nothing was
        measured."""
        return self.chooser.worth_of_an_answer_s(
            tokens_alone=state.request.num_tokens - device_tokens, tokens_ahead=self._tokens_ahead(state)
        )

    def _way(self, state: RequestOffloadState, plan: LoadPlan, bytes_in_flight: int) -> Way:
        """What it takes to load up to the plan's resume point."""
        tokens_left = state.request.num_tokens - plan.num_tokens
        chunks = self._chunks_of(plan)
        return way_to_load(chunks, self._manager, tokens_left=tokens_left, bytes_in_flight=bytes_in_flight)

    def _chunks_of(self, plan: LoadPlan) -> list[ChunkToLoad]:
        return [
            ChunkToLoad(chunk.key, chunk.held_blocks.bit_count() * page_bytes, chunk.stands)
            for page_bytes, part in zip(self._page_sizes, plan.groups, strict=True)
            for chunk in part.chunks
        ]

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
