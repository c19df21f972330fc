"""The default policy between two limits: LRU over all that is computed, and a policy that knows the future.

    python benchmarks/compare_with_foresight.py --requests 300 --seeds 2
    python benchmarks/compare_with_foresight.py --trace TRACE --requests 2000 --skip 0 2000

A model of which a block takes one part of memory in full attention, five in windows and eight in states (`--model
full`: with full attention alone), one request after the other, memory for a share of the footprint of all blocks, and a
device for little more than one request. Shares of the prompts' tokens that are resumed:

all       every block of every layer is stored, as vLLM's own offloading does, and LRU chooses
masked    LRU over what the writer promises, through the scheduler
default   the default policy over the same, through the scheduler
future    resume points chosen greedily by who knows all later requests: what saves the fewest tokens per byte and time
          until its next use goes first. No order is known that is sure to be the best

The first and the last have the device's memory too.
"""

import argparse
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from octavo.planning import KVCacheConfig
from octavo.sim import SimConfig, Speeds, Trace, read_trace, replay
from octavo.specs import RequestLimits
from octavo.testing import TRAFFIC, full, make_traffic, small_model, state, window

BLOCK = 4
WINDOW_BLOCKS = 2
MODELS = {
    "hybrid": (window(WINDOW_BLOCKS * BLOCK, heads=320), state(BLOCK, elements=8192), full(BLOCK, heads=64)),
    "full": (full(BLOCK, heads=64),),
}

Path_ = Sequence[int]
"""A prompt, as nodes of the tree of all prompts: equal beginnings have equal nodes."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a block in full attention, in windows and in states."""

    full: int
    window: int
    state: int

    @classmethod
    def of(cls, plan: KVCacheConfig) -> "Sizes":
        by_kind = {group.kind: group.page_bytes for group in plan.groups}
        return cls(by_kind["full_attention"], by_kind.get("sliding_window", 0), by_kind.get("mamba", 0))

    @property
    def together(self) -> int:
        return self.full + self.window + self.state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="hybrid")
    parser.add_argument("--requests", type=int, default=300, help="of each trace")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.01, 0.03, 0.1, 0.3], help="of the footprint")
    parser.add_argument("--trace", type=Path, help="a file in place of generated traffic")
    parser.add_argument("--skip", type=int, nargs="+", default=[0], help="where stretches of the file begin")
    args = parser.parse_args()
    print(f"{'':24}{'share':>6}{'all':>8}{'masked':>8}{'default':>8}{'future':>8}")
    pooled = [0.0] * 4
    for name, prompts in traces(args):
        for share in args.shares:
            figures = Case(prompts, args.model, share).figures()
            pooled = [total + figure for total, figure in zip(pooled, figures, strict=True)]
            print(f"{name:24}{share:6.0%}" + "".join(f"{figure:8.1%}" for figure in figures), flush=True)
    every, masked, ours, future = pooled
    print(f"of the gap to the future: {(ours - every) / (future - every):.0%} from all, ", end="")
    print(f"{(ours - masked) / (future - masked):.0%} from masked, pooled")


def traces(args: argparse.Namespace) -> Iterator[tuple[str, Sequence[Sequence[int]]]]:
    """Names, and prompts as blocks."""
    if args.trace:
        requests = read_trace(args.trace).requests
        for skip in args.skip:
            stretch = requests[skip : skip + args.requests]
            blocks = [request.block_ids[: request.num_prompt_tokens // request.block_tokens] for request in stretch]
            yield f"from {skip}", [ids.tolist() for ids in blocks if len(ids)]
        return
    for kind in TRAFFIC:
        for seed in range(1, args.seeds + 1):
            yield f"{kind}, {seed}", list(make_traffic(kind, args.requests, seed=seed))


class Case:
    """Prompts, a model, and memory for a share of the footprint."""

    def __init__(self, prompts: Sequence[Sequence[int]], model: str, share: float) -> None:
        self.prompts = prompts
        limits = RequestLimits(max_model_len=(max(map(len, prompts)) + 2) * BLOCK, max_step_tokens=256)
        self.plan = small_model(*MODELS[model], limits=limits).plan(0.2)
        self.sizes = Sizes.of(self.plan)
        self.paths = paths_of(prompts)
        num_nodes = len({node for path in self.paths for node in path})
        self.memory_bytes = int(num_nodes * self.sizes.together * share)

    def figures(self) -> list[float]:
        total = sum(map(len, self.paths))
        num_bytes = self.memory_bytes + self.plan.memory_bytes
        every, future = AllStored(self.sizes, num_bytes), Foreseen(self.sizes, num_bytes, self.paths)
        return [
            sum(map(every.serve, self.paths)) / total,
            self._through_the_scheduler("lru"),
            self._through_the_scheduler("resume_points"),
            sum(map(future.serve, range(len(self.paths)))) / total,
        ]

    def _through_the_scheduler(self, policy: str) -> float:
        trace = Trace.of_prompts(self.prompts, block_tokens=BLOCK, interval_s=10.0)
        speeds = Speeds(memory_bytes_per_s=1e18, prefill_tokens_per_s=10_000.0)
        config = SimConfig(plan=self.plan, memory_bytes=self.memory_bytes, policy=policy, speeds=speeds)
        return replay(trace, config).resumed_share


def paths_of(prompts: Sequence[Sequence[int]]) -> list[Path_]:
    numbers = count(1)
    nodes: defaultdict[tuple[int, int], int] = defaultdict(lambda: next(numbers))
    paths: list[Path_] = []
    for prompt in prompts:
        path, node = list[int](), 0
        for block in prompt:
            node = nodes[node, block]
            path.append(node)
        paths.append(path)
    return paths


class AllStored:
    """LRU over chunks: every block of every layer."""

    def __init__(self, sizes: Sizes, memory_bytes: int) -> None:
        self._sizes = {"full": sizes.full, "window": sizes.window, "state": sizes.state}
        self._kinds = [kind for kind, size in self._sizes.items() if size]
        self._free = memory_bytes
        self._chunks: OrderedDict[tuple[str, int], None] = OrderedDict()
        """The least recently used first."""

    def serve(self, path: Path_) -> int:
        """Serves a prompt. Returns how many of its blocks are resumed."""
        depth = self._longest(path)
        for chunk in reversed([chunk for chunk in self._needed(path, depth) if chunk in self._chunks]):
            self._chunks.move_to_end(chunk)
        new = [(kind, node) for node in path[depth:] for kind in self._kinds if (kind, node) not in self._chunks]
        for chunk in reversed(new):  # the end of a sequence goes first
            self._chunks[chunk] = None
            self._free -= self._sizes[chunk[0]]
        while self._free < 0:
            (kind, _), _ = self._chunks.popitem(last=False)
            self._free += self._sizes[kind]
        return depth

    def _longest(self, path: Path_) -> int:
        """At least one block is left to compute."""
        known = 0
        while known < len(path) - 1 and ("full", path[known]) in self._chunks:
            known += 1
        while known and not all(chunk in self._chunks for chunk in self._needed(path, known)):
            known -= 1
        return known

    def _needed(self, path: Path_, depth: int) -> list[tuple[str, int]]:
        starts = {"full": 0, "window": max(0, depth - WINDOW_BLOCKS), "state": max(0, depth - 1)}
        return [(kind, node) for kind in self._kinds for node in path[starts[kind] : depth]]


class Foreseen:
    """Resume points, as few as are of use, kept by who knows which later request would resume where."""

    def __init__(self, sizes: Sizes, memory_bytes: int, paths: Sequence[Path_]) -> None:
        self._sizes, self._free, self._paths = sizes, memory_bytes, paths
        self._now = 0
        self._place: dict[int, tuple[int, int]] = {}
        """By node: a request that goes through it, and its depth there, from 1 on."""
        self._users: defaultdict[int, list[int]] = defaultdict(list)
        """By node: the requests that would resume there if all were kept, in order."""
        for number, path in enumerate(paths):
            known = next((i for i, node in enumerate(path) if node not in self._place), len(path))
            depth = min(known, len(path) - 1)
            if depth:
                self._users[path[depth - 1]].append(number)
            for index, node in enumerate(path):
                self._place.setdefault(node, (number, index + 1))
        self._waiting: dict[int, set[int]] = {}
        """By kept point: the later requests that would resume there, as things are."""
        self._holders: dict[str, Counter[int]] = {"full": Counter(), "window": Counter(), "state": Counter()}

    def serve(self, number: int) -> int:
        """Serves a prompt. Returns how many of its blocks are resumed."""
        path, self._now = self._paths[number], number
        resumed = self._kept_before(path, len(path) - 1)
        for waiting in self._waiting.values():
            waiting.discard(number)
        for depth, node in enumerate(path, 1):
            if node not in self._waiting and self._users[node] and self._users[node][-1] > number:
                self._keep(path, depth)
        self._drop([node for node, waiting in self._waiting.items() if not waiting])
        while self._free < 0:
            self._drop([min(self._waiting, key=self._worth)])
        return resumed

    def _kept_before(self, path: Path_, depth: int) -> int:
        """The depth of the deepest point that is kept, down from `depth`; 0 if there is none."""
        return next((d for d in range(depth, 0, -1) if path[d - 1] in self._waiting), 0)

    def _keep(self, path: Path_, depth: int) -> None:
        node, below = path[depth - 1], self._kept_before(path, depth - 1)
        waiting = {user for user in self._users[node] if user > self._now}
        if below:
            before = self._waiting[path[below - 1]]
            waiting |= {user for user in before if self._passes(user, node, depth)}
            before -= waiting
        self._waiting[node] = waiting
        self._hold(path, depth, 1)

    def _passes(self, number: int, node: int, depth: int) -> bool:
        path = self._paths[number]
        return len(path) > depth and path[depth - 1] == node

    def _drop(self, nodes: Sequence[int]) -> None:
        """Gives these points up. Who would have resumed there resumes before."""
        for node in nodes:
            number, depth = self._place[node]
            path = self._paths[number]
            waiting = self._waiting.pop(node)
            self._hold(path, depth, -1)
            below = self._kept_before(path, depth - 1)
            if below:
                self._waiting[path[below - 1]] |= waiting

    def _hold(self, path: Path_, depth: int, change: int) -> None:
        for kind, nodes in self._needed(path, depth):
            holders, size = self._holders[kind], getattr(self._sizes, kind)
            for node in nodes:
                was_held = holders[node] > 0
                holders[node] += change
                self._free -= size * ((holders[node] > 0) - was_held)

    def _needed(self, path: Path_, depth: int) -> list[tuple[str, Path_]]:
        window_start = max(0, depth - WINDOW_BLOCKS)
        return [("full", path[:depth]), ("window", path[window_start:depth]), ("state", path[depth - 1 : depth])]

    def _worth(self, node: int) -> float:
        """Tokens that only this point saves, for each byte that only it holds and each request until its next use."""
        number, depth = self._place[node]
        path = self._paths[number]
        saved = depth - self._kept_before(path, depth - 1)
        num_bytes = 0
        for kind, nodes in self._needed(path, depth):
            holders = self._holders[kind]
            own = next((i for i, one in enumerate(reversed(nodes)) if holders[one] > 1), len(nodes))
            num_bytes += own * getattr(self._sizes, kind)
        return saved / max(1, num_bytes) / (min(self._waiting[node]) - self._now)


if __name__ == "__main__":
    main()
