"""The default policy beside LRU and ARC on random mixtures of requests, through the scheduler.

    python benchmarks/compare_random_policies.py --seeds 1 36 [--models window state]

A seed chooses up to four sources of one kind or several and their sizes; weights between them that change now and then;
a model, a share of the footprint as memory, and whether requests come faster than they are served. So nothing is tuned
on these cases, and any range of seeds is as good as another. Points of a hundred of the prompts' tokens; `ahead`: what
the default resumes more than the better of LRU and ARC.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, cycle, islice
from random import Random

from octavo.sim import SimConfig, Speeds, Trace, replay
from octavo.specs import RequestLimits
from octavo.testing import SmallModel, full, small_model, state, window

BLOCK = 4
MOST_BLOCKS = 120
"""Of a prompt."""
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3)
FEWEST_BLOCKS = 64
"""The least memory: any prompt of the smaller sources fits."""
POLICIES = ("lru", "arc", "resume_points")

_model = partial(small_model, limits=RequestLimits(max_model_len=800, max_step_tokens=256))
MODELS: dict[str, SmallModel] = {
    "window": _model(window(8, heads=32), full(4, heads=64)),
    "heavy window": _model(window(16, heads=96), full(4, heads=32)),
    "state": _model(state(4, elements=8192), full(4, heads=32)),
    "window + state": _model(window(8, heads=64), state(4, elements=2048), full(4, heads=32)),
    "full": _model(full(4, heads=64)),
}

Prompts = Iterator[list[int]]


class Source:
    """The sizes that a seed has chosen for a source, and its documents."""

    def __init__(self, chooser: Random, numbers: Iterator[int]) -> None:
        self.chooser, self._numbers = chooser, numbers
        self.skew = chooser.uniform(0.4, 1.6)
        self.length = chooser.choice([2, 6, 15, 40])
        self.tail = chooser.choice([1, 2, 5])
        self.end = chooser.choice([0.02, 0.1, 0.3])
        """How likely a conversation is to end after a turn."""
        self.most_live = chooser.choice([1, 5, 30])
        num_documents = chooser.choice([10, 30, 100, 300])
        self.documents = [self.fresh(chooser.randint(1, 2 * self.length)) for _ in range(num_documents)]
        self.system = self.fresh(chooser.choice([0, 3, 10]))

    def fresh(self, num_blocks: int) -> list[int]:
        return list(islice(self._numbers, num_blocks))

    def popular(self) -> list[int]:
        return self.documents[int(self.chooser.paretovariate(self.skew) - 1) % len(self.documents)]


def documents(source: Source) -> Prompts:
    while True:
        yield source.popular() + source.fresh(source.tail)


def drift(source: Source) -> Prompts:
    """Other documents are popular after a while."""
    while True:
        source.chooser.shuffle(source.documents)
        for _ in range(60):
            yield source.popular() + source.fresh(source.tail)


def loop(source: Source) -> Prompts:
    for document in cycle(source.documents[:40]):
        yield document + source.fresh(source.chooser.randint(0, 1))


def scan(source: Source) -> Prompts:
    while True:
        yield source.system + source.fresh(source.length)


def burst(source: Source) -> Prompts:
    while True:
        beginning = source.fresh(source.length)
        for _ in range(8):
            yield beginning + source.fresh(source.tail)


def retrieval(source: Source) -> Prompts:
    """A document, and up to two more or something new."""
    while True:
        prompt = source.system + source.popular()
        for _ in range(source.chooser.randint(0, 2)):
            prompt += source.popular() if source.chooser.random() < 0.5 else source.fresh(2)
        yield prompt + source.fresh(1)


def chats(source: Source) -> Prompts:
    yield from _talks(source, goes_back=0.0)


def agents(source: Source) -> Prompts:
    """Some go on from an earlier step."""
    yield from _talks(source, goes_back=0.15)


def _talks(source: Source, goes_back: float) -> Prompts:
    chooser, live = source.chooser, list[list[int]]()
    while True:
        if not live or (len(live) < source.most_live and chooser.random() < 0.3):
            live.append(source.system + source.fresh(chooser.randint(1, source.length)))
        talk = chooser.randrange(len(live))
        so_far = live[talk]
        if chooser.random() < goes_back:
            so_far = so_far[: max(1, len(so_far) - chooser.randint(1, 8))]
        prompt = so_far + source.fresh(source.tail)
        live[talk] = prompt + source.fresh(chooser.randint(0, 2))
        if chooser.random() < source.end or len(prompt) > 120:
            live.pop(talk)
        yield prompt


KINDS: tuple[Callable[[Source], Prompts], ...] = (documents, drift, loop, scan, burst, retrieval, chats, agents)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, required=True, metavar=("FIRST", "LAST"))
    parser.add_argument("--models", choices=MODELS, nargs="+", default=[name for name in MODELS if name != "full"])
    parser.add_argument("--requests", type=int, default=600)
    args = parser.parse_args()
    print(f"{'seed':>5} {'model':16}{'memory':>7}" + "".join(f"{policy:>15}" for policy in POLICIES) + f"{'ahead':>8}")
    first, last = args.seeds
    ahead = [run_case(seed, args.models, args.requests) for seed in range(first, last + 1)]
    lost = sum(min(0.0, points) for points in ahead) / len(ahead)
    num_below = sum(points < -0.2 for points in ahead)
    mean = sum(ahead) / len(ahead)
    print(
        f"ahead: {mean:+.2f} in the mean of {len(ahead)}, {lost:+.2f} lost, {min(ahead):+.2f} at worst, "
        f"{num_below} below -0.2"
    )


def run_case(seed: int, models: list[str], num_requests: int) -> float:
    chooser = Random(seed)
    model, share, is_busy = chooser.choice(models), chooser.choice(SHARES), chooser.random() < 0.3
    kinds, prompts = mix(chooser)
    trace = Trace.of_prompts(
        [prompt[:MOST_BLOCKS] for prompt in islice(prompts, num_requests)],
        block_tokens=BLOCK,
        interval_s=0.02 if is_busy else 10.0,
    )
    shares = [100 * resumed_share(MODELS[model], trace, share, policy, is_busy=is_busy) for policy in POLICIES]
    points = shares[-1] - max(shares[:-1])
    figures = "".join(f"{percent:15.2f}" for percent in shares)
    print(f"{seed:>5} {model:16}{share:7.0%}{figures}{points:8.2f}  {'busy: ' * is_busy}{', '.join(kinds)}", flush=True)
    return points


def mix(chooser: Random) -> tuple[list[str], Prompts]:
    """The names of some sources, and prompts from all of them."""
    numbers = count(1)
    kinds = chooser.choices(KINDS, k=chooser.choice([1, 1, 2, 3, 4]))
    sources = [kind(Source(chooser, numbers)) for kind in kinds]

    def prompts() -> Prompts:
        weights = [chooser.random() + 0.1 for _ in sources]
        while True:
            if chooser.random() < 0.003:
                weights = [chooser.random() ** 2 + 0.02 for _ in sources]
            yield next(chooser.choices(sources, weights)[0])

    return [kind.__name__ for kind in kinds], prompts()


def resumed_share(model: SmallModel, trace: Trace, share: float, policy: str, *, is_busy: bool) -> float:
    plan = model.plan(1.0 if is_busy else 0.2)
    block_bytes = sum(group.page_bytes for group in plan.groups)
    num_blocks = len({int(i) for request in trace.requests for i in request.block_ids})
    config = SimConfig(
        plan=plan,
        memory_bytes=block_bytes * max(FEWEST_BLOCKS, int(share * num_blocks)),
        policy=policy,
        speeds=Speeds(memory_bytes_per_s=1e18, prefill_tokens_per_s=300.0 if is_busy else 10_000.0),
    )
    return replay(trace, config).resumed_share


if __name__ == "__main__":
    main()
