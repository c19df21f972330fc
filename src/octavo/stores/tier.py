"""`RemoteTier`: a store on a network as a tier. All bookkeeping is on the engine's thread, all waiting on the loop's.

    ask      sequence --loop: client.find--> known chunks, or nothing, remembered for a while
    store    buffers --loop: copied, verified, sealed--> client.put --> reported
    load     loop: client.get --> verified --copied--> buffers --> reported

Each call of the client has a deadline. A chunk that the store lacks, or has damaged, is a miss; a store that fails
three times in a row gets only a probe now and then (`health`). One that answers and takes nothing, as it is full or may
only be read, is asked and read as ever, and gets one store now and then.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import TypeVar

from octavo.chunks import ChunkBytes, OffloadKey, SequenceNames, TierChanges, TierResult
from octavo.stores.client import HeldChunk, RemoteClient, StoreDownError
from octavo.stores.config import RemoteLimits
from octavo.stores.envelope import Envelopes
from octavo.stores.health import StoreHealth
from octavo.stores.job import Mover, RemoteJob, attempt
from octavo.stores.known import KnownChunks
from octavo.stores.loop import LoopThread
from octavo.tiers import Tier, TierStatus, total_bytes

T = TypeVar("T")
_DISCONNECT_S = 2.0
_MOST_ANSWERS = 4096
"""The most sequences whose answers are remembered; the oldest is forgotten first."""
_NEWS_S = 30.0
"""The age at which an answer that nobody took is none any more. A step of an engine takes less; an idle engine takes
answers with its next request."""
_COUNTERS = (
    "stored",
    "store_refused",
    "store_failed",
    "loaded",
    "load_refused",
    "load_failed",
    "corrupt",
    "asked",
    "asks_failed",
)


class RemoteTier(Tier):
    """One store, through its client."""

    asks_ahead = True
    gather_s = 5.0

    def __init__(
        self,
        client: RemoteClient,
        envelopes: Envelopes,
        *,
        what: str,
        shared_as: str = "",
        limits: RemoteLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`what` is the store's name in messages. `clock` tells seconds while nobody polls, too."""
        self.medium = client.medium  # type: ignore[misc]  # a class has it, but for this one
        self.shared_as = shared_as
        self._client = client
        self._mover = Mover(client, envelopes)
        self._limits = limits or RemoteLimits()
        self._clock = clock
        self._health = StoreHealth(what)
        self._storing = StoreHealth(f"Storing in {what}")
        self._known = KnownChunks()
        self._loop = LoopThread(f"octavo-{client.medium}")
        self._jobs: dict[int, RemoteJob] = {}
        self._ended: deque[tuple[int, Callable[[], None]]] = deque()
        """Ended work of the loop, with the client's generation at that time; `poll` takes it on the engine's thread."""
        self._finished: list[TierResult] = []
        self._answers: dict[object, float | None] = {}
        """By sequence: the time until which its answer holds; None while it is asked."""
        self._num_resets = 0
        self._generation = client.generation
        """The generation to which `_known` belongs."""
        self._resets_under_way = 0
        self._resets: list[Future[None]] = []
        self._owes_reset = False
        self._is_closed = False
        self._now = 0.0
        self._counters = dict.fromkeys(_COUNTERS, 0)

    # ---- what is there ------------------------------------------------------------------------------------------

    def ask(self, sequence: SequenceNames, *, wants_answer: bool = True) -> bool:
        self._client.expect(sequence)
        if not wants_answer or not self._is_usable:
            return False
        name = (sequence.tenant, tuple(chain.keys[-1] if chain.keys else b"" for chain in sequence.chains))
        until = self._answers.get(name, 0.0)
        if until is None:
            return True
        if until > self._now or not any(chain.keys for chain in sequence.chains):
            return False
        self._answers.pop(name, None)
        self._answers[name] = None
        if len(self._answers) > _MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]
        chains = [chain._replace(keys=tuple(chain.keys)) for chain in sequence.chains]
        self._counters["asked"] += 1
        self._loop.submit(self._find(name, sequence._replace(chains=chains), self._num_resets))
        return True

    def lookup(self, keys: Sequence[OffloadKey]) -> list[int]:
        return self._known.masks(keys) if self._is_usable else [0] * len(keys)

    def stored_bytes(self, keys: Sequence[OffloadKey]) -> list[int]:
        return self._known.sizes(keys) if self._is_usable else [0] * len(keys)

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        self._known.touch(keys)

    def take_changes(self) -> TierChanges:
        return self._known.take_changes()

    def announce(self) -> None:
        self._known.announce()

    # ---- jobs ---------------------------------------------------------------------------------------------------

    def submit_store(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        job = self._admit(job_id, chunks, is_store=True)
        if job is None:
            self._counters["store_refused"] += len(chunks)
            return False
        replaces = [self._known.is_replaced_by(chunk.key, chunk.held_blocks) for chunk in chunks]
        job.future = self._loop.submit(self._run(job, lambda: self._mover.store(job, replaces), self._limits.store_s))
        return True

    def submit_load(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        job = self._admit(job_id, chunks, is_store=False)
        if job is None:
            self._counters["load_refused"] += len(chunks)
            return False
        for index, chunk in enumerate(chunks):
            held = self._known.get(chunk.key)
            if held is not None and held[:2] == (chunk.held_blocks, total_bytes(chunk.buffers)):
                job.held[index] = held
            else:
                job.failed.add(index)
        job.future = self._loop.submit(self._run(job, lambda: self._mover.load(job), self._limits.load_s))
        return True

    def cancel(self, job_id: int) -> None:
        self._finished = [result for result in self._finished if result.job_id != job_id]
        job = self._jobs.pop(job_id, None)
        if job is not None:
            job.guard.cancel()
            if job.is_store:
                self._lose(job.chunks)
            if job.future is not None:
                job.future.cancel()

    def poll(self, now: float) -> list[TierResult]:
        self._now = now
        self._take_ended()
        if not self._is_closed and self._health.is_probe_due(now):
            self._loop.submit(self._probe(owes_reset=self._owes_reset))
        if self._storing.is_probe_due(now):  # the next store is the probe
            self._storing.probed(None)
        finished, self._finished = self._finished, []
        return finished

    # ---- all of it ----------------------------------------------------------------------------------------------

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        """This engine does not find the keys any more. The store keeps them for others."""
        for job in self._jobs.values():
            job.forgotten.update(keys)
        self._known.remove(keys)

    def reset(self) -> None:
        self._num_resets += 1
        for job in self._jobs.values():
            job.is_wanted = not job.is_store
        self._known.clear()
        self._answers.clear()
        self._resets_under_way += 1
        if not self._is_closed:
            self._resets = [reset for reset in self._resets if not reset.done()]
            self._resets.append(self._loop.submit(self._forget_all()))

    def is_reset_durable(self) -> bool:
        self._take_ended()
        return not self._resets_under_way and not self._owes_reset

    def flush(self, timeout_s: float) -> bool:
        futures = [job.future for job in self._jobs.values() if job.is_store and job.future is not None]
        return not wait([*futures, *self._resets], timeout_s).not_done

    def status(self) -> TierStatus:
        return TierStatus(
            state=self._health.state,
            reason=self._health.reason or self._storing.reason,
            bytes_used=0,
            bytes_budget=0,
            num_chunks=len(self._known),
            counters={
                **self._counters,
                "degradations": self._health.num_degradations,
                "storing_degradations": self._storing.num_degradations,
                "probes": self._health.num_probes,
                "probes_failed": self._health.num_failed_probes,
            },
        )

    def close(self) -> None:
        if self._is_closed:
            return
        self.flush(self._limits.close_s)
        self._is_closed = True
        for job_id in list(self._jobs):
            self.cancel(job_id)
        self._loop.close(lambda: attempt(self._client.close, _DISCONNECT_S))

    # ---- helpers on the engine's thread -------------------------------------------------------------------------

    @property
    def _is_usable(self) -> bool:
        return self._health.is_ok and not self._is_closed and not self._owes_reset

    def _admit(self, job_id: int, chunks: Sequence[ChunkBytes], *, is_store: bool) -> RemoteJob | None:
        job = RemoteJob(job_id, chunks, is_store=is_store)
        others = [other for other in self._jobs.values() if other.is_store is is_store]
        num_bytes = sum(other.num_bytes for other in others)
        has_room = not others or (
            len(others) < self._limits.queue_jobs and num_bytes + job.num_bytes <= self._limits.queue_bytes
        )
        if is_store:  # of two stores of one key, none could tell which one comes last
            under_way = {chunk.key for other in others for chunk in other.chunks}
            has_room = has_room and under_way.isdisjoint(chunk.key for chunk in chunks)
            has_room = has_room and self._storing.is_ok and not (others and self._storing.is_on_trial)
        if not self._is_usable or not has_room:
            return None
        self._jobs[job_id] = job
        return job

    def _take_ended(self) -> None:
        """Takes results in order, each in its generation: a store may be the first to see a new one."""
        generation = self._client.generation
        while self._ended:
            ended_in, tell = self._ended.popleft()
            self._enter(ended_in)
            tell()
        self._enter(generation)

    def _enter(self, generation: int) -> None:
        if generation > self._generation:
            self._generation = generation
            self._known.clear()
            self._answers.clear()

    def _end(self, job: RemoteJob) -> None:
        """Takes the result of a job."""
        health, kind = (self._storing, "store") if job.is_store else (self._health, "load")
        if job.error is not None:
            health.failed(kind, job.error)
        elif job.held:
            health.worked(kind)
        if self._jobs.pop(job.job_id, None) is None:
            return
        if job.is_store:
            self._end_store(job)
        else:
            self._known.gone(job.chunks[index].key for index in job.gone)
            self._known.remove([job.chunks[index].key for index in job.corrupt])
            self._counters["corrupt"] += len(job.corrupt)
        did = "stored" if job.is_store else "loaded"
        self._counters[f"{kind}_failed"] += len(job.failed)
        self._counters[did] += len(job.chunks) - len(job.failed)
        self._finished.append(TierResult(job.job_id, frozenset(job.failed), job.seconds))

    def _end_store(self, job: RemoteJob) -> None:
        if not job.is_wanted:
            job.failed = set(range(len(job.chunks)))
        for index, chunk in enumerate(job.chunks):
            if chunk.key in job.forgotten:
                job.failed.add(index)
            if index not in job.failed:
                self._known.stored(chunk.key, job.held[index])
        self._lose([job.chunks[index] for index in job.failed])

    def _lose(self, chunks: Sequence[ChunkBytes]) -> None:
        """Forgets chunks that a failed store may have replaced."""
        self._known.remove([c.key for c in chunks if self._known.is_replaced_by(c.key, c.held_blocks)])

    def _found(self, name: object, found: Mapping[OffloadKey, HeldChunk], num_resets: int, answered_at: float) -> None:
        """Others may have reset the store since an old answer."""
        self._health.worked("ask", is_proof=bool(found))
        if num_resets != self._num_resets:
            return
        if self._clock() - answered_at > max(_NEWS_S, self._limits.remember_s):
            self._answers.pop(name, None)
            return
        self._answers[name] = self._now + self._limits.remember_s
        for key, held in found.items():
            self._known.found(key, held)

    def _not_found(self, name: object, error: StoreDownError) -> None:
        self._counters["asks_failed"] += 1
        self._answers.pop(name, None)
        self._answers[name] = self._now + self._limits.remember_s
        self._health.failed("ask", error)

    def _was_reset(self, error: StoreDownError | None) -> None:
        self._resets_under_way -= 1
        if error is not None:
            self._owes_reset = True
            self._health.degrade(f"a reset did not reach it: {error}")

    def _probed(self, error: StoreDownError | None, *, has_reset: bool) -> None:
        if error is None and has_reset:
            self._owes_reset = False
        if error is None and self._owes_reset:
            error = StoreDownError("a reset is still to reach it")
        self._health.probed(None if error is None else str(error))

    # ---- on the loop's thread -----------------------------------------------------------------------------------

    def _tell(self, tell: Callable[[], None]) -> None:
        self._ended.append((self._client.generation, tell))

    async def _find(self, name: object, sequence: SequenceNames, num_resets: int) -> None:
        found, error = await self._in_one_generation(lambda: self._client.find(sequence), self._limits.find_s)
        if found is None:
            assert error is not None
            self._tell(lambda: self._not_found(name, error))
        else:
            asked = {key for chain in sequence.chains for key in chain.keys}
            of_sequence = {key: held for key, held in found.items() if key in asked}
            answered_at = self._clock()
            self._tell(lambda: self._found(name, of_sequence, num_resets, answered_at))

    async def _in_one_generation(
        self, call: Callable[[], Awaitable[T]], timeout_s: float
    ) -> tuple[T | None, StoreDownError | None]:
        """The answer, or the error. A call during which another engine reset the store is made again, as no engine
        looks into the old generation any more."""
        while True:
            generation = self._client.generation
            answer, error = await attempt(call, timeout_s)
            if error is not None or generation == self._client.generation:
                return answer, error

    async def _forget_all(self) -> None:
        _, error = await attempt(self._client.forget_all, self._limits.find_s)
        self._tell(lambda: self._was_reset(error))

    async def _probe(self, *, owes_reset: bool) -> None:
        _, error = await attempt(self._client.forget_all if owes_reset else self._client.probe, self._limits.find_s)
        self._tell(lambda: self._probed(error, has_reset=owes_reset))

    async def _run(self, job: RemoteJob, work: Callable[[], Awaitable[None]], timeout_s: float) -> None:
        """Does the work of a job, and reports its end in any case."""
        _, job.error = await self._in_one_generation(work, timeout_s)
        if job.error is not None:
            job.failed = set(range(len(job.chunks)))
        job.seconds = time.monotonic() - job.begun
        self._tell(lambda: self._end(job))
