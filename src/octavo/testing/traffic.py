"""Kinds of traffic for policies: prompts as lists of blocks.

Equal numbers are equal blocks after equal prefixes: [1, 2, 3] and then [1, 2, 7] share two blocks.
"""

from collections.abc import Callable, Iterator
from random import Random

_Prompts = Iterator[list[int]]


class _Blocks:
    """Makes blocks that no prompt had before."""

    def __init__(self) -> None:
        self._next = 1

    def fresh(self, count: int) -> list[int]:
        self._next += count
        return list(range(self._next - count, self._next))


def _scans(chooser: Random, blocks: _Blocks, count: int) -> _Prompts:
    """Few prompts that return, among many that do not."""
    hot = [blocks.fresh(8) for _ in range(6)]
    for _ in range(count):
        yield chooser.choice(hot) + blocks.fresh(1) if chooser.random() < 0.5 else blocks.fresh(12)


def _one_hit_wonders(chooser: Random, blocks: _Blocks, count: int) -> _Prompts:
    """Some documents are asked for often, most prompts once."""
    documents = [blocks.fresh(chooser.randrange(4, 16)) for _ in range(20)]
    weights = [1 / (index + 1) for index in range(20)]
    for _ in range(count):
        is_known = chooser.random() < 0.6
        known = chooser.choices(documents, weights)[0]
        yield known + blocks.fresh(1) if is_known else blocks.fresh(chooser.randrange(5, 16))


def _loops(_: Random, blocks: _Blocks, count: int) -> _Prompts:
    """One document after the other, and again."""
    documents = [blocks.fresh(8) for _ in range(30)]
    for number in range(count):
        yield documents[number % 30] + blocks.fresh(1)


def _shifts(chooser: Random, blocks: _Blocks, count: int) -> _Prompts:
    """Another working set each time."""
    for _ in range(4):
        documents = [blocks.fresh(chooser.randrange(3, 12)) for _ in range(15)]
        for _ in range(count // 4):
            yield documents[min(int(chooser.expovariate(0.3)), 14)] + blocks.fresh(1)


def _agents(chooser: Random, blocks: _Blocks, count: int) -> _Prompts:
    """A few chains that grow long."""
    chains = [blocks.fresh(2) for _ in range(6)]
    for _ in range(count):
        number = chooser.randrange(6)
        chains[number] = blocks.fresh(2) if len(chains[number]) > 20 else chains[number] + blocks.fresh(1)
        yield chains[number]


def _chats(chooser: Random, blocks: _Blocks, count: int) -> _Prompts:
    """Conversations with a common beginning that grow and die."""
    systems = [blocks.fresh(3) for _ in range(2)]
    live: list[list[int]] = []
    for _ in range(count):
        if not live or chooser.random() < 0.2:
            live.append([*chooser.choice(systems)])
        number = chooser.randrange(len(live))
        live[number] = live[number] + blocks.fresh(chooser.randrange(1, 3))
        yield live[number]
        if len(live[number]) > 17 or chooser.random() < 0.1:
            live.pop(number)


def _shared_prompts(chooser: Random, blocks: _Blocks, count: int) -> _Prompts:
    """Many users of some long instructions, few of which are common."""
    systems = [blocks.fresh(chooser.randrange(6, 14)) for _ in range(12)]
    weights = [1 / (index + 1) for index in range(12)]
    for _ in range(count):
        yield chooser.choices(systems, weights)[0] + blocks.fresh(chooser.randrange(1, 8))


def _many_documents(chooser: Random, blocks: _Blocks, count: int) -> _Prompts:
    """Many documents: each is evicted before a policy can see that it is asked for often."""
    documents = [blocks.fresh(chooser.randrange(3, 14)) for _ in range(200)]
    weights = [1 / (index + 1) ** 0.9 for index in range(200)]
    for _ in range(count):
        yield chooser.choices(documents, weights)[0] + blocks.fresh(1)


def _recency(chooser: Random, blocks: _Blocks, count: int) -> _Prompts:
    """Mostly prompts that were asked for lately."""
    documents: list[list[int]] = []
    for _ in range(count):
        if not documents or chooser.random() < 0.3:
            documents.append(blocks.fresh(chooser.randrange(4, 12)))
        document = documents.pop(max(0, len(documents) - 1 - int(chooser.expovariate(0.12))))
        documents.append(document)
        yield document + blocks.fresh(1)


def _mixtures(chooser: Random, blocks: _Blocks, count: int) -> _Prompts:
    """Several kinds at once."""
    kinds = [kind(chooser, blocks, count) for kind in (_scans, _chats, _agents, _many_documents)]
    for _ in range(count):
        yield next(chooser.choice(kinds), blocks.fresh(8))


_KINDS: dict[str, Callable[[Random, _Blocks, int], _Prompts]] = {
    "scans": _scans,
    "one-hit wonders": _one_hit_wonders,
    "loops": _loops,
    "shifts": _shifts,
    "agents": _agents,
    "chats": _chats,
    "shared prompts": _shared_prompts,
    "many documents": _many_documents,
    "recency": _recency,
    "mixtures": _mixtures,
}
TRAFFIC = tuple(_KINDS)
"""The kinds of traffic, by name."""


def make_traffic(kind: str, count: int, *, seed: int) -> _Prompts:
    """`count` prompts of a kind of `TRAFFIC`."""
    return _KINDS[kind](Random(seed), _Blocks(), count)  # noqa: S311 - nothing secret
