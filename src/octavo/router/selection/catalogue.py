"""`Catalogue`: the workers of a `SelectionService`, by id and by partition."""

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from octavo.http import ApiError, bad_request, not_found, overloaded
from octavo.router.selection.partition import Partition, Rank
from octavo.router.selection.requests import Registration, Worker, WorkerId
from octavo.settings import shown

_MOST_WORKERS = 1 << 14


class Catalogue:
    """Who is there. A change happens whole or not at all."""

    def __init__(self, random: Random, *, keys: Path | None) -> None:
        self.partitions: dict[tuple[str, str], Partition] = {}
        """By model and routing group; none is empty."""
        self._workers: dict[WorkerId, Worker] = {}
        self._random = random
        self._keys = keys

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self._workers.values()))

    def upsert(self, worker: Worker) -> None:
        """Adds a worker, or changes it. A rank whose endpoints stay the same keeps what is known of it."""
        old = self._workers.get(worker.worker_id)
        if old is None and len(self._workers) >= _MOST_WORKERS:
            raise overloaded(f"there are {_MOST_WORKERS:,} workers already")
        partition = self.partitions.get(worker.partition) or Partition(self._random, keys=self._keys)
        partition.check(worker)
        kept = () if old is None else self._keep(old, worker)
        self._workers[worker.worker_id] = worker
        self.partitions[worker.partition] = partition
        for number in worker.ranks:
            if number not in kept:
                partition.add(worker, number)

    def delete(self, worker_id: WorkerId) -> None:
        """Its blocks are forgotten."""
        worker = self.find(worker_id)
        for rank in self.ranks_of(worker):
            self._remove(worker, rank)
        del self._workers[worker_id]

    def register(self, one: Registration) -> None:
        """A rank comes; the ranks of one instance are one worker."""
        if one.additional_salt:
            text = "additional_salt has no meaning here, where blocks bear the engines' own hashes; leave it out"
            raise bad_request(text, param="additional_salt")
        if one.endpoint is None:
            text = "endpoint is missing: say where the instance publishes its events"
            raise bad_request(text, param="endpoint")
        worker, number = self._workers.get(one.instance_id), one.dp_rank or 0
        events = {} if worker is None else dict(worker.kv_events_endpoints)
        replay = {} if worker is None else dict(worker.replay_endpoints)
        stores = one.stores if worker is None else worker.stores | one.stores
        load_speeds = one.load_speeds if worker is None else worker.load_speeds | one.load_speeds
        if number in events:
            text = f"rank {number} of {shown(one.instance_id)} is registered already: unregister it first"
            raise ApiError(HTTPStatus.CONFLICT, text)
        if worker is not None and worker.partition != one.partition:
            served, group = shown(worker.model_name), shown(worker.partition[1])
            text = f"{shown(one.instance_id)} serves model {served} in routing group {group}: unregister it first"
            raise ApiError(HTTPStatus.CONFLICT, text)
        events[number] = one.endpoint
        if one.replay_endpoint is not None:
            replay[number] = one.replay_endpoint
        self.upsert(
            Worker(
                worker_id=one.instance_id,
                model_name=one.model_name,
                routing_group=one.partition[1],
                block_size=one.block_size,
                kv_events_endpoints=events,
                replay_endpoints=replay,
                hash_algorithm=one.hash_algorithm,
                hash_seed=one.hash_seed,
                stores=stores,
                load_speeds=load_speeds,
            )
        )

    def unregister(self, one: Registration) -> None:
        """A rank goes, or without `dp_rank` the instance."""
        worker = self.find(one.instance_id)
        rank = next((rank for rank in self.ranks_of(worker) if rank.number == one.dp_rank), None)
        if one.dp_rank is not None and rank is None:
            raise not_found(f"rank {one.dp_rank} of {shown(one.instance_id)} is not registered")
        events = {n: endpoint for n, endpoint in worker.kv_events_endpoints.items() if n != one.dp_rank}
        if rank is None or not events:
            self.delete(one.instance_id)
            return
        replay = {n: endpoint for n, endpoint in worker.replay_endpoints.items() if n != one.dp_rank}
        self.upsert(msgspec.structs.replace(worker, kv_events_endpoints=events, replay_endpoints=replay))

    def find(self, worker_id: WorkerId) -> Worker:
        """ApiError if there is none."""
        if worker_id not in self._workers:
            raise not_found(f"there is no worker {shown(worker_id)}")
        return self._workers[worker_id]

    def ranks_of(self, worker: Worker) -> list[Rank]:
        """The ranks of a worker that are known."""
        return self.partitions[worker.partition].ranks_of(worker)

    def about(self) -> list[dict[str, Any]]:
        """All workers, and what is known of each rank."""
        return [
            {
                "worker_id": worker.worker_id,
                "instance_id": worker.worker_id,
                "model_name": worker.model_name,
                "routing_group": worker.partition[1],
                "endpoint": worker.endpoint,
                "ranks": [rank.state() for rank in self.ranks_of(worker)],
            }
            for worker in self
        ]

    def _keep(self, old: Worker, new: Worker) -> set[int]:
        """The ranks that stay as they are known; the others go."""
        kept: set[int] = set()
        for rank in self.ranks_of(old):
            renewed = rank.of(new)
            if old.partition == new.partition and rank.number in new.ranks and renewed.source == rank.source:
                self.partitions[new.partition].take(renewed)
                kept.add(rank.number)
            else:
                self._remove(old, rank)
        return kept

    def _remove(self, worker: Worker, rank: Rank) -> None:
        partition = self.partitions[worker.partition]
        partition.remove(rank)
        if not partition.ranks:
            del self.partitions[worker.partition]
