"""`SelectionService`: says which worker a request should go to, for callers that send it there themselves.

Its methods are those of Dynamo's `SelectionService`, and mean the same, except that all groups of a hybrid count: the
tokens of an `overlap` are those that a worker could really resume. Requests and answers are plain dictionaries.

    upsert_worker, delete_worker, workers     who is there; each rank's events are read in the background
    overlap_scores, select, potential_loads   questions, which change nothing
    select_and_reserve, create_reservation    a request counts as sent, until free_reservation
    prefill_complete, add_output_block        how far it is
"""

import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import Any, Self
from uuid import uuid4

from octavo.events import BlockStored
from octavo.http import ApiError, not_found
from octavo.router.indexes import ReadPrompt
from octavo.router.placement import EngineChoice
from octavo.router.selection.catalogue import Catalogue
from octavo.router.selection.dumping import dump_as_json
from octavo.router.selection.partition import Levels, Partition, Rank
from octavo.router.selection.requests import Question, Registration, Worker, WorkerId, read
from octavo.router.selection.reservations import Booking, Reservations
from octavo.settings import shown


class SelectionService:
    """Lives in one event loop. Close it with `shutdown_async`, or use it with `async with`."""

    def __init__(
        self,
        *,
        random: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        keys: Path | None = None,
        reservation_timeout_s: float = 300.0,
    ) -> None:
        """`keys` is a folder with the keys of the workers' events."""
        self._clock = clock
        self._catalogue = Catalogue(random or Random(), keys=keys)  # noqa: S311 - no secret
        self._reservations = Reservations(clock, timeout_s=reservation_timeout_s)
        self.num_selections = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown_async()

    async def upsert_worker(self, worker: Mapping[str, Any]) -> dict[str, Any]:
        """Adds a worker, or changes it. A rank whose endpoints stay the same keeps what is known of it."""
        new = read(worker, Worker)
        self._catalogue.upsert(new)
        return {"status": "ok", "worker_id": new.worker_id}

    async def delete_worker(self, worker_id: WorkerId) -> dict[str, Any]:
        """Its blocks are forgotten. What was sent to it may end."""
        self._catalogue.delete(worker_id)
        return {"status": "ok", "worker_id": worker_id}

    async def register(self, registration: Mapping[str, Any]) -> dict[str, Any]:
        """One rank comes, as indexers are told of it; several registrations of an instance make one worker."""
        one = read(registration, Registration)
        self._catalogue.register(one)
        return {"status": "ok", "instance_id": one.instance_id}

    async def unregister(self, registration: Mapping[str, Any]) -> dict[str, Any]:
        """One rank goes, or without `dp_rank` the instance."""
        one = read(registration, Registration)
        self._catalogue.unregister(one)
        return {"status": "ok", "instance_id": one.instance_id}

    def workers(self) -> list[dict[str, Any]]:
        """All, and what is known of each rank."""
        return self._catalogue.about()

    def ready(self) -> bool:
        """Whether a request could be sent somewhere."""
        return bool(self._catalogue.partitions)

    async def overlap_scores(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """How many tokens of a prompt each rank could resume: from its device, with its memory, from all media."""
        _, partition, prompt = self._ask(request)
        rows = []
        for name, levels in partition.overlaps(prompt).items():
            rank = partition.ranks[name]
            blocks = levels.gpu // (partition.hash_block_size_of(rank) or 1)
            about = {"device_blocks": blocks, "is_at_most": rank.member.learns_plan}
            rows.append(rank.about() | levels.as_dict() | about)
        return {"workers": rows}

    async def query(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The same by instance, as indexers answer: `scores` by rank, `frequencies` by hash block from the first on."""
        _, partition, prompt = self._ask(request)
        overlaps = partition.overlaps(prompt)
        scores: dict[str, dict[str, int]] = {}
        instances: dict[str, dict[str, Any]] = {}
        for name, levels in overlaps.items():
            rank = partition.ranks[name]
            instance = str(rank.worker.worker_id)
            scores.setdefault(instance, {})[str(rank.number)] = levels.disk
            if instance not in instances:
                instances[instance] = _of_worker([overlaps[one.name] for one in partition.ranks_of(rank.worker)])
                instances[instance]["dp"] = _by_rank(partition, rank.worker, overlaps)
        return {"scores": scores, "frequencies": partition.frequencies(overlaps), "instances": instances}

    async def select(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The rank that answers a prompt first. ApiError where none may get it."""
        question, partition, prompt = self._ask(request)
        return _answer(partition, question, prompt, self._choose(partition, question, prompt))

    async def potential_loads(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What each rank would have to do if the prompt were sent there."""
        _, partition, prompt = self._ask(request)
        asked = prompt.prompt
        return [
            rank.about()
            | {"potential_requests": load.num_requests + 1}
            | {"potential_prefill_tokens": load.prefill_tokens + asked.num_tokens - way.resumed_tokens}
            | {"expected_s": way.first_token_s}
            for name, rank in partition.ranks.items()
            for load, way in [(partition.placement.loads[name], partition.placement.way(asked, name))]
        ]

    def loads(self) -> list[dict[str, Any]]:
        """What was sent to each rank, as far as it was told here."""
        self._reservations.expire()
        return [
            rank.about()
            | {"model_name": model_name, "routing_group": group, "active_requests": load.num_requests}
            | {"active_prefill_tokens": load.prefill_tokens, "prefill_tokens_per_s": round(load.rate)}
            for (model_name, group), partition in self._catalogue.partitions.items()
            for name, rank in partition.ranks.items()
            for load in [partition.placement.loads[name]]
        ]

    def dump(self) -> dict[str, Any]:
        """All that is known, as the events that would tell it."""
        return {
            name: [partition.about(rank) | {"events": _events(rank)} for rank in partition.ranks.values()]
            for name, partition in self._named.items()
        }

    def dump_as_json(self) -> Iterator[bytes]:
        """The same a part at a time, between which anything may happen: a fleet has more blocks than can be told at
        once while others wait. Empty for a part that was looked at and has nothing to tell."""
        return dump_as_json(self._named)

    @property
    def _named(self) -> dict[str, Partition]:
        return {f"{model_name}:{group}": part for (model_name, group), part in self._catalogue.partitions.items()}

    @property
    def num_reservations(self) -> int:
        self._reservations.expire()
        return len(self._reservations)

    @property
    def num_blocks(self) -> int:
        """How many blocks are known; one that several ranks hold counts once."""
        return sum(partition.indexes.num_blocks for partition in self._catalogue.partitions.values())

    async def select_and_reserve(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """`select`, and the request counts as sent there."""
        question, partition, prompt = self._ask(request)
        choice = self._choose(partition, question, prompt)
        answer = _answer(partition, question, prompt, choice)
        hashes = partition.hashes_of(partition.ranks[choice.engine], prompt.hashes)
        booked = {"selection_id": self._book(partition, question, prompt, choice)}
        return answer | booked | {"sequence_hashes": hashes, "isl_tokens": prompt.prompt.num_tokens}

    async def create_reservation(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The request was sent to the rank that it names, by whatever choice."""
        question, partition, prompt = self._ask(request)
        name = f"{question.worker_id}/{question.dp_rank}"
        if name not in partition.ranks:
            raise not_found(f"there is no rank {question.dp_rank} of a worker {shown(question.worker_id)}")
        way = partition.placement.way(prompt.prompt, name)
        resumed = way.resumed_tokens
        if question.effective_prefill_tokens is not None:
            resumed = max(0, prompt.prompt.num_tokens - question.effective_prefill_tokens)
        choice = EngineChoice(
            engine=name, resumed_tokens=resumed, expected_s=way.first_token_s, loading_s=way.loading_s
        )
        return {"selection_id": self._book(partition, question, prompt, choice)}

    async def prefill_complete(self, selection_id: str) -> None:
        """The request's first token has come: the worker's speed is learned from it."""
        booking = self._reservations.find(selection_id)
        booking.placement.first_token(booking.sent, self._clock())

    async def add_output_block(self, selection_id: str, *, decay_fraction: float | None = None) -> None:
        """The request goes on, so its reservation lasts longer. `decay_fraction` has no effect: a choice does not
        depend on how much a request still has to say."""
        self._reservations.add(selection_id, self._reservations.find(selection_id))

    async def free_reservation(self, selection_id: str) -> None:
        """The request is done, whatever came of it."""
        self._reservations.end(selection_id)

    async def shutdown_async(self) -> None:
        """Listens to nobody any more."""
        self._reservations.end_all()
        for worker in self._catalogue:
            self._catalogue.delete(worker.worker_id)

    def _ask(self, request: Mapping[str, Any]) -> tuple[Question, Partition, ReadPrompt]:
        self._reservations.expire()
        question = read(request, Question)
        question.check()
        partition = self._catalogue.partitions.get(question.partition)
        if partition is None:
            model_name, group = question.partition
            raise not_found(f"no worker serves model {shown(model_name)} in routing group {shown(group)}")
        return question, partition, partition.read(question)

    def _choose(self, partition: Partition, question: Question, prompt: ReadPrompt) -> EngineChoice:
        able = partition.allowed(question.allowed_worker_ids)
        choice = partition.placement.choose(prompt.prompt, able, self._clock())
        if choice is None:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "no worker that this request may use is there")
        self.num_selections += 1
        return choice

    def _book(self, partition: Partition, question: Question, prompt: ReadPrompt, choice: EngineChoice) -> str:
        selection_id = question.selection_id or uuid4().hex
        self._reservations.check_new(selection_id)
        expecting = partition.indexes.expecting(partition.ranks[choice.engine].member, prompt)
        expecting.__enter__()
        sent = partition.placement.send(choice, prompt.prompt, self._clock())
        self._reservations.add(selection_id, Booking(placement=partition.placement, sent=sent, expecting=expecting))
        return selection_id


def _answer(partition: Partition, question: Question, prompt: ReadPrompt, choice: EngineChoice) -> dict[str, Any]:
    rank, overlaps = partition.ranks[choice.engine], partition.overlaps(prompt)
    answer = rank.about() | {
        "model_name": question.model_name,
        "routing_group": question.partition[1],
        "endpoint": rank.worker.endpoint,
        "block_size": partition.hash_block_size_of(rank),
        "overlap": overlaps[rank.name].as_dict() | {"dp": _by_rank(partition, rank.worker, overlaps)},
        "effective_prefill_tokens": prompt.prompt.num_tokens - choice.resumed_tokens,
        "expected_s": choice.expected_s,
        "is_at_most": rank.member.learns_plan,
    }
    return answer | ({} if question.selection_id is None else {"selection_id": question.selection_id})


def _by_rank(partition: Partition, worker: Worker, overlaps: Mapping[str, Levels]) -> dict[str, int]:
    return {str(rank.number): overlaps[rank.name].gpu for rank in partition.ranks_of(worker)}


def _events(rank: Rank) -> list[BlockStored]:
    index = rank.member.index
    return [] if index is None else index.as_events(rank.name)


def _of_worker(ranks: list[Levels]) -> dict[str, Any]:
    """The best of its ranks, on each level."""
    best = Levels(*(max(levels) for levels in zip(*ranks, strict=True)))
    return best.as_dict()
