"""Runs a benchmark's sessions against a server: several requests at once, each timed token by token."""

import asyncio
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple
from urllib.request import getproxies

import httpx
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from octavo.cli.client import events_async, open_async_client, text_of_error
from octavo.cli.commands.bench.workload import Session, Turn
from octavo.cli.run_async import run_async
from octavo.errors import InputError
from octavo.router import EngineConnections

_MOST_ERROR_KINDS = 20
"""The most kinds of errors that are counted separately; others are counted together."""
_OTHER_ERRORS = "other errors"
_MOST_SAMPLES = 4096
"""The most requests that are reported one by one: the first ones of a longer run."""
_MOST_TOKENS = 1 << 40
"""No server counts more in a request."""
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTarget:
    """The server to measure, and the number of requests at once."""

    base_url: str
    headers: dict[str, str]
    model: str
    concurrency: int


class Sample(NamedTuple):
    """One request, from which speeds can be fitted (`octavo simulate --speeds`)."""

    prompt_tokens: int
    cached_tokens: int
    first_token_s: float
    between_tokens_s: float
    """The median; 0 if there was only one token."""
    open_requests: float
    """Open requests, this one included: the mean of its start and its end."""


@dataclass(slots=True, kw_only=True)
class Measured:
    """The measurements of all requests."""

    seconds: float = 0.0
    num_succeeded: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cached_by_medium: Counter[str] = field(default_factory=Counter)
    """Cached tokens by medium, for servers that tell it."""
    first_token_s: "array[float]" = field(default_factory=lambda: array("d"))
    between_tokens_s: "array[float]" = field(default_factory=lambda: array("d"))
    request_s: "array[float]" = field(default_factory=lambda: array("d"))
    samples: list[Sample] = field(default_factory=list)
    num_open: int = 0
    """The number of requests that are open now."""
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def num_failed(self) -> int:
        return self.errors.total()

    def count_error(self, message: str) -> None:
        known = message in self.errors or len(self.errors) < _MOST_ERROR_KINDS
        self.errors[message if known else _OTHER_ERRORS] += 1


def run_bench(target: BenchTarget, sessions: Sequence[Session], *, shows_progress: bool) -> Measured:
    """Runs all sessions to the end."""
    measured = Measured()
    num_requests = sum(len(session.turns) for session in sessions)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not shows_progress,
    )
    with progress:
        task = progress.add_task("requests", total=num_requests)
        run_async(_run_all(target, sessions, measured, lambda count: progress.advance(task, count)))
    return measured


async def _run_all(
    target: BenchTarget, sessions: Sequence[Session], measured: Measured, advance: Callable[[int], None]
) -> None:
    seats = asyncio.Semaphore(target.concurrency)
    began = time.monotonic()
    async with open_bench_client(target) as client, asyncio.TaskGroup() as group:
        for session in sessions:
            wait_s = session.start_s - (time.monotonic() - began)
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            await seats.acquire()
            bench = _SessionBench(client, target.model, measured, advance)
            group.create_task(bench.run(session)).add_done_callback(lambda _: seats.release())
    measured.seconds = time.monotonic() - began


def open_bench_client(target: BenchTarget) -> httpx.AsyncClient:
    """The client that measures. httpx's own pool, which a proxy needs, costs each request more the more are open, and
    that would count as the server's time."""
    return open_async_client(
        target.base_url,
        target.headers,
        limits=httpx.Limits(max_connections=target.concurrency, max_keepalive_connections=target.concurrency),
        transport=None if getproxies() else EngineConnections(),
    )


class _SessionBench:
    """Runs one session. An error is counted, and ends the session."""

    def __init__(
        self, client: httpx.AsyncClient, model: str, measured: Measured, advance: Callable[[int], None]
    ) -> None:
        self._client = client
        self._model = model
        self._measured = measured
        self._advance = advance

    async def run(self, session: Session) -> None:
        """Sends turn after turn."""
        for done, turn in enumerate(session.turns):
            session.prompt += turn.new_token_ids()
            try:
                answer = await self._ask(session, turn)
            except httpx.HTTPError as error:
                self._measured.count_error(text_of_error(error))
            except InputError as error:
                self._measured.count_error(str(error))
            else:
                session.hear(answer, turn.output_tokens)
                self._advance(1)
                continue
            self._advance(len(session.turns) - done)
            break
        session.prompt.clear()

    async def _ask(self, session: Session, turn: Turn) -> list[int]:
        body = {
            "model": self._model,
            "prompt": session.prompt,
            "max_tokens": turn.output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        measured = self._measured
        measured.num_open += 1
        stopwatch = _Stopwatch(measured.num_open)
        try:
            async with self._client.stream(
                "POST", "/v1/completions", content=msgspec.json.encode(body), headers=_JSON
            ) as response:
                async for message in events_async(response, most_tokens=turn.output_tokens):
                    stopwatch.note(message)
            stopwatch.add_to(measured)
        finally:
            measured.num_open -= 1
        return stopwatch.token_ids


class _Stopwatch:
    """Times and counts one request. They count only if the request ends well."""

    def __init__(self, num_open: int) -> None:
        self.token_ids: list[int] = []
        self._num_open = num_open
        self._began = self._last = time.monotonic()
        self._first_token_s: float | None = None
        self._between: list[float] = []
        self._usage: dict[str, Any] = {}

    def note(self, message: dict[str, Any]) -> None:
        """Notes an event of the answer."""
        if isinstance(usage := message.get("usage"), dict):
            self._usage = usage
        choices = message.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return
        token_ids = choices[0].get("token_ids") or []
        if not isinstance(token_ids, list) or not all(isinstance(token, int) for token in token_ids):
            raise InputError("the server sent token_ids that are not a list of numbers")
        self.token_ids += token_ids
        if not token_ids and not choices[0].get("text"):
            return
        now = time.monotonic()
        count = max(1, len(token_ids))
        if self._first_token_s is None:
            self._first_token_s = now - self._began
        else:
            self._between += [(now - self._last) / count] * count
        self._last = now

    def add_to(self, measured: Measured) -> None:
        """Adds the finished request to the measurements."""
        if self._first_token_s is None:
            raise InputError("the answer held no token")
        measured.num_succeeded += 1
        measured.first_token_s.append(self._first_token_s)
        measured.between_tokens_s.extend(self._between)
        measured.request_s.append(time.monotonic() - self._began)
        prompt_tokens, cached_tokens = _count(self._usage, "prompt_tokens"), 0
        measured.prompt_tokens += prompt_tokens
        measured.output_tokens += _count(self._usage, "completion_tokens") or 1 + len(self._between)
        details = self._usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            cached_tokens = _count(details, "cached_tokens")
            measured.cached_tokens += cached_tokens
            if isinstance(by_medium := details.get("cached_tokens_by_medium"), dict):
                measured.cached_by_medium.update({medium: _count(by_medium, medium) for medium in by_medium})
        if len(measured.samples) < _MOST_SAMPLES:
            measured.samples.append(
                Sample(
                    prompt_tokens=prompt_tokens,
                    cached_tokens=cached_tokens,
                    first_token_s=self._first_token_s,
                    between_tokens_s=median(self._between) if self._between else 0.0,
                    open_requests=(self._num_open + measured.num_open) / 2,
                )
            )


def _count(numbers: dict[str, Any], name: str) -> int:
    value = numbers.get(name)
    return value if isinstance(value, int) and 0 <= value <= _MOST_TOKENS else 0
