"""The default policy beside LRU and ARC on generated traffic as large as a service's, through the whole stack.

    python benchmarks/compare_traffic_policies.py --model examples/models/gpt-oss-20b.json \
        --device 3GiB --memory 8GiB 16GiB 30GiB [--kinds documents loops] [--requests 1200] [--seeds 1]
    ... --block-size 16 --kinds questions tasks turns shots files retries

Kinds, in blocks: `documents`, asked about by Zipf's law; `retrieval`, one to three parts of documents after a system
prompt; `loops`, one document after the other and again; `tenants`, conversations after instructions of different
popularity; `agents`, a few that grow long; `thinking`, conversations that leave out what was thought; `mixture`, four
of these at once. In tokens: `questions` of 20 to 400 about 60 documents of 4,000 to 24,000; `tasks` of 700 to 2,500
about 30 of 6,000 to 40,000; `turns` of 50 to 960 in 60 conversations after one of four instructions; `shots`, something
of 50 to 900 after one of 50 lists of examples, by Zipf's law; `files`, questions about 120 files of eight repositories,
by Zipf's law; `retries`, 20 prompts of 500 to 12,000 at a time, two to eight times each. Points of a hundred: what each
resumes of the prompts' tokens; `ahead`: what the default resumes more than the better of LRU and ARC.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from octavo.planning import KVCacheConfig, plan_kv_cache, read_model
from octavo.sim import SimConfig, Trace, replay
from octavo.specs import RequestLimits
from octavo.units import parse_bytes

INTERVAL_S = 3.0
STEP_TOKENS = 8192
POLICIES = ("lru", "arc", "resume_points")

Prompts = Iterator[list[int]]


class Blocks:
    """Makes blocks that no prompt had before."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._next = 1
        self._after: dict[tuple[int, tuple[int, int]], int] = {}

    def fresh(self, count: int) -> list[int]:
        self._next += count
        return list(range(self._next - count, self._next))

    def of_tokens(self, count: int) -> list[int]:
        return self.fresh(max(1, count // self._block_tokens))

    def after(self, before: int, text: tuple[int, int]) -> int:
        """The block of this text after that block: equal texts after different prefixes are different blocks."""
        if (before, text) not in self._after:
            self._after[before, text] = self.fresh(1)[0]
        return self._after[before, text]


def by_zipf(chooser: Random, count: int) -> int:
    return chooser.choices(range(count), [1 / (index + 1) for index in range(count)])[0]


def documents(chooser: Random, blocks: Blocks) -> Prompts:
    texts = [blocks.fresh(chooser.randrange(4, 30)) for _ in range(400)]
    while True:
        yield texts[by_zipf(chooser, 400)] + blocks.fresh(1)


def retrieval(chooser: Random, blocks: Blocks) -> Prompts:
    system = blocks.fresh(2)
    lengths = [chooser.randrange(2, 8) for _ in range(120)]
    while True:
        prompt = list(system)
        for _ in range(chooser.randrange(1, 4)):
            document = by_zipf(chooser, 120)
            for place in range(lengths[document]):
                prompt.append(blocks.after(prompt[-1], (document, place)))
        yield prompt + blocks.fresh(1)


def loops(chooser: Random, blocks: Blocks, count: int = 150) -> Prompts:
    texts = [blocks.fresh(chooser.randrange(6, 14)) for _ in range(count)]
    while True:
        for text in texts:
            yield text + blocks.fresh(1)


def tenants(chooser: Random, blocks: Blocks) -> Prompts:
    instructions = [blocks.fresh(chooser.randrange(4, 12)) for _ in range(24)]
    live: list[list[list[int]]] = [[] for _ in instructions]
    while True:
        tenant = by_zipf(chooser, len(instructions))
        chats = live[tenant]
        if not chats or chooser.random() < 0.35:
            chats.append(list(instructions[tenant]))
        chat = chooser.randrange(len(chats))
        chats[chat] = chats[chat] + blocks.fresh(chooser.randrange(1, 4))
        yield chats[chat]
        if len(chats[chat]) > 40 or chooser.random() < 0.15:
            chats.pop(chat)


def agents(chooser: Random, blocks: Blocks) -> Prompts:
    systems = [blocks.fresh(6) for _ in range(3)]
    live: list[list[int]] = []
    while True:
        if len(live) < 12 and (not live or chooser.random() < 0.15):
            live.append(chooser.choice(systems) + blocks.fresh(2))
        agent = chooser.randrange(len(live))
        yield live[agent]
        live[agent] = live[agent] + blocks.fresh(chooser.randrange(1, 5))
        if len(live[agent]) > 90:
            live.pop(agent)


def thinking(chooser: Random, blocks: Blocks) -> Prompts:
    live: list[list[int]] = []
    while True:
        if len(live) < 40 and (not live or chooser.random() < 0.3):
            live.append(blocks.fresh(3))
        chat = chooser.randrange(len(live))
        yield live[chat] + blocks.fresh(1)
        live[chat] = live[chat] + blocks.fresh(2)
        if len(live[chat]) > 15 or chooser.random() < 0.1:
            live.pop(chat)


def mixture(chooser: Random, blocks: Blocks) -> Prompts:
    kinds = [documents(chooser, blocks), tenants(chooser, blocks), agents(chooser, blocks), loops(chooser, blocks, 40)]
    while True:
        yield next(chooser.choice(kinds))


def questions(chooser: Random, blocks: Blocks) -> Prompts:
    texts = [blocks.of_tokens(chooser.randrange(4000, 24_000)) for _ in range(60)]
    while True:
        yield chooser.choice(texts) + blocks.of_tokens(chooser.choice([20, 40, 60, 100, 200, 400]))


def tasks(chooser: Random, blocks: Blocks) -> Prompts:
    texts = [blocks.of_tokens(chooser.randrange(6000, 40_000)) for _ in range(30)]
    while True:
        yield chooser.choice(texts) + blocks.of_tokens(chooser.choice([700, 1200, 2500]))


def turns(chooser: Random, blocks: Blocks) -> Prompts:
    instructions = [blocks.of_tokens(chooser.randrange(160, 1920)) for _ in range(4)]
    live: list[list[int]] = []
    while True:
        if len(live) < 60 and (not live or chooser.random() < 0.3):
            live.append(chooser.choice(instructions) + blocks.of_tokens(chooser.randrange(32, 960)))
        chat = chooser.randrange(len(live))
        yield live[chat]
        live[chat] = live[chat] + blocks.of_tokens(chooser.randrange(48, 960))
        if chooser.random() < 0.15:
            live.pop(chat)


def shots(chooser: Random, blocks: Blocks) -> Prompts:
    examples = [blocks.of_tokens(chooser.randrange(1500, 9000)) for _ in range(50)]
    while True:
        yield examples[by_zipf(chooser, 50)] + blocks.of_tokens(chooser.randrange(50, 900))


def files(chooser: Random, blocks: Blocks) -> Prompts:
    system = blocks.of_tokens(1500)
    repositories = [system + blocks.of_tokens(chooser.randrange(4000, 12_000)) for _ in range(8)]
    texts = [chooser.choice(repositories) + blocks.of_tokens(chooser.randrange(500, 6000)) for _ in range(120)]
    while True:
        yield texts[by_zipf(chooser, 120)] + blocks.of_tokens(chooser.randrange(30, 600))


def retries(chooser: Random, blocks: Blocks) -> Prompts:
    live: list[tuple[list[int], int]] = []
    while True:
        if len(live) < 20:
            live.append((blocks.of_tokens(chooser.randrange(500, 12_000)), chooser.randrange(2, 9)))
        prompt, num_times = live.pop(chooser.randrange(len(live)))
        yield prompt
        if num_times > 1:
            live.append((prompt, num_times - 1))


IN_BLOCKS = (documents, retrieval, loops, tenants, agents, thinking, mixture)
KINDS: dict[str, Callable[[Random, Blocks], Prompts]] = {
    kind.__name__: kind for kind in (*IN_BLOCKS, questions, tasks, turns, shots, files, retries)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--memory", nargs="+", required=True)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[kind.__name__ for kind in IN_BLOCKS])
    parser.add_argument("--block-size", type=int, default=512, help="in tokens")
    parser.add_argument("--requests", type=int, default=1200, help="of each trace")
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    print(f"{'':12}{'seed':>6}{'memory':>10}" + "".join(f"{name:>15}" for name in (*POLICIES, "ahead")))
    all_ahead = []
    for kind in args.kinds:
        for seed in range(1, args.seeds + 1):
            trace = make_trace(kind, args.requests, seed, args.block_size)
            plan = plan_for(trace, args.model, args.device, args.block_size)
            for memory in args.memory:
                resumed = [100 * resumed_share(trace, plan, memory, policy) for policy in POLICIES]
                ahead = resumed[-1] - max(resumed[:-1])
                all_ahead.append(ahead)
                print(f"{kind:12}{seed:>6}{memory:>10}" + "".join(f"{v:15.2f}" for v in (*resumed, ahead)), flush=True)
    below = sum(points < -0.2 for points in all_ahead)
    lost = sum(min(0.0, points) for points in all_ahead) / len(all_ahead)
    print(
        f"ahead: {sum(all_ahead) / len(all_ahead):+.2f} in the mean of {len(all_ahead)}, {lost:+.2f} lost, "
        f"{min(all_ahead):+.2f} at worst, {below} below -0.2"
    )


def make_trace(kind: str, num_requests: int, seed: int, block_tokens: int) -> Trace:
    source = KINDS[kind](Random(seed), Blocks(block_tokens))
    prompts = [next(source) for _ in range(num_requests)]
    return Trace.of_prompts(prompts, block_tokens=block_tokens, interval_s=INTERVAL_S)


def plan_for(trace: Trace, model: Path, device: str, block_tokens: int) -> KVCacheConfig:
    limits = RequestLimits(max_model_len=trace.longest + 1, max_step_tokens=STEP_TOKENS)
    layers = read_model(model, block_size=block_tokens).layers
    return plan_kv_cache(layers, memory_bytes=parse_bytes(device), limits=limits)


def resumed_share(trace: Trace, plan: KVCacheConfig, memory: str, policy: str) -> float:
    return replay(trace, SimConfig(plan=plan, memory_bytes=parse_bytes(memory), policy=policy)).resumed_share


if __name__ == "__main__":
    main()
