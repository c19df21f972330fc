"""Traffic in which several engines come to hold parts of the same prompts, for `bench_router.py --part busy`.

news        a new document, about which two to eleven users ask one thing each within half a minute
documents   forty documents, some far more popular than others; users ask one or two things
agents      a task of some turns behind one of four system prompts, which two to six sub-agents then carry on at once
systems     chats of up to eight turns, each behind one of six long system prompts
"""

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice

import numpy as np

from octavo.sim import Trace, TraceRequest

BLOCK = 256
ANSWER_TOKENS = 64
_STARTS_AHEAD = 400
"""Documents, tasks and chats that are begun before requests are put in order."""

Asked = tuple[float, list[int], str]
"""A request: when it comes, the ids of its blocks, and its session."""


class _World:
    """Chance, and blocks that nobody has asked about before."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._ids = count(1)
        self._sessions = count(1)

    def blocks(self, fewest: int, most: int) -> list[int]:
        return list(islice(self._ids, self.rng.randint(fewest, most)))

    def session(self) -> str:
        return str(next(self._sessions))

    def starts(self, per_s: float) -> Iterator[float]:
        now = 0.0
        for _ in range(_STARTS_AHEAD):
            now += self.rng.expovariate(per_s)
            yield now


def news(world: _World) -> Iterator[Asked]:
    for start in world.starts(0.7):
        document = world.blocks(16, 48)
        for _ in range(world.rng.randint(2, 11)):
            yield start + world.rng.uniform(0, 30), document + world.blocks(1, 3), world.session()


def documents(world: _World) -> Iterator[Asked]:
    known = [world.blocks(16, 48) for _ in range(40)]
    popularity = [1 / (rank + 1) for rank in range(len(known))]
    for start in world.starts(3.0):
        prompt, session = world.rng.choices(known, popularity)[0] + world.blocks(1, 3), world.session()
        yield start, prompt, session
        if world.rng.random() < 0.5:
            yield start + world.rng.uniform(5, 40), prompt + world.blocks(1, 3), session


def agents(world: _World) -> Iterator[Asked]:
    systems = [world.blocks(24, 24) for _ in range(4)]
    for start in world.starts(0.3):
        now, context, session = start, world.rng.choice(systems) + world.blocks(2, 5), world.session()
        for _ in range(world.rng.randint(1, 3)):
            yield now, context, session
            now += world.rng.uniform(3, 10)
            context = context + world.blocks(2, 8)
        for _ in range(world.rng.randint(2, 6)):
            yield from _turns(world, now + world.rng.uniform(0, 1), context + world.blocks(1, 1), (1, 4), (3, 10))


def systems(world: _World) -> Iterator[Asked]:
    prompts = [world.blocks(24, 64) for _ in range(6)]
    for start in world.starts(1.0):
        yield from _turns(world, start, world.rng.choice(prompts) + world.blocks(1, 1), (1, 8), (5, 40))


def _turns(
    world: _World, now: float, context: list[int], turns: tuple[int, int], pause_s: tuple[float, float]
) -> Iterator[Asked]:
    session = world.session()
    for _ in range(world.rng.randint(*turns)):
        yield now, context, session
        now += world.rng.uniform(*pause_s)
        context = context + world.blocks(1, 4)


TRAFFIC: Mapping[str, Callable[[_World], Iterator[Asked]]] = {
    "news": news,
    "documents": documents,
    "agents": agents,
    "systems": systems,
}


def trace_of(name: str, *, num_requests: int, seed: int) -> Trace:
    """The first requests of a kind of traffic."""
    world = _World(seed)
    asked = sorted(TRAFFIC[name](world), key=lambda one: one[0])[:num_requests]
    requests = [
        TraceRequest(
            arrival_s=when,
            num_prompt_tokens=len(ids) * BLOCK - world.rng.randrange(BLOCK),
            num_output_tokens=ANSWER_TOKENS,
            block_ids=np.array(ids, dtype=np.int32),
            block_tokens=BLOCK,
            knows_output=False,
            session=session,
        )
        for when, ids, session in asked
    ]
    return Trace(requests=requests, block_tokens=BLOCK)
