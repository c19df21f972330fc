"""What tests of whole engines share: a tiny model and what plain Hugging Face answers, engines over it, and runs.

An answer is compared token by token, and by the log-probability of each: a wrong page that happens to change no token
still shows. Prompts are chosen so that no token of their answer is a near tie, which two right ways to compute could
decide differently.
"""

import os
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.blocks import KVCacheManager
from octavo.chunks import ChunkCopy, TransferResult
from octavo.engine import ModelRunner, load_model
from octavo.engine.building import plan_for
from octavo.engine.config import EngineConfig
from octavo.engine.engine import Engine
from octavo.engine.offloading import offload_maker
from octavo.engine.outputs import FinishReason, RequestOutput
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.scheduler import SchedulerLimits
from octavo.engine.tiny_families import VOCAB_SIZE
from octavo.engine.tiny_models import build_tiny_model, save_tiny_model
from octavo.errors import NotEnoughMemoryError
from octavo.offload import OffloadConfig
from octavo.recording import RequestRecorder
from octavo.tiers import OffloadingSpec, TierContext, spec_from_config
from octavo.transfer import OffloadingWorker, make_worker
from rigs.faulty_tier import FaultyTier
from rigs.offload_always import offload_always

TOLERANCE = 5e-4
"""Of log-probabilities: twice the noise that plain Hugging Face has between one prefill and steps of one token."""
TOLERANCE_OF = {"nemotron_h": 3e-3, "zamba2": 1e-2}
"""Families that clamp time steps in their chunked form only: there the same noise is 1e-3 and 3.5e-3."""
CONTEXT = 192
LONGEST_WAIT_S = 300.0
LONGEST_ANSWER_S = 300.0
"""By the engine's clock, which may jump."""

DEVICE = os.environ.get("OCTAVO_TEST_DEVICE", "cpu")
"""Where engines compute; plain Hugging Face does on a CPU."""

Tokens = list[int]


@dataclass(kw_only=True)
class Answer:
    """What one choice of a request got, or ought to get."""

    tokens: Tokens = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    cached: Mapping[str, int] = field(default_factory=dict)
    finish_reason: FinishReason | None = None
    tolerance: float = TOLERANCE
    """Of a reference: see above."""
    is_close_call: bool = False
    """Of a reference: some token is hardly likelier than another."""

    def take(self, output: RequestOutput) -> None:
        self.tokens += output.token_ids
        self.logprobs += [of_token.logprob for of_token in output.logprobs or ()]
        self.cached = output.cached_tokens or self.cached
        self.finish_reason = output.finish_reason

    def check_begins(self, expected: "Answer") -> None:
        """These are the first tokens of what was expected."""
        assert self.tokens == expected.tokens[: len(self.tokens)]
        assert len(self.tokens) == len(self.logprobs)
        for found, wanted in zip(self.logprobs, expected.logprobs, strict=False):
            assert abs(found - wanted) < expected.tolerance

    def check_is(self, expected: "Answer") -> None:
        assert self.finish_reason is FinishReason.LENGTH
        assert len(self.tokens) == len(expected.tokens)
        self.check_begins(expected)


class Clock:
    """Real time, which a test may let jump."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.skipped

    def skip(self, seconds: float) -> None:
        self.skipped += seconds


class Family:
    """A tiny model of a family: in a folder, in our engines, and in plain Hugging Face, which answers once."""

    def __init__(self, name: str, folder: Path, *, seed: int = 0) -> None:
        self.name = name
        self.folder = folder
        save_tiny_model(name, folder, seed=seed)
        self.model = load_model(folder, device=DEVICE)
        self._plain = build_tiny_model(name, seed=seed)
        self._answers: dict[tuple[tuple[int, ...], int], Answer] = {}
        self._least: int | None = None

    def answer(self, prompt: Sequence[int], num_tokens: int) -> Answer:
        """What plain Hugging Face says."""
        key = (tuple(prompt), num_tokens)
        if key not in self._answers:
            self._answers[key] = self._compute(prompt, num_tokens)
        return self._answers[key]

    def choose(self, chooser: random.Random, prefix: Sequence[int], num_own: int, num_tokens: int) -> Tokens:
        """A prompt of a prefix and tokens of its own, after which nothing is a near tie."""
        while True:
            prompt = [*prefix, *(chooser.randrange(3, VOCAB_SIZE) for _ in range(num_own))]
            if not self.answer(prompt, num_tokens).is_close_call:
                return prompt

    def engine(
        self,
        memory_bytes: int = 8 << 20,
        offload: OffloadConfig | Mapping[str, object] | None = None,
        *,
        clock: Clock | None = None,
        recorder: RequestRecorder | None = None,
        delay: "Delay | None" = None,
        **options: object,
    ) -> Engine:
        """An engine over the model, which is loaded once for all."""
        config = self.config(memory_bytes, **options)
        plan = plan_for(self.model, config)
        manager, runner = KVCacheManager(plan), ModelRunner(self.model, plan)
        runner.pages.pool.fill_(-1)  # a NaN in every float type
        hooks = None
        if offload is not None:
            wanted = offload if isinstance(offload, OffloadConfig) else offload_always(offload)
            with pytest.MonkeyPatch.context() as patch:
                if delay is not None:
                    late = lambda *args, **options: LateWorker(make_worker(*args, **options), delay)  # noqa: E731
                    patch.setattr("octavo.transfer.make_worker", late)
                hooks = offload_maker(config, wanted)(manager, runner)
        limits = SchedulerLimits(
            max_step_tokens=config.max_step_tokens, max_num_seqs=config.max_num_seqs, max_waiting=config.max_waiting
        )
        return Engine(
            runner,
            manager,
            limits,
            vocab_size=self.model.vocab_size,
            offload=hooks,
            recorder=recorder,
            clock=clock or time.monotonic,
        )

    def config(self, memory_bytes: int, **options: object) -> EngineConfig:
        defaults = {"max_model_len": CONTEXT, "max_step_tokens": 96, "max_num_seqs": 8, "attention_block_size": 8}
        return EngineConfig(
            model=self.folder, device_memory_bytes=memory_bytes, **{**defaults, "state_block_size": 16, **options}
        )

    def least_memory(self) -> int:
        """A pool for one longest request."""
        if self._least is None:
            memory = 64 << 10
            while not self._has_room(memory):
                memory += memory // 8
            self._least = memory
        return self._least

    def _has_room(self, memory_bytes: int) -> bool:
        try:
            plan_for(self.model, self.config(memory_bytes))
        except NotEnoughMemoryError:
            return False
        return True

    def _compute(self, prompt: Sequence[int], num_tokens: int) -> Answer:
        with torch.inference_mode():
            output = self._plain.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt)),  # else token 0, the padding, is hidden
                max_new_tokens=num_tokens,
                do_sample=False,
                return_dict_in_generate=True,
                output_logits=True,
            )
        tokens = output.sequences[0, len(prompt) :].tolist()
        logprobs = torch.cat(output.logits).log_softmax(-1)
        best = logprobs.topk(2).values
        tolerance = TOLERANCE_OF.get(self.name, TOLERANCE)
        return Answer(
            tokens=tokens,
            logprobs=logprobs[range(len(tokens)), tokens].tolist(),
            tolerance=tolerance,
            is_close_call=bool((best[:, 0] - best[:, 1]).min() < 2 * tolerance),
        )


def families(*names: str) -> Any:
    """The fixture `family` of a file of tests: the model of each of these families, made once."""

    @pytest.fixture(scope="module", params=names)
    def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
        return Family(request.param, tmp_path_factory.mktemp(request.param))

    return family


def greedy(num_tokens: int, n: int = 1) -> SamplingParams:
    return SamplingParams(max_tokens=num_tokens, temperature=0, ignore_eos=True, logprobs=0, n=n)


def generate(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    num_tokens: int,
    *,
    between_steps: Callable[[], None] = lambda: None,
    cache_salt: str | None = None,
) -> list[Answer]:
    """Answers to prompts that come all at once."""
    answers = [Answer() for _ in prompts]
    for number, prompt in enumerate(prompts):
        engine.add_request(str(number), prompt, greedy(num_tokens), cache_salt=cache_salt)
    began = engine._clock()
    while engine.has_unfinished:
        for output in engine.step():
            answers[int(output.request_id)].take(output)
        between_steps()
        assert engine._clock() - began < LONGEST_ANSWER_S, "the engine hangs"
    return answers


def settle(engine: Engine) -> None:
    """What was computed is stored, on every tier."""
    assert engine._offload.flush(LONGEST_WAIT_S, time.monotonic), "stores do not end"


def forget_device(engine: Engine) -> None:
    """The device's cache is empty, and the tiers are as they were."""
    settle(engine)
    engine.manager.reset_prefix_cache()


def check_nothing_is_held(engine: Engine, clock: Clock) -> None:
    """Every request has ended, and so does every transfer: then no page and no slot belongs to anybody."""
    began = time.monotonic()
    while engine._offload.has_pending_work():
        clock.skip(0.1)  # deadlines pass
        engine.rest()
        engine._offload.wait(0.01)
        assert time.monotonic() - began < LONGEST_WAIT_S, "something is pending for ever"
    assert not engine.manager.requests
    engine.manager.check_invariants()
    engine._offload._manager.check_invariants()
    assert not engine._offload._requests


class FaultySpec(OffloadingSpec):
    """Builds a tier that misbehaves as it is told, over one that works."""

    name = "faulty"
    medium = FaultyTier.medium

    def __init__(self, inner: OffloadingSpec) -> None:
        self._inner = inner
        self.tier: FaultyTier

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> "FaultySpec":
        return cls(spec_from_config(config))

    def build(self, context: TierContext) -> FaultyTier:
        self.tier = FaultyTier(self._inner.build(context))
        return self.tier


@dataclass
class Delay:
    """Between what an engine asks of its worker and the beginning of it. It may change while the engine runs."""

    num_steps: int = 0


class LateWorker(OffloadingWorker):
    """Begins every transfer some steps after it was submitted, when the pages may be others', if nobody holds them."""

    def __init__(self, inner: OffloadingWorker, delay: Delay) -> None:
        self._inner = inner
        self._delay = delay
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        """When each is due, and what it is."""
        self._step = 0

    def submit_store(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        self._submit(lambda: self._inner.submit_store(job_id, chunks))

    def submit_load(self, job_id: int, chunks: Sequence[ChunkCopy]) -> None:
        self._submit(lambda: self._inner.submit_load(job_id, chunks))

    def get_finished(self) -> list[TransferResult]:
        self._step += 1
        while self._waiting and self._waiting[0][0] <= self._step:
            self._waiting.popleft()[1]()
        return self._inner.get_finished()

    def wait(self, job_ids: Sequence[int], timeout_s: float) -> bool:
        return not self._waiting and self._inner.wait(job_ids, timeout_s)

    def wait_any(self, timeout_s: float) -> None:
        if not self._waiting:
            self._inner.wait_any(timeout_s)

    def close(self) -> None:
        self._waiting.clear()
        self._inner.close()

    def _submit(self, begin: Callable[[], None]) -> None:
        if self._delay.num_steps:
            self._waiting.append((self._step + self._delay.num_steps, begin))
        else:
            begin()


def resumed(engine: Engine) -> dict[str, int]:
    """Tokens by medium, all requests together."""
    return dict(engine.counters.tokens_resumed)
