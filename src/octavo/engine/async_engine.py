"""`AsyncEngine`: an engine's loop on a thread of its own, and asyncio on the other side.

    event loops                         the engine's thread
    submit, abort, call   -- commands -->   between two steps
    RequestStream         <-- outputs --    after each step, one wake-up for each loop

The thread sleeps on a condition while there is nothing to do. The queue of commands is bounded by the requests that
the engine may hold: a submission beyond that is refused before it gets there.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import NamedTuple, TypeVar

from octavo.chunks import Hint
from octavo.engine.engine import Engine
from octavo.engine.outputs import RequestOutput
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.statistics import EngineSnapshot
from octavo.engine.stream import RequestStream, wake_all
from octavo.errors import EngineBusyError, EngineClosedError, EngineDiedError
from octavo.units import counted

_logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_GRACE_S = 15.0
"""Seconds that `close` waits beyond its timeout for the step under way and for writes to slower media."""
_RESET_TIMEOUT_S = 10.0
_LOOK_AT_RESET_S = 0.005
_MOST_CALLS = 1024
"""The most calls that may wait for their turn, beside submissions and aborts; more are refused."""


class _Command(NamedTuple):
    """Something that the engine's thread does between two steps, or refuses once the engine has ended."""

    run: Callable[[], None]
    refuse: Callable[[], None]


class AsyncEngine:
    """Owns an engine, and the one thread that may touch it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._streams: dict[str, RequestStream] = {}
        """The open streams by request id. Only the engine's thread touches them; others read their number."""
        self._ids = count(1)
        self._most_requests = engine.scheduler.limits.max_waiting + engine.scheduler.limits.max_num_seqs
        self._wakeup = threading.Condition()
        """Guards all attributes below."""
        self._commands: deque[_Command] = deque()
        self._close_at: float | None = None
        """When unfinished requests are aborted; None while the engine is open."""
        self._rests_for: float | None = 0.0
        """Seconds that an engine without requests may sleep; None until somebody wakes it."""
        self._error: BaseException | None = None
        self._is_done = False
        self._num_submitting = 0
        self._thread = threading.Thread(target=self._run, name="octavo-engine", daemon=True)
        self._thread.start()

    @property
    def engine(self) -> Engine:
        """The engine, for what never changes: tokenizer, limits, plan. Use `call` for anything else."""
        return self._engine

    @property
    def error(self) -> BaseException | None:
        """The error that ended the engine, or None."""
        return self._error

    @property
    def is_open(self) -> bool:
        """Whether new requests are taken."""
        return self._close_at is None and not self._is_done

    # ---- the asyncio side ------------------------------------------------------------------------------------------

    async def submit(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams | None = None,
        *,
        cache_salt: str | None = None,
        tenant: str | None = None,
        request_id: str | None = None,
        hints: Sequence[Hint] = (),
    ) -> RequestStream:
        """Puts a request into the queue. An error in the request is raised here, and then nothing is kept of it."""
        params = params or SamplingParams()
        stream = RequestStream(request_id or f"request-{next(self._ids)}", params.n, self._abort)

        def add(engine: Engine) -> None:
            engine.add_request(
                stream.request_id, prompt_token_ids, params, cache_salt=cache_salt, tenant=tenant, hints=hints
            )
            self._streams[stream.request_id] = stream

        with self._wakeup:
            if not self.is_open:
                raise self._why_closed()
            if len(self._streams) + self._num_submitting >= self._most_requests:
                raise EngineBusyError(
                    f"{counted(self._most_requests, 'request')} may be open at once, and no more; try again later"
                )
            self._num_submitting += 1
        try:
            await self.call(add)
        except asyncio.CancelledError:
            self._abort(stream)  # it may be in the queue by now
            raise
        finally:
            with self._wakeup:
                self._num_submitting -= 1
        return stream

    async def generate(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams | None = None,
        *,
        cache_salt: str | None = None,
        request_id: str | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """A request's outputs, as they come. Closing the iterator aborts what has not finished."""
        async with await self.submit(prompt_token_ids, params, cache_salt=cache_salt, request_id=request_id) as stream:
            async for output in stream:
                yield output

    async def call(self, function: Callable[[Engine], _T]) -> _T:
        """Runs a function on the engine's thread between two steps, and returns its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()

        def run() -> None:
            try:
                answer = function(self._engine)
            except Exception as error:  # noqa: BLE001 - it is the caller's
                _tell(loop, future, error)
            except BaseException as error:  # it ends the engine, and the caller is not to wait for what never comes
                _tell(loop, future, EngineDiedError(error))
                raise
            else:
                _tell(loop, future, answer)

        with self._wakeup:
            if self._is_done:
                raise self._why_closed()
            if len(self._commands) >= self._most_requests + _MOST_CALLS:
                raise EngineBusyError(f"{len(self._commands):,} calls wait for the engine already")
            self._send(_Command(run, lambda: _tell(loop, future, self._why_closed())))
        return await future

    async def reset_prefix_cache(self, timeout_s: float = _RESET_TIMEOUT_S, *, tiers: bool = True) -> bool:
        """Forgets all that is cached, on all media or, without `tiers`, on the device and in memory. False: a disk has
        not confirmed it in time, so a process that starts after a crash may find what was forgotten. Requests go on
        while a disk is waited for."""
        await self.call(lambda engine: engine.reset_prefix_cache(tiers=tiers))
        deadline = time.monotonic() + timeout_s
        while not await self.call(Engine.is_reset_durable):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_LOOK_AT_RESET_S)
        return True

    async def snapshot(self) -> EngineSnapshot:
        """A snapshot of the engine between two steps."""
        return await self.call(Engine.snapshot)

    async def close(self, timeout_s: float = 30.0) -> bool:
        """Takes no more requests, lets the open ones finish for `timeout_s`, aborts the rest, and closes the engine.

        False: the thread is still busy, with a step or a flush that does not end.
        """
        with self._wakeup:
            if self._close_at is None:
                self._close_at = time.monotonic() + timeout_s
            self._wakeup.notify()
        await asyncio.to_thread(self._thread.join, timeout_s + _GRACE_S)
        return not self._thread.is_alive()

    # ---- the engine's thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._run_commands()
                if self._engine.has_unfinished:
                    self._deliver(self._engine.step())
                    self._rests_for = 0.0
                else:
                    self._rests_for = self._engine.rest()
            self._deliver(self._engine.abort_all())
            self._engine.close()
        except BaseException as error:
            _logger.exception("the engine has died")
            self._error = error
        finally:
            self._end()

    def _wait_for_work(self) -> bool:
        """Sleeps until there is something to do. False when it is time to end."""
        with self._wakeup:
            if not self._commands and not self._engine.has_unfinished:
                if self._close_at is not None:
                    return False
                self._wakeup.wait(self._rests_for)
            return self._close_at is None or time.monotonic() < self._close_at

    def _run_commands(self) -> None:
        with self._wakeup:
            commands, self._commands = self._commands, deque()
        for command in commands:
            command.run()

    def _deliver(self, outputs: Iterable[RequestOutput]) -> None:
        to_wake: dict[asyncio.AbstractEventLoop, list[RequestStream]] = {}
        for output in outputs:
            stream = self._streams.get(output.request_id)
            if stream is None:
                continue
            if stream.put(output):
                to_wake.setdefault(stream.loop, []).append(stream)
            if output.is_finished and stream.is_finished:
                del self._streams[output.request_id]
        self._wake(to_wake)

    def _wake(self, to_wake: dict[asyncio.AbstractEventLoop, list[RequestStream]]) -> None:
        for loop, streams in to_wake.items():
            try:
                loop.call_soon_threadsafe(wake_all, streams)
            except RuntimeError:  # the loop is closed: nobody will read any more
                for stream in streams:
                    self._drop(stream)

    def _drop(self, stream: RequestStream) -> None:
        if self._streams.get(stream.request_id) is stream:
            del self._streams[stream.request_id]
            self._engine.abort(stream.request_id)

    def _end(self) -> None:
        with self._wakeup:
            self._is_done = True
            commands, self._commands = self._commands, deque()
        for command in commands:
            command.refuse()
        streams, self._streams = self._streams, {}
        to_wake: dict[asyncio.AbstractEventLoop, list[RequestStream]] = {}
        for stream in streams.values():
            stream.fail(str(self._why_closed()))
            to_wake.setdefault(stream.loop, []).append(stream)
        self._wake(to_wake)

    # ---- helpers ---------------------------------------------------------------------------------------------------

    def _abort(self, stream: RequestStream) -> None:
        """Aborts a stream that nobody reads any more. Any thread may call it."""
        with self._wakeup:
            if not self._is_done:
                self._send(_Command(lambda: self._drop(stream), lambda: None))

    def _send(self, command: _Command) -> None:
        """Queues a command. The caller holds the condition's lock."""
        self._commands.append(command)
        self._wakeup.notify()

    def _why_closed(self) -> EngineClosedError:
        if self._error is not None:
            return EngineDiedError(self._error)
        return EngineClosedError("the engine is shutting down")


def _tell(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[_T]", answer: "_T | Exception") -> None:
    """Ends a future that belongs to another thread's loop."""

    def set_answer() -> None:
        if future.done():  # cancelled: nobody wants to know
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(set_answer)
