"""The demonstration: conversations that do not fit the device, over a tiny model of each kind, with ever more tiers.

The same turns are served with nothing, with the prefix cache, with a memory tier, with a disk tier, and by a new engine
that finds the former one's disk. What is computed shrinks; what comes out must not change by a token.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from octavo.engine.building import plan_for
from octavo.engine.config import EngineConfig
from octavo.engine.engine import Engine
from octavo.engine.models import load_model
from octavo.engine.offloading import offload_maker
from octavo.engine.sampling_params import SamplingParams
from octavo.errors import NotEnoughMemoryError
from octavo.offload import OffloadConfig

KINDS: Mapping[str, str] = {
    "full": "llama",
    "window + full": "gemma3",
    "state + full": "qwen3_next",
    "latent": "deepseek_v3",
    "sinks": "gpt_oss",
}
"""By the kinds of its layers, the family of a model."""

NUM_CONVERSATIONS = 5
NUM_TURNS = 3
QUESTION_TOKENS = 100
ANSWER_TOKENS = 8
_MAX_MODEL_LEN = 384
_CONVERSATIONS_ON_DEVICE = 2
"""Of the longest kind."""

Conversation = list[int]


@dataclass(slots=True, kw_only=True)
class ModeResult:
    """What one way of serving took for all turns."""

    kind: str
    mode: str
    tokens_computed: int = 0
    resumed: dict[str, int] = field(default_factory=dict)
    """By medium."""
    first_token_s: list[float] = field(default_factory=list)
    bytes_stored: int = 0
    bytes_loaded: int = 0
    answers: list[list[int]] = field(default_factory=list)

    @property
    def mean_first_token_s(self) -> float:
        return sum(self.first_token_s) / len(self.first_token_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way of serving."""

    name: str
    is_caching: bool = True
    offload: Mapping[str, Any] | None = None


def modes(disk: Path) -> list[Mode]:
    on_disk = {"staging": "32MiB", "tiers": [{"type": "disk", "path": str(disk), "size": "256MiB"}]}
    return [
        Mode(name="nothing", is_caching=False),
        Mode(name="prefix cache"),
        Mode(name="+ memory", offload={"memory": "64MiB"}),
        Mode(name="+ disk", offload=on_disk),
        Mode(name="after a restart", offload=on_disk),
    ]


def run_kind(
    kind: str, model: Path, disk: Path, *, advance: Callable[[str], None] = lambda _: None
) -> Iterator[ModeResult]:
    """Serves the same conversations in every mode. `advance` is told after each turn which mode it was."""
    memory = pool_bytes(model)
    for mode in modes(disk):
        config = engine_config(model, memory, is_caching=mode.is_caching)
        make_offload = None
        if mode.offload is not None:
            make_offload = offload_maker(config, OffloadConfig.from_mapping(mode.offload))
        engine = Engine.from_config(config, make_offload=make_offload)
        result = ModeResult(kind=kind, mode=mode.name)
        for conversation in conversations(engine.vocab_size):
            answer(engine, conversation, result)
            advance(mode.name)
        count(engine, result)
        engine.close()
        yield result


def first_difference(results: Sequence[ModeResult]) -> str | None:
    """The first mode whose answers are not those of the first; None if there is none."""
    return next((result.mode for result in results if result.answers != results[0].answers), None)


def num_turns() -> int:
    """Of one kind, over all modes."""
    return NUM_CONVERSATIONS * NUM_TURNS * len(modes(Path()))


def conversations(vocab_size: int) -> Iterator[Conversation]:
    """Each conversation again and again, one turn longer each time; by then others have used the device, mostly."""
    random = np.random.default_rng(7)
    histories: list[Conversation] = [[] for _ in range(NUM_CONVERSATIONS)]
    for _ in range(NUM_TURNS):
        for place in random.permutation(NUM_CONVERSATIONS):
            history = histories[place]
            history += random.integers(3, vocab_size, QUESTION_TOKENS).tolist()
            yield history


def answer(engine: Engine, conversation: Conversation, result: ModeResult) -> None:
    """Serves one turn, and adds the answer to the conversation."""
    params = SamplingParams(max_tokens=ANSWER_TOKENS, temperature=0.0, ignore_eos=True)
    began = perf_counter()
    engine.add_request(f"turn {len(result.answers)}", conversation, params)
    tokens: list[int] = []
    while engine.has_unfinished:
        for output in engine.step():
            if not tokens and output.token_ids:
                result.first_token_s.append(perf_counter() - began)
            tokens += output.token_ids
    result.answers.append(tokens)
    conversation += tokens


def count(engine: Engine, result: ModeResult) -> None:
    counters = engine.snapshot().counters
    result.tokens_computed = counters.prefill_tokens_computed
    result.resumed = dict(counters.tokens_resumed)
    if (stats := engine.offload_stats()) is not None:
        result.bytes_stored, result.bytes_loaded = stats.stored_bytes, stats.loaded_bytes


def pool_bytes(model: Path) -> int:
    """Room for little more than one conversation at its longest."""
    loaded = load_model(model)
    memory = 64 << 10
    while True:
        try:
            plan_for(loaded, engine_config(model, memory))
        except NotEnoughMemoryError:
            memory += memory // 8
        else:
            return int(memory * _CONVERSATIONS_ON_DEVICE)


def engine_config(model: Path, memory_bytes: int, *, is_caching: bool = True) -> EngineConfig:
    return EngineConfig(
        model=model,
        device_memory_bytes=memory_bytes,
        max_model_len=_MAX_MODEL_LEN,
        max_step_tokens=256,
        max_num_seqs=8,
        state_block_size=64,
        enable_prefix_caching=is_caching,
    )
