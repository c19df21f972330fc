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

The first and the last have the device's memory too. What a resume needs is what the specs say, for all four.
"""

import argparse
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from octavo.planning import KVCacheConfig
from octavo.sim import SimConfig, Speeds, Trace, read_trace, replay
from octavo.specs import RequestLimits, ResumePoint
from octavo.testing import TRAFFIC, full, make_traffic, small_model, state, window

BLOCK = 4
MODELS = {
    "hybrid": (window(2 * BLOCK, heads=320), state(BLOCK, elements=8192), full(BLOCK, heads=64)),
    "full": (full(BLOCK, heads=64),),
}

Path_ = Sequence[int]
"""A prompt, as nodes of the tree of all prompts: equal beginnings have equal nodes."""


class Groups:
    """What a resume needs, by the specs' own rule. A group is a number."""

    def __init__(self, plan: KVCacheConfig) -> None:
        groups = sorted(plan.groups, key=lambda group: not group.spec.rule.needs_whole_prefix)
        self._rules = [group.spec.rule for group in groups]
        self.page_bytes = [group.page_bytes for group in groups]
        self._ranges: dict[int, list[Sequence[range]]] = {}

    def needed(self, path: Path_, depth: int) -> list[Path_]:
        """By group: the nodes whose blocks a resume after so many blocks needs, in order."""
        if depth not in self._ranges:
            point = ResumePoint(depth * BLOCK)
            self._ranges[depth] = [rule.needed_blocks(point) for rule in self._rules]
        return [[node for run in ranges for node in path[run.start : run.stop]] for ranges in self._ranges[depth]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="hybrid")
    parser.add_argument("--requests", type=int, default=300, help="of each trace")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.01, 0.03, 0.1, 0.3], help="of the footprint")
    parser.add_argument("--checkpoints", type=int, help="tokens between checkpoints of states; else what a plan says")
    parser.add_argument("--trace", type=Path, help="a file in place of generated traffic")
    parser.add_argument("--skip", type=int, nargs="+", default=[0], help="where stretches of the file begin")
    args = parser.parse_args()
    print(f"{'':24}{'share':>6}{'all':>8}{'masked':>8}{'default':>8}{'future':>8}")
    pooled = [0.0] * 4
    for name, prompts in traces(args):
        for share in args.shares:
            figures = Case(prompts, args.model, args.checkpoints, share).figures()
            pooled = [total + figure for total, figure in zip(pooled, figures, strict=True)]
            print(f"{name:24}{share:6.0%}" + "".join(f"{figure:8.1%}" for figure in figures), flush=True)
    every, masked, ours, future = pooled
    gaps = [f"{share_of(ours - low, future - low)} from {name}" for name, low in (("all", every), ("masked", masked))]
    print(f"of the gap to the future: {', '.join(gaps)}, pooled")


def share_of(won: float, missed: float) -> str:
    """`-` where nothing is missed."""
    return f"{won / missed:.0%}" if missed > 0 else "-"


def traces(args: argparse.Namespace) -> Iterator[tuple[str, Sequence[Sequence[int]]]]:
    """Names, and prompts as blocks."""
    if args.trace:
        requests = read_trace(args.trace).requests
        for skip in args.skip:
            stretch = requests[skip : skip + args.requests]
            blocks = [request.block_ids[: request.num_prompt_tokens // request.block_tokens] for request in stretch]
            prompts = [ids.tolist() for ids in blocks if len(ids)]
            if not prompts:
                sys.exit(f"{args.trace} has no prompt of a whole block from request {skip} on")
            yield f"from {skip}", prompts
        return
    for kind in TRAFFIC:
        for seed in range(1, args.seeds + 1):
            yield f"{kind}, {seed}", list(make_traffic(kind, args.requests, seed=seed))


class Case:
    """Prompts, a model, and memory for a share of the footprint."""

    def __init__(
        self, prompts: Sequence[Sequence[int]], model: str, checkpoint_tokens: int | None, share: float
    ) -> None:
        self.prompts = prompts
        limits = RequestLimits(max_model_len=(max(map(len, prompts)) + 2) * BLOCK, max_step_tokens=256)
        layers = MODELS[model]
        self.plan = small_model(*layers, limits=limits, checkpoint_interval_tokens=checkpoint_tokens).plan(0.2)
        self.groups = Groups(self.plan)
        self.paths = paths_of(prompts)
        num_nodes = len({node for path in self.paths for node in path})
        self.memory_bytes = int(num_nodes * sum(self.groups.page_bytes) * share)

    def figures(self) -> list[float]:
        total = sum(map(len, self.paths))
        num_bytes = self.memory_bytes + self.plan.memory_bytes
        every, future = AllStored(self.groups, num_bytes), Foreseen(self.groups, num_bytes, self.paths)
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

    def __init__(self, groups: Groups, memory_bytes: int) -> None:
        self._groups, self._free = groups, memory_bytes
        self._chunks: OrderedDict[tuple[int, int], None] = OrderedDict()
        """(group, node), the least recently used first."""

    def serve(self, path: Path_) -> int:
        """Serves a prompt. Returns how many of its blocks are resumed."""
        depth = self._longest(path)
        for chunk in reversed([chunk for chunk in self._needed(path, depth) if chunk in self._chunks]):
            self._chunks.move_to_end(chunk)
        page_bytes = self._groups.page_bytes
        written = [(group, node) for node in path[depth:] for group in range(len(page_bytes))]
        for chunk in reversed([chunk for chunk in written if chunk not in self._chunks]):  # the end goes first
            self._chunks[chunk] = None
            self._free -= page_bytes[chunk[0]]
        while self._free < 0:
            (group, _), _ = self._chunks.popitem(last=False)
            self._free += page_bytes[group]
        return depth

    def _longest(self, path: Path_) -> int:
        """At least one block is left to compute."""
        depths = range(len(path) - 1, 0, -1)
        return next((d for d in depths if all(chunk in self._chunks for chunk in self._needed(path, d))), 0)

    def _needed(self, path: Path_, depth: int) -> list[tuple[int, int]]:
        return [(group, node) for group, nodes in enumerate(self._groups.needed(path, depth)) for node in nodes]


class Foreseen:
    """Resume points, as few as are of use, kept by who knows which later request would resume where."""

    def __init__(self, groups: Groups, memory_bytes: int, paths: Sequence[Path_]) -> None:
        self._groups, self._free, self._paths = groups, memory_bytes, paths
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
        self._holders: list[Counter[int]] = [Counter() for _ in groups.page_bytes]
        """By group and node: how many kept points need that block."""

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
        needed = self._groups.needed(path, depth)
        for nodes, holders, num_bytes in zip(needed, self._holders, self._groups.page_bytes, strict=True):
            for node in nodes:
                was_held = holders[node] > 0
                holders[node] += change
                self._free -= num_bytes * ((holders[node] > 0) - was_held)

    def _worth(self, node: int) -> float:
        """Tokens that only this point saves, for each byte that only it holds and each request until its next use."""
        number, depth = self._place[node]
        path = self._paths[number]
        saved = depth - self._kept_before(path, depth - 1)
        freed = 0
        needed = self._groups.needed(path, depth)
        for nodes, holders, num_bytes in zip(needed, self._holders, self._groups.page_bytes, strict=True):
            own = next((i for i, one in enumerate(reversed(nodes)) if holders[one] > 1), len(nodes))
            freed += own * num_bytes
        return saved / max(1, freed) / (min(self._waiting[node]) - self._now)


if __name__ == "__main__":
    main()
