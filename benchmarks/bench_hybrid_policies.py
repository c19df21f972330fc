"""The default policy beside `lru` where a writer promises points: what a chunk costs, alone and in the whole manager.

    python benchmarks/bench_hybrid_policies.py [--keys 300000] [--rounds 3] [--per-round 100] [--only "state + full"]

Prompts are those of `policy_traffic`, and the tier holds as many chunks as `--keys` says. Columns are nanoseconds of
the thread's CPU per chunk: `fill`, stores into free room; `store`, the same in a full tier, with their promises and all
that goes; `touch`, a request that resumes at the last point that is there; `load`, a read of its chunks. `in all`: a
chunk that is stored, touched once and evicted. All was replaced once in this way before the first round; the subjects
take turns, round by round, and the best round counts, but the longest call of all. A store is two calls: what goes,
and what comes. `while read` is the longest of these right after the fill, while the quarter of the prompts that was
stored first is being read, as by requests that wait for a slow disk. Bytes are what a full policy has allocated
(tracemalloc), beyond the keys, which the tier has anyway.
"""

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from policy_traffic import GEOMETRIES, Geometry, Prompt, Store

from octavo.chunks import LookupResult, OffloadKey, PromisedPoint, WantedChunk
from octavo.host import HostArena
from octavo.offload import OffloadingManager
from octavo.policies import EvictionPolicy, make_policy

POLICIES = ("lru", "resume_points")
MODES = ("fill", "store", "touch", "load")
IN_ALL = "in all"
LONGEST, WHILE_READ, BYTES = "longest ms", "while read", "bytes"
COLUMNS = (*MODES, IN_ALL, LONGEST, WHILE_READ, BYTES)


class Level(Protocol):
    """Where the cost of a chunk is measured."""

    @staticmethod
    def prepare(store: Store) -> Any:
        """What the store needs, made outside the measured time."""

    def begin_store(self, store: Any) -> Any:
        """What ends the store."""

    def end_store(self, store: Any) -> None: ...

    def touch(self, keys: Sequence[OffloadKey]) -> None: ...

    def begin_load(self, keys: Sequence[OffloadKey]) -> Any:
        """What ends the load."""

    def end_load(self, load: Any) -> None: ...

    def are_there(self, keys: Sequence[OffloadKey]) -> bool: ...


class PolicyAlone:
    """A policy behind the calls that its tier makes."""

    def __init__(self, policy: EvictionPolicy, num_slots: int, geometry: Geometry) -> None:
        self.policy = policy
        self.touch = policy.touch
        self._num_free = num_slots
        self._gone: set[OffloadKey] = set()
        self._victims: list[list[OffloadKey]] = []
        """What went and is not counted among the gone yet."""

    @staticmethod
    def prepare(store: Store) -> Store:
        return store

    def begin_store(self, store: Store) -> Store:
        if self._num_free:
            self._num_free -= store.num_slots
        else:
            self._victims.append(self.policy.evict(store.num_slots) or [])
        return store

    def end_store(self, store: Store) -> None:
        self.policy.insert(store.chunks)
        self.policy.promise(store.promise)

    def begin_load(self, keys: Sequence[OffloadKey]) -> Sequence[OffloadKey]:
        self.policy.pin(keys)
        return keys

    def end_load(self, load: Sequence[OffloadKey]) -> None:
        self.policy.unpin(load)

    def are_there(self, keys: Sequence[OffloadKey]) -> bool:
        self._gone.update(*self._victims)
        self._victims.clear()
        return self._gone.isdisjoint(keys)


class WholeManager:
    """The manager of a tier without tiers below."""

    def __init__(self, policy: EvictionPolicy, num_slots: int, geometry: Geometry) -> None:
        self.manager = OffloadingManager(HostArena(num_slots, geometry.slot_bytes), geometry.groups, policy)
        self.touch = self.manager.touch

    @staticmethod
    def prepare(store: Store) -> tuple[list[WantedChunk], list[PromisedPoint]]:
        return [WantedChunk(chunk.key, chunk.position, chunk.parent) for chunk in store.chunks], [store.promise]

    def begin_store(self, store: tuple[list[WantedChunk], list[PromisedPoint]]) -> int:
        prepared = self.manager.prepare_store(*store)
        assert prepared is not None
        return prepared.job_id

    def end_store(self, store: int) -> None:
        self.manager.complete_store(store)

    def begin_load(self, keys: Sequence[OffloadKey]) -> int:
        prepared = self.manager.prepare_load(keys)
        assert prepared is not None
        return prepared.job_id

    def end_load(self, load: int) -> None:
        self.manager.complete_load(load)

    def are_there(self, keys: Sequence[OffloadKey]) -> bool:
        return all(stand is LookupResult.HIT for stand in self.manager.lookup(keys))


LEVELS: dict[str, type[PolicyAlone] | type[WholeManager]] = {"policy": PolicyAlone, "manager": WholeManager}


class Round:
    """Prompts, and what a level needs of their stores."""

    def __init__(self, prompts: Sequence[Prompt], prepare: Callable[[Store], Any]) -> None:
        stores = [store for prompt in prompts for store in prompt.stores]
        self.prompts = prompts
        self.num_chunks = sum(len(store.chunks) for store in stores)
        self.stores = [prepare(store) for store in stores]


class Subject:
    """A policy at one level, its best times and its longest pause."""

    def __init__(self, make_level: Callable[..., Level], policy: str, geometry: Geometry, num_prompts: int) -> None:
        num_slots = geometry.prompt().num_slots * num_prompts
        self._level = make_level(make_policy(policy, geometry.groups, num_slots), num_slots, geometry)
        self.figures: dict[str, float] = {LONGEST: 0.0}

    def fill(self, first: Round) -> None:
        self._time_stores("fill", first)

    def play(self, round_: Round) -> None:
        """Stores these prompts, and uses what is left of them."""
        level = self._level
        self._time_stores("store", round_)
        used = [keys for prompt in round_.prompts if (keys := prompt.longest_there(level.are_there))]
        num_used = sum(map(len, used))
        self._time("touch", num_used, used, level.touch)
        self._time("load", num_used, used, level.begin_load, level.end_load)

    def store_while_read(self, round_: Round, read: Sequence[Prompt]) -> None:
        """Stores these prompts while all chunks of others are being read."""
        level = self._level
        loads = [level.begin_load(prompt.keys) for prompt in read]
        longest, self.figures[LONGEST] = self.figures[LONGEST], 0.0
        self._time_stores(WHILE_READ, round_)
        self.figures[WHILE_READ], self.figures[LONGEST] = self.figures[LONGEST], longest
        for load in loads:
            level.end_load(load)

    def forget_rounds(self) -> None:
        """What was played so far does not count."""
        kept = ("fill", LONGEST, WHILE_READ)
        self.figures = {column: self.figures[column] for column in kept}

    def _time_stores(self, mode: str, round_: Round) -> None:
        self._time(mode, round_.num_chunks, round_.stores, self._level.begin_store, self._level.end_store)

    def _time(self, mode: str, num_chunks: int, arguments: Sequence[Any], *calls: Callable[[Any], Any]) -> None:
        """Times a round of calls: the first with each argument, the next with what the first returned."""
        total_ns = longest_ns = 0
        for value in arguments:
            for call in calls:
                began = time.thread_time_ns()
                value = call(value)  # noqa: PLW2901  # what the next call needs
                took_ns = time.thread_time_ns() - began
                total_ns += took_ns
                longest_ns = max(longest_ns, took_ns)
        self.figures[LONGEST] = max(self.figures[LONGEST], longest_ns / 1e6)
        self.figures[mode] = min(self.figures.get(mode, float("inf")), total_ns / max(1, num_chunks))
        self.figures[IN_ALL] = self.figures.get("store", 0.0) + self.figures.get("touch", 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--per-round", type=int, default=100, help="prompts")
    parser.add_argument("--only", choices=[geometry.name for geometry in GEOMETRIES], action="append")
    args = parser.parse_args()

    print(f"{'ns per chunk':48}" + "".join(f"{column:>12}" for column in COLUMNS))
    for geometry in GEOMETRIES:
        if args.only and geometry.name not in args.only:
            continue
        prompts = [geometry.prompt() for _ in range(args.keys // len(geometry.prompt().keys))]
        num_warm = len(prompts) // args.per_round + 1
        later = [[geometry.prompt() for _ in range(args.per_round)] for _ in range(num_warm + args.rounds + 1)]
        for level, make_level in LEVELS.items():
            first, *rounds = [Round(some, make_level.prepare) for some in (prompts, *later)]
            gc.collect()
            gc.freeze()  # collections in our calls shall not look through what the benchmark holds
            subjects = {policy: Subject(make_level, policy, geometry, len(prompts)) for policy in POLICIES}
            play(subjects, first, rounds, num_warm)
            print_rows(f"{level}, {geometry.name}", subjects)
            del subjects
        for policy in POLICIES:
            print_row(f"policy, {geometry.name}: {policy}", {BYTES: bytes_per_chunk(geometry, policy, prompts)})


def play(subjects: Mapping[str, Subject], first: Round, later: Sequence[Round], num_warm: int) -> None:
    """Fills the subjects, and lets them take turns."""
    for subject in subjects.values():
        subject.fill(first)
        subject.store_while_read(later[0], first.prompts[: len(first.prompts) // 4])
    for number, round_ in enumerate(later[1:]):
        for subject in subjects.values():
            if number == num_warm:
                subject.forget_rounds()
            subject.play(round_)


def bytes_per_chunk(geometry: Geometry, policy: str, prompts: Sequence[Prompt]) -> float:
    num_slots = sum(prompt.num_slots for prompt in prompts)
    make_policy(policy, geometry.groups, num_slots)  # what is made once for the process
    first = Round(prompts, PolicyAlone.prepare)
    gc.collect()
    tracemalloc.start()
    subject = Subject(PolicyAlone, policy, geometry, len(prompts))
    subject.fill(first)
    gc.collect()
    num_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return num_bytes / sum(len(prompt.keys) for prompt in prompts)


def print_rows(name: str, subjects: Mapping[str, Subject]) -> None:
    """A row for each policy, and one of ratios."""
    for policy, subject in subjects.items():
        print_row(f"{name}: {policy}", subject.figures)
    lru, ours = (subjects[policy].figures for policy in POLICIES)
    print_row(f"{name}: ratio", {mode: ours[mode] / lru[mode] for mode in (*MODES, IN_ALL)}, digits=2)


def print_row(name: str, figures: Mapping[str, float], digits: int = 0) -> None:
    cells = []
    for column in COLUMNS:
        places = 2 if column in (LONGEST, WHILE_READ) else digits
        cells.append(f"{figures[column]:12.{places}f}" if column in figures else " " * 12)
    print(f"{name:48}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
