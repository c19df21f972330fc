"""A Hypothesis state machine that runs a `KVCacheManager` against `NaiveEngine`, for any plan of groups.

    check_block_manager(small_model(MySpec(...), full()))

Pools are hardly larger than one longest request, so that eviction, refusal, moves and preemption are common; prompts
come from a few symbols, so that they share prefixes.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from octavo.blocks import KVCacheManager
from octavo.hashing import PLAIN, RequestIdentity
from octavo.planning import KVCacheConfig
from octavo.testing.naive_blocks import NaiveEngine
from octavo.testing.naive_layers import num_running_states
from octavo.testing.naive_request import NaiveRequest, StepPlan
from octavo.testing.small_models import SmallModel

SPARE_MEMORY = (0.3, 0, 1.0)
"""The pool's memory beyond one longest request, as a share of it."""
_MOST_REQUESTS = 6


def check_block_manager(model: SmallModel, *, max_examples: int | None = None, step_count: int = 40) -> None:
    """Runs the machine on a model. Fails with the shortest sequence of calls that goes wrong."""
    plans = [model.plan(spare) for spare in SPARE_MEMORY]
    chosen: dict[str, Any] = {"stateful_step_count": step_count}
    if max_examples is not None:
        chosen["max_examples"] = max_examples
    run_state_machine_as_test(
        partial(BlockMachine, plans),  # type: ignore[arg-type]  # anything that makes a machine will do
        settings=settings(suppress_health_check=list(HealthCheck), deadline=None, **chosen),
    )


TOKENS = st.integers(0, 2)
PROMPTS = st.lists(st.tuples(TOKENS, st.sampled_from([12, 1, 3, 8, 13, 24, 31])), min_size=1, max_size=4).map(
    lambda pieces: [token for token, count in pieces for _ in range(count)]
)
IDENTITIES = st.sampled_from(
    [PLAIN, PLAIN, PLAIN, PLAIN, RequestIdentity(lora_name="a"), RequestIdentity(cache_salt="s")]
)
ENCODER_INPUTS = st.sampled_from([(0, None), (5, b"5"), (11, b"11"), (11, b"11"), (7, None)])
WHICH = st.integers(0, 59)


class BlockMachine(RuleBasedStateMachine):
    """An engine's calls, in any order that the contract allows."""

    def __init__(self, plans: Sequence[KVCacheConfig]) -> None:
        super().__init__()
        self.plans = plans
        self.history: list[list[int]] = []
        """Tokens of requests that ended: the next turn of a conversation begins with one of them."""

    @initialize(
        size=st.integers(0, 2), is_caching=st.sampled_from([True, True, True, False]), watches_events=st.booleans()
    )
    def set_up(self, size: int, is_caching: bool, watches_events: bool) -> None:
        self.config = self.plans[size]
        manager = KVCacheManager(self.config, enable_prefix_caching=is_caching, enable_events=watches_events)
        self.engine = self.make_engine(manager, watches_events=watches_events)
        groups = self.config.groups
        self.has_encoder = any(not group.spec.indexes_decoder_tokens for group in groups)
        states = [num_running_states(group.spec) for group in groups if group.spec.holds_checkpoints]
        self.most_drafts = min(states) - 1 if states else 3
        self.has_many_states = max(states, default=1) > 1

    def make_engine(self, manager: KVCacheManager, *, watches_events: bool) -> NaiveEngine:
        return NaiveEngine(manager, watches_events=watches_events)

    def has_room_alone(self, request: NaiveRequest, *, respects_cuts: bool) -> bool:
        """Runs the next step of a request. A step that found no room is planned anew at the next call."""
        limits, is_new = self.config.limits, not request.blocks.is_started
        start = self.engine.look_up(request).num_tokens if is_new else request.computed
        end = min(len(request.tokens), start + limits.max_step_tokens)
        if respects_cuts:
            end = self.engine.manager.cut_prefill(request.blocks, end, request.plan)
        is_decoding = start >= request.blocks.num_prompt_tokens and end - start == 1
        drafts = min(self.most_drafts, limits.max_model_len - end - 1) if is_decoding else 0
        step = StepPlan(
            request=request,
            num_tokens=end + drafts,
            num_drafts=drafts,
            num_accepted=drafts // 2,
            must_fit_tokens=request.num_known if is_new else 0,
            sampled=(1, 1, 1, 1),
        )
        return self.engine.schedule([step]) == [True]

    # ---- requests begin ----------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.engine.requests) < _MOST_REQUESTS)
    @rule(prompt=PROMPTS, identity=IDENTITIES, encoder=ENCODER_INPUTS, turn=st.none() | WHICH)
    def begin(
        self, prompt: list[int], identity: RequestIdentity, encoder: tuple[int, bytes | None], turn: int | None
    ) -> None:
        if turn is not None and self.history:
            prompt = self.history[turn % len(self.history)] + prompt
        prompt = prompt[: self.config.limits.max_model_len - 2]
        num_encoder_tokens, digest = encoder if self.has_encoder else (0, None)
        if digest is not None:
            identity = RequestIdentity(
                lora_name=identity.lora_name, cache_salt=identity.cache_salt, encoder_digest=digest
            )
        self.engine.begin(prompt, identity, num_encoder_tokens=num_encoder_tokens)

    @precondition(lambda self: 0 < len(self.engine.requests) < _MOST_REQUESTS)
    @rule(which=WHICH)
    def begin_again(self, which: int) -> None:
        self.engine.begin_again(self._pick(which))

    @precondition(lambda self: 0 < len(self.engine.requests) < _MOST_REQUESTS)
    @rule(which=WHICH)
    def fork(self, which: int) -> None:
        request = self._pick(which)
        if not request.in_flight:
            self.engine.fork(request)

    # ---- steps -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.engine.requests)
    @rule(which=WHICH)
    def look_up(self, which: int) -> None:
        """Looks up a resume point. It may be stale when it is used."""
        request = self._pick(which)
        if not request.blocks.is_started:
            self.engine.look_up(request)

    @precondition(lambda self: self.engine.requests)
    @rule(data=st.data(), rounds=st.integers(1, 6), all_at_once=st.booleans())
    def serve(self, data: st.DataObject, rounds: int, all_at_once: bool) -> None:
        """Steps of several requests. Mostly all are committed before the next step is scheduled, sometimes not. A
        request without room waits, or another is preempted for it."""
        for _ in range(rounds):
            requests = list(self.engine.requests.values())
            if not all_at_once:
                chosen = data.draw(st.sets(WHICH, min_size=1, max_size=2), label="which")
                requests = list({request.blocks.request_id: request for request in map(self._pick, chosen)}.values())
            plans = [plan for request in requests if (plan := self._plan_step(data, request)) is not None]
            answers = self.engine.schedule(plans)
            self.engine.check()
            if not all(answers) and data.draw(st.sampled_from([True, False, False]), label="preempts"):
                self.engine.preempt(self._pick(data.draw(WHICH)))
            waiting = data.draw(st.sampled_from([0, 0, 0, 1, 2]), label="steps not committed")
            for request in list(self.engine.requests.values())[waiting:]:
                while request.in_flight:
                    self.engine.commit(request)

    @precondition(lambda self: any(request.in_flight for request in self.engine.requests.values()))
    @rule(which=WHICH)
    def commit(self, which: int) -> None:
        in_flight = [request for request in self.engine.requests.values() if request.in_flight]
        self.engine.commit(in_flight[which % len(in_flight)])

    @precondition(lambda self: any(request.in_flight for request in self.engine.requests.values()))
    @rule()
    def commit_all(self) -> None:
        for request in self.engine.requests.values():
            while request.in_flight:
                self.engine.commit(request)

    @precondition(lambda self: self.engine.requests)
    @rule(data=st.data(), steps=st.integers(1, 12))
    def decode(self, data: st.DataObject, steps: int) -> None:
        """Steps of a batch, as an engine decodes: the same requests go on together."""
        for _ in range(steps):
            batch = [request for request in self.engine.requests.values() if self._is_decoding(request)]
            if not batch:
                return
            sampled = [data.draw(TOKENS) for _ in batch]
            for refused in self.engine.decode_step(batch, sampled):
                self.engine.preempt(refused)
            self.engine.check()

    @precondition(lambda self: self.engine.requests)
    @rule(which=WHICH, respects_cuts=st.booleans(), really=st.sampled_from([False] * 4 + [True]))
    def run_alone(self, which: int, respects_cuts: bool, really: bool) -> None:
        """One request alone runs to its end, whatever is cached and wherever pages lie."""
        request = self._pick(which)
        if really and request.num_known < self.config.limits.max_model_len:
            self._preempt_all_but(request)
            self.engine.preempt(request)
            self._run_alone(request, respects_cuts=respects_cuts)

    # ---- requests end ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.engine.requests)
    @rule(which=WHICH)
    def free(self, which: int) -> None:
        request = self._pick(which)
        self.history.append(request.tokens[: request.num_known])
        self.engine.free(request)

    @precondition(lambda self: self.engine.requests)
    @rule(which=WHICH)
    def preempt(self, which: int) -> None:
        self.engine.preempt(self._pick(which))

    @precondition(lambda self: self.engine.requests)
    @rule()
    def free_all(self) -> None:
        for request in list(self.engine.requests.values()):
            self.engine.free(request)
        self.engine.check_nothing_leaks()

    # ---- the rest ----------------------------------------------------------------------------------------------

    @rule(really=st.sampled_from([False] * 7 + [True]))
    def reset(self, really: bool) -> None:
        if really:
            self.engine.reset()

    @precondition(lambda self: self.engine.watches_events)
    @rule()
    def take_changes(self) -> None:
        self.engine.take_changes()

    @rule()
    def take_stats(self) -> None:
        self.engine.check_stats()

    @invariant()
    def all_is_well(self) -> None:
        if hasattr(self, "engine"):
            self.engine.check()

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            for request in list(self.engine.requests.values()):
                self.engine.free(request)
            self.engine.check()
            self.engine.check_nothing_leaks()
            if self.engine.watches_events:
                self.engine.take_changes()

    # ---- helpers -----------------------------------------------------------------------------------------------

    def _pick(self, which: int) -> NaiveRequest:
        requests = list(self.engine.requests.values())
        return requests[which % len(requests)]

    def _is_decoding(self, request: NaiveRequest) -> bool:
        if len(request.in_flight) != 1 or request.num_known + 1 >= self.config.limits.max_model_len:
            return False
        step = request.in_flight[0]
        return step.end == request.num_known and len(step.sampled) == 1 and not step.num_rejected

    def _plan_step(self, data: st.DataObject, request: NaiveRequest) -> StepPlan | None:
        """A prefill chunk or a decode step, with or without drafts; None if the request can do nothing now."""
        limits = self.config.limits
        if not request.blocks.is_started and data.draw(st.sampled_from([True, True, False]), label="looks up"):
            self.engine.look_up(request)
        start = request.scheduled
        if not request.blocks.is_started and request.plan is not None:
            start = request.plan.num_tokens
        if request.in_flight and (len(request.in_flight) > 1 or not self._may_go_on(request)):
            return None
        remaining = len(request.tokens) - start
        if remaining < 1 or len(request.tokens) + 1 >= limits.max_model_len:
            return None
        room = limits.max_step_tokens
        chunk = data.draw(st.sampled_from([room, room, 1, 2, 8, 13]), label="chunk")
        lookahead = data.draw(st.sampled_from([0, 0, 0, 1, 3]), label="lookahead")
        end = start + min(remaining, chunk, room - lookahead)
        if data.draw(st.sampled_from([True, True, True, False]), label="respects the cut"):
            plan = None if request.blocks.is_started else request.plan
            end = self.engine.manager.cut_prefill(request.blocks, end, plan)
        must_fit = data.draw(st.sampled_from([0, 0, request.num_known]), label="must fit")
        if end < len(request.tokens) or request.in_flight:
            return StepPlan(request=request, num_tokens=end, num_lookahead_tokens=lookahead, must_fit_tokens=must_fit)
        drafts = min(
            data.draw(st.integers(0, self.most_drafts), label="drafts"),
            limits.max_model_len - end - 1,
            limits.max_step_tokens - lookahead - (end - start),
        )
        if start < request.blocks.num_prompt_tokens or end - start > 1:
            drafts = 0
        drafts = max(drafts, 0)
        accepted = data.draw(st.integers(0, drafts), label="accepted")
        sampled = [data.draw(TOKENS) for _ in range(accepted + 1)]
        return StepPlan(
            request=request,
            num_tokens=end + drafts,
            num_drafts=drafts,
            num_accepted=accepted,
            num_lookahead_tokens=lookahead,
            must_fit_tokens=must_fit,
            sampled=sampled,
        )

    def _may_go_on(self, request: NaiveRequest) -> bool:
        """Whether a step may be scheduled before the last commit: not if that decides where to go on."""
        step = request.in_flight[-1]
        has_drafts = step.num_rejected > 0 or len(step.sampled) > 1
        picks_a_state = self.has_many_states and step.start >= request.blocks.num_prompt_tokens
        return not has_drafts and not (picks_a_state and step.end - step.start > 1)

    def _preempt_all_but(self, request: NaiveRequest) -> None:
        for other in self.engine.requests.values():
            if other is not request:
                self.engine.preempt(other)

    def _run_alone(self, request: NaiveRequest, *, respects_cuts: bool) -> None:
        """A request that has not started computes what is known of it, then decodes to the longest context."""
        while True:
            has_room = self.has_room_alone(request, respects_cuts=respects_cuts)
            assert has_room, f"no room for a request alone, which has computed {request.computed} tokens"
            self.engine.commit(request)
            if request.num_known >= self.config.limits.max_model_len:
                break
        self.engine.check()
