"""Nothing gets stuck: some request always gets further, and the work done is a small multiple of the work asked.

Pools hold hardly more than one longest request. Several clients go on with conversations that share prefixes, so that
most of what they ask is loaded from memory or a tier, ahead of their turn.
"""

import os
import random

import pytest
from hypothesis import given, settings, strategies as st
from live_engine import LOAD_PATIENCE_S, STEP_S, LiveEngine
from test_scheduler_workloads import SHAPES

from octavo.engine.outputs import FinishReason
from octavo.engine.scheduler import PATIENCE_S
from octavo.offload import StorePolicy
from octavo.specs import RequestLimits, ceil_div
from octavo.testing import MODEL_EXAMPLES, chunked, full, small_model, state, window
from rigs.faulty_tier import TierFault

EXAMPLES = int(os.environ.get("OCTAVO_LIVENESS_EXAMPLES", "6"))
"""For each shape. By hand, run hundreds: with `HYPOTHESIS_PROFILE=dev` they are ever new ones."""
MOST_WORK = 3
"""Tokens computed for each token asked."""

LONG = RequestLimits(max_model_len=432, max_step_tokens=256, max_encoder_tokens=0)
ODD_SHAPES = {
    "a state of two attention pages": small_model(state(16, elements=256), full(2, heads=16), limits=LONG),
    "a state of many attention pages": small_model(state(8, elements=1024), full(2)),
    "a state smaller than an attention page": small_model(state(4, elements=8), full(16, heads=4)),
    "states of two sizes, and a window": small_model(
        state(8, elements=200), state(8, elements=24), window(11, block_size=4), checkpoint_interval_tokens=16
    ),
    "windows of three sizes beside chunks": small_model(window(3), window(30, block_size=8), window(50), chunked(20)),
    "large blocks beside a large state": small_model(state(24, elements=300), full(24, heads=3), window(7)),
}
ALL_SHAPES = {name: MODEL_EXAMPLES[name] for name in SHAPES} | ODD_SHAPES


def most_steps_without_progress(engine):
    """A preempted choice is computed anew, in chunks that end at checkpoints. Before that it may wait for its load, and
    an older one for pages that transfers hold."""
    config = engine.manager.config
    chunks = ceil_div(
        config.limits.max_model_len, min(config.resume_granularity, engine.scheduler.limits.max_step_tokens)
    )
    return chunks + int((LOAD_PATIENCE_S + PATIENCE_S) / STEP_S)


conversations = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1 << 20),
        "num_clients": st.integers(2, 8),
        "turns": st.integers(1, 4),
        "max_tokens": st.sampled_from([1, 6, 20]),
        "n": st.sampled_from([1, 1, 1, 2]),
        "num_tenants": st.sampled_from([1, 2, 3]),
    }
)
faults = st.lists(
    st.tuples(
        st.integers(1, 30),
        st.one_of(
            st.tuples(st.just("tier"), st.sampled_from(TierFault)),
            st.tuples(st.just("worker_fails"), st.booleans()),
            st.tuples(st.just("worker_is_stuck"), st.booleans()),
            st.tuples(st.just("device_forgets"), st.none()),
            st.tuples(st.just("abort"), st.integers(0, 7)),
        ),
    ),
    max_size=8,
)


class Clients:
    """Each asks, reads the answer, and asks on."""

    def __init__(self, engine, *, seed, num_clients, turns, max_tokens, n, num_tenants=1):
        self.num_tenants = num_tenants
        self.engine, self.turns, self.max_tokens, self.n = engine, turns, max_tokens, n
        self.longest = engine.manager.config.limits.max_model_len
        self.chooser = random.Random(seed)
        system_prompt = self.some_tokens(self.longest // 3)
        self.said = [
            system_prompt[: self.chooser.choice((0, 1, 2)) * len(system_prompt) // 2] for _ in range(num_clients)
        ]
        self.turn = [0] * num_clients
        for client in range(num_clients):
            self.ask(client)

    def some_tokens(self, count):
        return [self.chooser.randrange(61) for _ in range(count)]

    def ask(self, client):
        self.turn[client] += 1
        self.said[client] += self.some_tokens(self.chooser.randrange(1, self.longest // 6))
        self.said[client] = self.said[client][: self.longest - self.max_tokens]
        name, tenant = f"{client}.{self.turn[client]}", f"{client % self.num_tenants}"
        self.engine.add(name, self.said[client], self.max_tokens, n=self.n, tenant=tenant)

    def read(self):
        for client, turn in enumerate(self.turn):
            outputs = self.engine.outputs.get((f"{client}.{turn}", 0))
            if outputs and outputs[-1].is_finished and turn < self.turns:
                self.said[client] = self.said[client] + self.engine.tokens(f"{client}.{turn}")
                self.ask(client)

    def check_last_answers(self):
        for client, turn in enumerate(self.turn):
            name = f"{client}.{turn}"
            if self.engine.last(name).finish_reason is FinishReason.LENGTH:
                assert self.engine.tokens(name) == self.engine.model.greedy(self.said[client], self.max_tokens)


def serve(engine, conversation, faults):
    """All conversations to their end, with faults on the way."""
    clients = Clients(engine, **conversation)
    faults = [fault for pause, fault in faults for fault in [None] * pause + [fault]] + [("worker_is_stuck", False)]
    bound = most_steps_without_progress(engine)
    while engine.has_unfinished:
        if faults and (fault := faults.pop(0)) is not None:
            bring_about(engine, clients, *fault)
        engine.run_step()
        clients.read()
        assert engine.steps_without_progress <= bound, "the engine is stuck"
    assert not engine.manager.requests
    clients.check_last_answers()


def bring_about(engine, clients, kind, argument):
    match kind:
        case "tier":
            engine.tier.fault = argument
        case "worker_fails":
            engine.worker.fails = argument
        case "worker_is_stuck":
            engine.worker.is_stuck = argument
        case "device_forgets":
            for group_idx in range(len(engine.manager.config.groups)):
                engine.manager.pool.forget_group(group_idx)
        case "abort":
            client = argument % len(clients.turn)
            engine.drop(f"{client}.{clients.turn[client]}")


@pytest.mark.parametrize("seed", [1, 2, 7, 13])
def test_pages_loaded_ahead_serve_whoever_runs(seed):
    """Five pages of states in all, and seven waiting choices whose loads would like one each."""
    engine = LiveEngine(
        ODD_SHAPES["a state of two attention pages"],
        spare=0,
        max_step_tokens=256,
        chunks_in_memory=200,
        store_policy=StorePolicy.ON_EVICTION,
    )
    serve(engine, {"seed": seed, "num_clients": 8, "turns": 4, "max_tokens": 6, "n": 1}, faults=[])
    loaded = sum(tokens for medium, tokens in engine.counters.tokens_resumed.items() if medium != "device")
    assert loaded > engine.tokens_asked / 4
    assert engine.tokens_computed < engine.tokens_asked


@pytest.mark.parametrize("shape", ALL_SHAPES)
@settings(max_examples=EXAMPLES)
@given(
    conversation=conversations,
    faults=faults,
    spare=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    max_step_tokens=st.sampled_from([8, 24]),
    chunks_in_memory=st.sampled_from([8, 60, 400]),
    store_policy=st.sampled_from(StorePolicy),
)
def test_some_request_always_gets_further(
    shape, conversation, faults, spare, max_step_tokens, chunks_in_memory, store_policy
):
    model = ALL_SHAPES[shape]
    engine = LiveEngine(
        model,
        spare=spare,
        max_step_tokens=min(max_step_tokens, model.limits.max_step_tokens),
        chunks_in_memory=chunks_in_memory,
        store_policy=store_policy,
    )
    serve(engine, conversation, faults)
    assert engine.tokens_computed <= MOST_WORK * engine.tokens_asked
