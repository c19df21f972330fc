"""`Choosing`: what vLLM's requests load, and what they compute though it is there, as computing is quicker.

    new or preempted --first lookup--> a choice, the same for all groups and steps --loaded or computed--> none
                          `--a tier is still to answer--> none yet, and vLLM asks again

A choice to compute is a miss for vLLM, at every chunk. What choices rest on is measured here too: steps that compute
prompts, and loads during which no prompt is computed, as a load ends for vLLM only when the step of others has.
"""

from collections.abc import Collection, Mapping, Sequence
from types import FrameType
from weakref import WeakSet

from vllm.v1.kv_offload.base import OffloadKey, ReqContext

from octavo.chunks import GroupOffloadConfig, LookupResult, OffloadKey as Key, get_offload_group_idx
from octavo.offload import LoadRule, OffloadingManager, Outlook
from octavo.vllm_plugin.adapter.questions import Questions
from octavo.vllm_plugin.adapter.request import RequestState
from octavo.vllm_plugin.load_choices import LoadChoices, WaitingRequest
from octavo.vllm_plugin.step_times import StepTimes, count_prompt_tokens


class Choosing:
    """The choices between loading and computing, for all requests."""

    def __init__(
        self,
        manager: OffloadingManager,
        groups: Sequence[GroupOffloadConfig],
        questions: Questions,
        rule: LoadRule,
        *,
        tokens_per_hash: int,
        timeout_s: float,
    ) -> None:
        self._choices = LoadChoices(manager, groups, rule, tokens_per_hash=tokens_per_hash)
        self._steps = StepTimes(self._choices.chooser.prefill.note)
        self._manager = manager
        self._groups = groups
        self._questions = questions
        self._timeout_s = timeout_s
        self._loads: dict[RequestState, tuple[int, float, int]] = {}
        """Loads under way -> their bytes, when they began, and the prompt tokens that were scheduled before."""
        self._computing: WeakSet[RequestState] = WeakSet()
        """Requests that were looked up, until their prompts are computed."""
        self._awaiting: WeakSet[RequestState] = WeakSet()
        """Requests that wait for loads, until they run."""

    @property
    def given_up(self) -> Mapping[str, int]:
        """Loads that were not begun, by reason."""
        chooser = self._choices.chooser
        return {"too_slow": chooser.num_too_slow, "cut_short": chooser.num_cut_short}

    def choose(self, state: RequestState, context: ReqContext, key: OffloadKey, now: float) -> Outlook | None:
        """Makes the choice of a request that has none, at the first chunk that it asks for. None while a tier has not
        answered."""
        self._computing.add(state)
        state.device_tokens = self._device_tokens(context, key)
        foregone = self._choices.chooser.foregone
        if foregone is not None or not state.hashes:
            state.outlook = foregone or Outlook.LOAD
            return state.outlook
        if self._questions.has_asked(context):
            return None
        request = WaitingRequest(
            hashes=state.hashes,
            num_tokens=state.num_tokens,
            device_tokens=state.device_tokens,
            tokens_ahead=self._tokens_ahead(state),
            may_read=state.may_promote,
        )
        found = self._choices.find(request)
        may_have_more = state.may_promote and not found.is_all
        if may_have_more and self._questions.awaits(context, now, patience_s=self._choices.patience_s(request)):
            return None
        choice = self._choices.choose(request, found, self._loads_end_in(state, now))
        if choice.loading_s is not None:
            state.load_ends_at = now + choice.loading_s
            self._awaiting.add(state)
        state.outlook = choice.outlook
        state.known_tokens = max(state.known_tokens, found.known_tokens)
        state.gave_up_loading = choice.outlook is not Outlook.LOAD
        if choice.to_probe:
            self._questions.announce_once(context)
            chunks = state.chunks(map(OffloadKey, choice.to_probe), self._groups)
            in_memory = [chunk.key for chunk in found.chunks if chunk.stands is LookupResult.HIT]
            self._manager.promote(chunks, now, now + self._timeout_s, beside=in_memory)
            self._manager.stop_waiting([chunk.key for chunk in chunks])
        return state.outlook

    def load_begins(self, state: RequestState, keys: Collection[OffloadKey], now: float) -> None:
        num_bytes = sum(self._groups[get_offload_group_idx(Key(key))].chunk_bytes for key in keys)
        state.outlook = None
        self._loads[state] = (num_bytes, now, self._steps.num_prompt_tokens)
        self._choices.bytes_in_flight += num_bytes

    def load_ends(self, state: RequestState, now: float) -> None:
        num_bytes, begun, num_prompt_tokens = self._loads.pop(state)
        self._choices.bytes_in_flight -= num_bytes
        if num_prompt_tokens == self._steps.num_prompt_tokens:
            self._choices.chooser.from_memory.note(num_bytes, now - begun)

    def reset(self) -> None:
        """No load is under way any more."""
        self._loads.clear()
        self._choices.bytes_in_flight = 0

    def step_scheduled(self, caller: FrameType, now: float) -> None:
        """`caller` is vLLM's connector, whose variable `scheduler_output` tells what the step computes. If vLLM no
        longer calls it so, nothing is measured, and everything is loaded."""
        output = caller.f_locals.get("scheduler_output")
        if output is not None:
            counts = count_prompt_tokens(output.num_scheduled_tokens, output.scheduled_spec_decode_tokens)
            self._steps.scheduled(counts, now)

    def step_ended(self, now: float) -> None:
        self._steps.ended(now)

    def _device_tokens(self, context: ReqContext, key: OffloadKey) -> int:
        """vLLM first asks for the block after the device's part of a prefix. If no group needs the whole prefix, vLLM
        asks for the last chunk first, and does not tell what the device has."""
        group = self._groups[get_offload_group_idx(Key(key))]
        if not group.spec.needs_whole_prefix:
            return 0
        end = context.get_offload_key_position(key) or 0
        return max(0, end - 1) // group.tokens_per_chunk * group.tokens_per_chunk

    def _loads_end_in(self, asking: RequestState, now: float) -> list[float]:
        """For each other request that waits for a load: the seconds until the load ends, as expected when it was
        chosen."""
        self._awaiting.discard(asking)
        for state in [state for state in self._awaiting if not state.is_waiting]:
            self._awaiting.discard(state)
        return [state.load_ends_at - now for state in self._awaiting]

    def _tokens_ahead(self, asking: RequestState) -> int:
        """The tokens of other prompts that are computed before this one."""
        ahead = 0
        for state in list(self._computing):
            left = state.prompt_tokens_left
            if left is None:
                self._computing.discard(state)
            elif state is not asking:
                ahead += left
        return ahead
