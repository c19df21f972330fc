"""`Partition`: the workers of one model and routing group, rank by rank: what they hold and how loaded they are."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from octavo.errors import InputError
from octavo.events import MEDIUM_CPU, MEDIUM_GPU, ExternalHash
from octavo.hashing import BlockHasher
from octavo.http import EngineFacts, Load
from octavo.router.address import EngineAddress
from octavo.router.index import FleetIndex
from octavo.router.indexes import Indexes, ReadPrompt
from octavo.router.listener import listen
from octavo.router.member import Member
from octavo.router.placement import Placement
from octavo.router.prompt_reader import short_text
from octavo.router.remedies import OF_WORKERS
from octavo.router.selection.requests import Question, Worker, WorkerId

_MEDIA_OF_LEVELS = ((MEDIUM_GPU,), (MEDIUM_GPU, MEDIUM_CPU), None)


class Levels(NamedTuple):
    """How many tokens of a prompt a rank could resume, the more media the more."""

    gpu: int
    """From its device alone."""
    cpu: int
    """With its memory."""
    disk: int
    """From all media, and with prompts that are on their way to it."""

    def as_dict(self) -> dict[str, int]:
        return {"longest_matched": self.disk, **self._asdict()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One data-parallel rank of a worker."""

    worker: Worker
    number: int
    member: Member
    listening: asyncio.Task[None]

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def source(self) -> tuple[object, ...]:
        """What it listens to, and how that is read."""
        worker = self.worker
        events, replay = worker.kv_events_endpoints.get(self.number), worker.replay_of(self.number)
        return events, replay, worker.hash_algorithm, worker.hash_seed, worker.stores

    def about(self) -> dict[str, Any]:
        """Which one it is."""
        return {"worker_id": self.worker.worker_id, "dp_rank": self.number}

    def state(self) -> dict[str, Any]:
        """What is known of it."""
        member, index = self.member, self.member.index
        return {
            "dp_rank": self.number,
            "kv_events_endpoint": self.worker.kv_events_endpoints.get(self.number),
            "num_blocks": 0 if index is None else index.num_blocks_of(self.name),
            "knows_all_blocks": index is not None and index.is_complete(self.name),
            "is_at_most": member.learns_plan,
            "event_batches": member.num_batches,
            "problem": member.problem,
        }

    def of(self, worker: Worker) -> "Rank":
        """The same rank of a worker that has changed."""
        return Rank(worker=worker, number=self.number, member=self.member, listening=self.listening)


class Partition:
    """Lives in one event loop, where its ranks are listened to."""

    def __init__(self, random: Random, *, keys: Path | None) -> None:
        self.ranks: dict[str, Rank] = {}
        self.placement = Placement(random)
        self.indexes = Indexes()
        self._keys = keys

    def check(self, worker: Worker) -> None:
        """InputError if the worker's events cannot be read, or another worker has its name."""
        worker.check()
        for number in worker.ranks:
            member = self._member_of(worker, number)
            facts = _facts_of(worker, number)
            member.address.source(facts.events, facts.replay)
            BlockHasher(hash_block_size=1, algorithm=worker.hash_algorithm)
            there = self.ranks.get(member.name)
            if there is not None and there.worker.worker_id != worker.worker_id:
                raise InputError(f"two workers are called {worker.worker_id}: give one another id")

    def add(self, worker: Worker, number: int) -> None:
        """Begins to listen to a rank of a worker that was checked."""
        member = self._member_of(worker, number)
        listening = asyncio.create_task(listen(member, _facts_of(worker, number), self.indexes))
        self.placement.add(member.name)
        self.take(Rank(worker=worker, number=number, member=member, listening=listening))

    def take(self, rank: Rank) -> None:
        """A rank that is listened to: it is new, or its worker has changed."""
        self.ranks[rank.name] = rank
        self.placement.hear(rank.name, Load(load_speeds=rank.worker.load_speeds))

    def remove(self, rank: Rank) -> None:
        """What it holds is forgotten at once."""
        rank.member.has_left = True
        rank.listening.cancel()
        self.indexes.forget(rank.member)
        self.placement.remove(rank.name)
        del self.ranks[rank.name]

    def allowed(self, workers: Iterable[WorkerId] | None) -> list[str]:
        """The ranks of these workers, or all."""
        if workers is None:
            return list(self.ranks)
        wanted = set(workers)
        return [name for name, rank in self.ranks.items() if rank.worker.worker_id in wanted]

    def read(self, question: Question) -> ReadPrompt:
        """How much of a prompt each rank could resume, and whose it is."""
        read = self._read(question)
        return read._replace(prompt=replace(read.prompt, session=short_text(question.session_id)))

    def _read(self, question: Question) -> ReadPrompt:
        hashes = question.hashes
        if question.token_ids is not None:
            return self.indexes.read(question.token_ids, question.identity)
        assert hashes is not None
        by_index: dict[FleetIndex, list[ExternalHash]] = {index: list(hashes) for index in self.indexes.hashers}
        size = min((hasher.hash_block_size for hasher in self.indexes.hashers.values()), default=1)
        length = len(hashes) * size + 1 if question.isl_tokens is None else question.isl_tokens
        return self.indexes.read_hashed(by_index, length)

    def overlaps(self, read: ReadPrompt) -> dict[str, "Levels"]:
        """By rank."""
        found: dict[str, list[int]] = {name: [0, 0, 0] for name in self.ranks}
        for index, hashes in read.hashes.items():
            for level, media in enumerate(_MEDIA_OF_LEVELS):
                for name, tokens in index.resumes(hashes, read.prompt.num_tokens, media=media).items():
                    found[name][level] = tokens
        return {name: Levels(*levels) for name, levels in found.items()}

    def frequencies(self, overlaps: Mapping[str, "Levels"]) -> list[int]:
        """By hash block of a prompt, from its first on: the number of ranks that could resume at its end or later."""
        size = min((hasher.hash_block_size for hasher in self.indexes.hashers.values()), default=1)
        blocks = [levels.disk // size for levels in overlaps.values()]
        return [sum(own > block for own in blocks) for block in range(max(blocks, default=0))]

    def about(self, rank: Rank) -> dict[str, Any]:
        """Which one it is, and how its events are read."""
        return rank.about() | {"block_size": self.hash_block_size_of(rank), "is_at_most": rank.member.learns_plan}

    def hash_block_size_of(self, rank: Rank) -> int | None:
        """None while its plan is not known, and nobody told."""
        index = rank.member.index
        return rank.worker.block_size if index is None else self.indexes.hashers[index].hash_block_size

    def hashes_of(self, rank: Rank, hashes: Mapping[FleetIndex, Iterable[ExternalHash]]) -> list[ExternalHash]:
        """Of a prompt that was read, as this rank's events tell them."""
        index = rank.member.index
        return [] if index is None else list(hashes.get(index, ()))

    def ranks_of(self, worker: Worker) -> list[Rank]:
        """The ranks of one worker."""
        return [rank for rank in self.ranks.values() if rank.worker.worker_id == worker.worker_id]

    def _member_of(self, worker: Worker, number: int) -> Member:
        options = {} if self._keys is None else {"keys": str(self._keys)}
        address = EngineAddress(
            url=worker.endpoint or "", name=f"{worker.worker_id}/{number}", options=options, rank=number
        )
        return Member(address=address, remedies=OF_WORKERS, lost="", learns_plan=True)


def _facts_of(worker: Worker, number: int) -> EngineFacts:
    return EngineFacts(
        model=worker.model_name,
        max_model_len=0,
        events=worker.kv_events_endpoints.get(number),
        replay=worker.replay_of(number),
        hash_algorithm=worker.hash_algorithm,
        hash_seed=worker.hash_seed,
        stores=worker.stores,
    )
