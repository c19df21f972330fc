"""`OctavoRouter`: Ray Serve asks it which replica of a deployment gets a request. It needs Ray (`octavo[ray]`).

    @serve.deployment(request_router_config=RequestRouterConfig(
        request_router_class="octavo.ray.OctavoRouter", request_routing_stats_period_s=1))

replicas    say where their events are: `record_routing_stats` returns {"octavo": {"kv_events_endpoints": {0: "tcp://..."}}},
            with the fields of a worker of `SelectionService`
calls       name their prompt: the keyword `token_ids`, and if there are any `cache_salt`, `lora_name` and `session_id`

Each process with a handle of the deployment has a router of its own, which reads the events of all replicas.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any, TypeAlias

import ray
from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from octavo.errors import InputError
from octavo.events import is_local
from octavo.http import ApiError
from octavo.router import SelectionService
from octavo.settings import read_path

_logger = logging.getLogger(__name__)

_OF_WORKERS = (
    "kv_events_endpoints",
    "replay_endpoint",
    "replay_endpoints",
    "block_size",
    "hash_algorithm",
    "hash_seed",
    "stores",
    "load_speeds",
)
"""The fields of a worker of `SelectionService` that a replica reports."""
_OF_QUESTIONS = ("token_ids", "cache_salt", "lora_name", "session_id")
_OURS = "octavo"

ReadCall: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any]], Mapping[str, Any]]
"""Reads the fields of a `SelectionService` question from a call's arguments; without `token_ids` the loads decide."""


def read_keywords(_: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a question among a call's keywords."""
    return {name: kwargs[name] for name in _OF_QUESTIONS if kwargs.get(name) is not None}


class OctavoRouter(RequestRouter):
    """Sends a call where its prompt can really be resumed and where the fewest tokens wait.

    A replica without events is judged by its load alone. A full one, as far as Ray knows, is chosen only if all are
    full.
    """

    def initialize_state(self, *, read_call: str = f"{__name__}:read_keywords", keys: str | None = None) -> None:
        """`request_router_kwargs`: `read_call` names a `ReadCall`, as `module:function`; `keys` is a folder with the
        keys of the replicas' events."""
        self._read_call: ReadCall = resolve_name(read_call)
        self._service = SelectionService(keys=None if keys is None else read_path(keys))
        self._told: dict[str, Mapping[str, Any]] = {}
        """By replica, its last report."""
        self._tasks: set[asyncio.Task[None]] = set()

    def known(self) -> list[dict[str, Any]]:
        """All replicas with what is known of each."""
        return self._service.workers()

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Takes the deployment's replicas, and their reports."""
        here = ray.get_runtime_context().get_node_id()
        self._begin(self._follow({one.replica_id.unique_id: told_by(one, here) for one in replicas}))
        super().update_replicas(replicas)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The best replica that is not full. Ray asks again if it turns out to be full."""
        able = self.select_available_replicas(candidate_replicas) or candidate_replicas
        if pending_request is None:
            return [able]
        pending_request.routing_context.should_backoff = True
        request_id = pending_request.metadata.internal_request_id
        by_id = {replica.replica_id.unique_id: replica for replica in able}
        try:
            chosen = await self._reserve(request_id, pending_request, by_id)
        except (ApiError, InputError) as error:
            _logger.warning("a call goes to any replica: %s", error)
            return [able]
        self._begin(self._prefill(request_id, chosen["expected_s"]))
        return [[by_id[chosen["worker_id"]]]]

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Notes that a request has ended, in whatever way."""
        self._begin(self._free(internal_request_id))

    async def _reserve(self, request_id: str, call: PendingRequest, allowed: Iterable[str]) -> dict[str, Any]:
        """Reserves a replica. If Ray asks again for a call, the earlier replica did not take it."""
        await self._free(request_id)
        try:
            question = {"token_ids": [], **self._read_call(call.args, call.kwargs)}
        except Exception as error:  # a user's function: if it raised, the call would wait forever
            raise InputError(f"its tokens cannot be read: {type(error).__name__}: {error}") from error
        return await self._service.select_and_reserve(
            question | {"selection_id": request_id, "allowed_worker_ids": list(allowed)}
        )

    async def _prefill(self, request_id: str, expected_s: float) -> None:
        """Counts a prompt as computed at the expected time: Ray does not tell when an answer begins."""
        await asyncio.sleep(expected_s)
        with suppress(ApiError):
            await self._service.prefill_complete(request_id)

    async def _free(self, request_id: str) -> None:
        with suppress(ApiError):  # it has expired, or was never reserved
            await self._service.free_reservation(request_id)

    async def _follow(self, told: Mapping[str, Mapping[str, Any]]) -> None:
        for name in self._told.keys() - told.keys():
            await self._service.delete_worker(name)
        for name, fields in told.items():
            if self._told.get(name) != fields:
                await self._follow_one(name, fields)
        self._told = dict(told)

    async def _follow_one(self, name: str, told: Mapping[str, Any]) -> None:
        try:
            await self._service.upsert_worker(
                {"worker_id": name} | {field: told[field] for field in _OF_WORKERS if field in told}
            )
        except (ApiError, InputError) as error:
            _logger.warning("replica %s takes part by its load alone: %s", name, error)
            await self._service.upsert_worker({"worker_id": name})

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        """Runs a job in the loop in which Ray calls, in the order of the calls."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def told_by(replica: RunningReplica, here: str) -> Mapping[str, Any]:
    """A replica's report; empty if its events stay on another machine. What is no endpoint is left to be refused with
    the rest of the report."""
    told = replica.routing_stats.get(_OURS)
    if not isinstance(told, Mapping):
        return {}
    events = told.get("kv_events_endpoints")
    endpoints = [one for one in events.values() if isinstance(one, str)] if isinstance(events, Mapping) else []
    if replica.node_id != here and any(map(is_local, endpoints)):
        _logger.warning(
            "replica %s takes part by its load alone: its events are at %s on another machine; publish them on all "
            "addresses there, with keys (kv_events=tcp://*:* kv_events_keys=FOLDER)",
            replica.replica_id.unique_id,
            ", ".join(endpoints),
        )
        return {}
    return told
