"""`DynamoPlace`: Dynamo's `SelectionService` in front of a simulated fleet, for `bench_router.py --part busy`."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

import zmq

from octavo.engine import published_plan
from octavo.events import AnyEvent, BlockRemoved, BlockStored, KVEventBatch, encode_batch, encode_sequence
from octavo.ids import GroupIdx
from octavo.sim import Outcome, SimulatedEngine, TraceRequest

_MOST_POLLS = 5000
_MODEL = {"model_name": "m", "tenant_id": "default"}
_FIRST_MARK = 1 << 24
"""Tokens from here on are in no trace."""
_MARK_HASHES = 1 << 60

News = Callable[[], Coroutine[Any, Any, None]]


class DynamoPlace:
    """Sends each request where `select_and_reserve` says. It knows as much as Octavo's router, and as soon.

    After each batch of events comes a block that nobody else has, and no request is placed before the indexer knows it.
    """

    def __init__(self, engines: Sequence[SimulatedEngine]) -> None:
        from dynamo.llm import SelectionService

        plan = published_plan(engines[0].manager.config)
        self._group = next(i for i, group in enumerate(plan.groups) if group.kind.endswith("full_attention"))
        self._block_size = plan.groups[self._group].block_size
        self._loop = asyncio.new_event_loop()
        self._make = partial(SelectionService, indexer_threads=1)
        self._context = zmq.Context()
        self._sockets = [self._context.socket(zmq.XPUB) for _ in engines]
        self._sequences = [0] * len(engines)
        self._marks = count(1)
        self._order = count()
        self._news: list[tuple[float, int, News]] = []
        """A heap of what the engines told, by the time when the router learns of it."""
        self.num_expected_tokens = 0
        for number, engine in enumerate(engines):
            engine.watchers.append(_Watcher(self, number))
        self._loop.run_until_complete(self._begin())

    def __call__(self, number: int, request: TraceRequest) -> int:
        return self._loop.run_until_complete(self._choose(number, request))

    def tell(self, when: float, news: News) -> None:
        """Queues something that the router learns at that time."""
        heappush(self._news, (when, next(self._order), news))

    async def changed(self, engine: int, events: Sequence[AnyEvent]) -> None:
        mark = next(self._marks)
        tokens = [_FIRST_MARK + mark] * self._block_size
        self._publish(engine, [*events, self._stored(mark, tokens)])
        for _ in range(_MOST_POLLS):
            answer = await self._service.overlap_scores(_MODEL | {"selection_id": "mark", "token_ids": tokens})
            if any(worker["worker_id"] == engine + 1 and worker["device_blocks"] for worker in answer["workers"]):
                break
            await asyncio.sleep(0.0005)
        else:
            raise SystemExit("Dynamo has lost events: the machine is too busy")
        removed = BlockRemoved(block_hashes=[_MARK_HASHES + mark], medium="GPU", group_idx=GroupIdx(self._group))
        self._publish(engine, [removed])

    async def begun(self, outcome: Outcome) -> None:
        await self._service.prefill_complete(str(outcome.number))

    async def ended(self, outcome: Outcome) -> None:
        await self._service.free_reservation(str(outcome.number))

    def close(self) -> None:
        self._loop.run_until_complete(self._end())
        self._context.destroy(linger=0)
        self._loop.close()

    async def _begin(self) -> None:
        self._service: Any = self._make()
        for number, socket in enumerate(self._sockets):
            socket.set_hwm(0)
            port = socket.bind_to_random_port("tcp://127.0.0.1")
            worker: dict[str, Any] = {"worker_id": number + 1, "endpoint": f"ray://{number}"} | _MODEL
            worker |= {"block_size": self._block_size, "max_num_batched_tokens": 8192}
            worker |= {"data_parallel_start_rank": 0, "data_parallel_size": 1}
            await self._service.upsert_worker(worker | {"kv_events_endpoints": {0: f"tcp://127.0.0.1:{port}"}})
            await asyncio.to_thread(socket.recv)  # its subscription

    async def _choose(self, number: int, request: TraceRequest) -> int:
        while self._news and self._news[0][0] <= request.arrival_s:
            await heappop(self._news)[-1]()
        tokens = request.prompt().tolist()
        asked = _MODEL | {"selection_id": str(number), "token_ids": tokens}
        answer = await self._service.select_and_reserve(asked | {"expected_output_tokens": request.num_output_tokens})
        self.num_expected_tokens += len(tokens) - answer["effective_prefill_tokens"]
        return int(answer["worker_id"]) - 1

    async def _end(self) -> None:
        await self._service.shutdown_async()

    def _publish(self, engine: int, events: list[AnyEvent]) -> None:
        batch = encode_batch(KVEventBatch(ts=time.time(), events=events))
        self._sockets[engine].send_multipart([b"", encode_sequence(self._sequences[engine]), batch])
        self._sequences[engine] += 1

    def _stored(self, mark: int, tokens: list[int]) -> BlockStored:
        return BlockStored(
            block_hashes=[_MARK_HASHES + mark],
            parent_block_hash=None,
            token_ids=tokens,
            block_size=self._block_size,
            lora_id=None,
            lora_name=None,
            medium="GPU",
            group_idx=GroupIdx(self._group),
            kv_cache_spec_kind="full_attention",
        )


class _Watcher:
    """Tells the router what one engine does."""

    def __init__(self, place: DynamoPlace, engine: int) -> None:
        self._place = place
        self._engine = engine

    def changed(self, now: float, events: Sequence[AnyEvent]) -> None:
        self._place.tell(now, partial(self._place.changed, self._engine, list(events)))

    def begun(self, now: float, outcome: Outcome) -> None:
        self._place.tell(now, partial(self._place.begun, outcome))

    def ended(self, now: float, outcome: Outcome) -> None:
        self._place.tell(now, partial(self._place.ended, outcome))
