"""The demonstration: a chat about a long document, over a small model of each kind of layers.

Each turn of a chat repeats all turns before it. The same turns are served by an engine that computes everything again,
and by engines that find the earlier turns in the prefix cache, in memory, and after a restart on disk. The first token
must come sooner, and no answer may differ by a token.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from msgspec.structs import replace

from octavo.cli.commands.demo.kinds import DOCUMENT_TOKENS, KINDS
from octavo.engine import Engine, EngineConfig, SamplingParams, load_model, offload_maker, plan_for, save_tiny_model
from octavo.errors import NotEnoughMemoryError
from octavo.offload import OffloadConfig
from octavo.planning import KVCacheConfig
from octavo.specs import ResumePoint

COMPUTED = "computed again"
DEVICE = "from the prefix cache"
MEMORY = "from memory"
DISK = "from disk, after a restart"
MEDIA: Mapping[str, str] = {DEVICE: "device", MEMORY: "memory", DISK: "disk"}
"""The ways in which turns begin sooner, one turn each, with the medium that most tokens come from."""

_VOCABULARY = 256
"""Token ids that every tiny model has."""
_STATE_TOKENS = 64
"""A recurrent state is kept once in this number of tokens."""
_ANSWER_TOKENS = 8
_QUESTION_TOKENS = _STATE_TOKENS - _ANSWER_TOKENS
"""So all turns leave the same number of tokens to compute, and differ in where the rest comes from."""
NUM_TURNS = 1 + len(MEDIA)
NUM_STEPS = 2 * NUM_TURNS + 3
"""The turns of one kind: the chat twice, and three of another chat."""
_OFFLOAD: Mapping[str, Any] = {"memory": "128MiB", "loads": "always"}
"""Turns are loaded even if a slow first load makes computing look quicker, so that each is what its line says."""
_DISK_SIZE = "256MiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of the chat, as it was served."""

    prompt_tokens: int
    answer: tuple[int, ...]
    first_token_s: float
    resumed: Mapping[str, int]
    """By medium, the tokens that were resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNeed:
    """The blocks of one group of layers that a resume needs, of those that cover all tokens before it."""

    kind: str
    blocks: int
    blocks_in_all: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KindResult:
    """The chat's turns over one model, computed again and resumed."""

    kind: str
    family: str
    computed: Sequence[Turn]
    served: Sequence[Turn]
    needs: Sequence[GroupNeed]
    """What the last turn needed of what was computed before it."""

    @property
    def num_differing(self) -> int:
        """The number of answers that differ by at least one token."""
        return sum(ours.answer != theirs.answer for ours, theirs in zip(self.computed, self.served, strict=True))

    def turn(self, way: str) -> Turn:
        """The turn that resumed from this one of the `MEDIA`."""
        return self.served[1 + list(MEDIA).index(way)]

    def first_token_s(self, way: str) -> float:
        """The computed turn that other work on the machine delayed least; the first one also warms up."""
        if way == COMPUTED:
            return min(turn.first_token_s for turn in self.computed[1:])
        return self.turn(way).first_token_s

    def times_sooner(self, way: str) -> float:
        return self.first_token_s(COMPUTED) / self.first_token_s(way)


def run_kind(
    kind: str, folder: Path, *, document_tokens: int = DOCUMENT_TOKENS, advance: Callable[[str], None] = lambda _: None
) -> KindResult:
    """Serves the chat twice. `advance` hears before each of the `NUM_STEPS` turns in which way it is served."""
    family, shape = KINDS[kind]
    model = folder / family
    save_tiny_model(family, model, **shape)
    max_model_len = document_tokens + NUM_TURNS * (_QUESTION_TOKENS + _ANSWER_TOKENS)
    caching = _config_for_one_chat(model, max_model_len)
    disk = {"type": "disk", "path": str(folder / f"{family}-disk"), "size": _DISK_SIZE}
    offload = OffloadConfig.from_mapping({**_OFFLOAD, "tiers": [disk]})

    def serve(engine: Engine, chat: "_Chat", way: str) -> Turn:
        advance(way)
        return chat.go_on(engine)

    chat = _Chat(document_tokens)
    with closing(_open(replace(caching, enable_prefix_caching=False))) as engine:
        computed = [serve(engine, chat, COMPUTED) for _ in range(NUM_TURNS)]
    chat, other = _Chat(document_tokens), _Chat(document_tokens, seed=1)
    with closing(_open(caching, offload)) as engine:
        serve(engine, other, COMPUTED)
        serve(engine, other, DEVICE)  # warms up the end of a prompt
        served = [serve(engine, chat, COMPUTED), serve(engine, chat, DEVICE)]
        serve(engine, other, MEMORY)  # pushes the chat out of the device
        served.append(serve(engine, chat, MEMORY))
    with closing(_open(caching, offload)) as engine:
        served.append(serve(engine, chat, DISK))
    needs = _needs_of(engine.manager.config, sum(served[-1].resumed.values()))
    return KindResult(kind=kind, family=family, computed=computed, served=served, needs=needs)


def _needs_of(plan: KVCacheConfig, num_tokens: int) -> list[GroupNeed]:
    """What each group needs to go on after this number of tokens."""
    return [
        GroupNeed(
            kind=group.kind,
            blocks=sum(map(len, group.spec.needed_blocks(ResumePoint(num_tokens=num_tokens)))),
            blocks_in_all=num_tokens // group.block_size,
        )
        for group in plan.groups
    ]


def _open(config: EngineConfig, offload: OffloadConfig | None = None) -> Engine:
    """An engine that is loaded. The garbage collector follows it no more, as in servers: a full collection takes a
    quarter of a second, and would count as the time of one turn."""
    engine = Engine.from_config(config, make_offload=offload_maker(config, offload) if offload else None)
    gc.collect()
    gc.freeze()
    return engine


class _Chat:
    """Questions about a document, with all turns so far."""

    def __init__(self, document_tokens: int, *, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        self._said = self._new_tokens(document_tokens)

    def go_on(self, engine: Engine) -> Turn:
        """Asks the next question."""
        self._said += self._new_tokens(_QUESTION_TOKENS)
        prompt_tokens = len(self._said)
        params = SamplingParams(max_tokens=_ANSWER_TOKENS, temperature=0.0, ignore_eos=True)
        before = engine.snapshot().counters.tokens_resumed
        began = perf_counter()
        engine.add_request(f"prompt of {prompt_tokens}", self._said, params)
        answer: list[int] = []
        first_token_s = 0.0
        while engine.has_unfinished:
            for output in engine.step():
                if output.token_ids and not answer:
                    first_token_s = perf_counter() - began
                answer += output.token_ids
        self._said += answer
        after = engine.snapshot().counters.tokens_resumed
        return Turn(
            prompt_tokens=prompt_tokens,
            answer=tuple(answer),
            first_token_s=first_token_s,
            resumed={medium: count - before.get(medium, 0) for medium, count in after.items()},
        )

    def _new_tokens(self, count: int) -> list[int]:
        tokens: list[int] = self._random.integers(3, _VOCABULARY, count).tolist()
        return tokens


def _config_for_one_chat(model: Path, max_model_len: int) -> EngineConfig:
    """A configuration whose pool holds one chat at its longest, and no second one."""
    loaded = load_model(model)
    pool_bytes = 1 << 20
    config = EngineConfig(model=model, max_model_len=max_model_len, state_block_size=_STATE_TOKENS)
    while True:
        config = replace(config, device_memory_bytes=pool_bytes)
        try:
            plan_for(loaded, config)
        except NotEnoughMemoryError:
            pool_bytes = pool_bytes * 9 // 8
        else:
            return config
