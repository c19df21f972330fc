"""`Proxy`: takes a request, finds the engine for it, and hands on the engine's answer as it comes.

An engine that cannot be reached, or that is busy or ending, has answered nothing: the request goes to another one. Once
a byte of an answer has gone to the client, no other engine gets the request. Nor does one once it has broken off at
several, as it may be at fault, and would end one engine after the other; or once many have refused it, as a fleet with
too much to do would have to refuse each request once for each engine.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, TypeAlias

import httpx
import msgspec

from octavo.errors import MALFORMED
from octavo.http import IGNORED_FIELDS, RETAIN, ApiError, Exchange, Headers, is_event_stream, not_found, overloaded
from octavo.router.decisions import Decisions
from octavo.router.engine_load import SentRequest
from octavo.router.fleet import Fleet
from octavo.router.member import Member
from octavo.router.placement import EngineChoice, Prompt
from octavo.router.prompt_reader import SESSION, Hints, PromptReader, as_sent, hints_in
from octavo.router.reasons import reason_of

_TRY_ANOTHER = frozenset({429, 502, 503, 504})
_HANDED_ON = frozenset(
    {b"authorization", b"accept", b"content-type", b"x-request-id", SESSION.encode(), RETAIN.encode()}
)
_HANDED_BACK = frozenset(
    {b"content-type", b"content-encoding", b"cache-control", b"retry-after", b"x-request-id", b"warning"}
    | {IGNORED_FIELDS.encode()}
)
FirstToken: TypeAlias = Callable[[float], None]
"""Called with the seconds that a client waited for its first token."""
_STATUSES_END = 600
_MOST_BYTES_OF_ANSWER = 64 << 20
_MOST_CHARS_OF_REASON = 500
_MOST_BYTES_OF_REFUSAL = 64 << 10
_PATIENCE_WITH_REFUSAL_S = 1.0
"""The most of a refusal's body that is read, and how long it may take: it only tells people why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Incoming:
    """A client's request, in the form in which an engine gets it."""

    exchange: Exchange
    path: str
    headers: dict[str, str]
    body: bytes
    model: str
    """As the body names it; empty if it names none."""
    came_at: float


class _Reason(msgspec.Struct):
    param: Any = None


class _Refusal(msgspec.Struct):
    """The body of an engine's refusal, as far as it is read."""

    error: _Reason


class _Why(Enum):
    """Why an engine did not answer."""

    UNREACHED = auto()
    """It never had the request, and counts as gone from now on."""
    REFUSED = auto()
    """It is busy or ending, or lacks the model; or it is the router that can open no connection."""
    BROKEN = auto()
    """It had the request, and may have ended because of it."""


_MOST = {_Why.REFUSED: 8, _Why.BROKEN: 3}
"""A request that so many engines did not answer goes to no other. Those that count as gone get none anyway."""


class _TryAnotherError(Exception):
    """This engine did not answer; another one may."""

    def __init__(self, error: ApiError, why: _Why) -> None:
        super().__init__(str(error))
        self.error = error
        self.why = why


class Proxy:
    """Takes requests through the router."""

    def __init__(self, fleet: Fleet, first_token: FirstToken, *, engine_api_key: str | None = None) -> None:
        self._fleet = fleet
        self._reader = PromptReader(fleet)
        self._note_first_token = first_token
        self._engine_api_key = engine_api_key
        self.decisions = Decisions()

    async def answer(self, exchange: Exchange, path: str, body: bytes) -> None:
        """Answers one request of generation. ApiError if no engine can."""
        self.decisions.num_requests += 1
        hints = hints_in(body)
        request = _Incoming(
            exchange=exchange,
            path=path,
            headers=self._request_headers(exchange),
            body=body,
            model=hints.model,
            came_at=time.monotonic(),
        )
        read = await self._reader.read(body, request.headers, exchange.tenant)
        tried: set[str] = set()
        failed = Counter[_Why]()
        refusal = self._fleet.refusal(hints.model)
        while not _is_over(failed) and (choice := self._choose(read.prompt, tried, hints)) is not None:
            self.decisions.add(path, read.prompt, choice)
            sent = self._fleet.placement.send(choice, read.prompt, time.monotonic(), is_told=hints.is_stream)
            try:
                with self._fleet.expecting(choice.engine, read):
                    marked = replace(request, headers=request.headers | self._fleet.marks(read.prompt, choice))
                    await self._relay(marked, self._fleet.members[choice.engine], sent, _told(read.prompt, choice))
            except _TryAnotherError as another:
                tried.add(choice.engine)
                failed[another.why] += 1
                self.decisions.num_retries += 1
                refusal = another.error
            else:
                return
            finally:
                self._fleet.placement.end(sent)
        raise refusal

    def _choose(self, prompt: Prompt, tried: Collection[str], hints: Hints) -> EngineChoice | None:
        able = [name for name in self._fleet.ready_for(hints.model) if name not in tried]
        return self._fleet.placement.choose(prompt, able, time.monotonic(), priority=hints.priority)

    async def _relay(self, request: _Incoming, member: Member, sent: SentRequest, told: Headers) -> None:
        url = member.address.url + request.path
        client, exchange = self._fleet.client, request.exchange
        try:
            async with (
                self._fleet.while_alive(member),
                client.stream("POST", url, headers=_for_rank(request.headers, member), content=request.body) as answer,
            ):
                pieces = await _begun(member, answer)
                if answer.status_code == HTTPStatus.NOT_FOUND and request.model and not _is_stream(answer):
                    pieces = await self._explained(request.model, member, pieces)
                if _is_stream(answer):  # of any other answer, nobody can say when its first token came
                    now = time.monotonic()
                    self._fleet.placement.first_token(sent, now)
                    self._note_first_token(now - request.came_at)
                await exchange.relay(_status_of(answer), [*_handed_back(answer), *told], pieces)
            member.answered_at = time.monotonic()
        except httpx.HTTPError as error:
            if self._fleet.lacks_connection(member, error):
                gone, why = overloaded("the router can open no more connections; try again later"), _Why.REFUSED
            else:
                self._fleet.broke(member, error)
                gone, why = _gone(member, error), _why(error)
            if exchange.has_begun:
                raise gone from error
            raise _TryAnotherError(gone, why) from error

    async def _explained(self, model: str, member: Member, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """A refusal, unless it is that the engine lacks the model. Then another one may have it, if any has told it;
        otherwise ApiError with the models of all engines, as this one knows its own alone."""
        body = b"".join([piece async for piece in pieces])
        if not _lacks_model(body):
            return _all(body, pieces)  # of which there are none left
        if not self._fleet.has_told(model):
            raise self._fleet.unknown_model(model)
        member.has_begun_anew = True  # it has others by now
        message = body[:_MOST_CHARS_OF_REASON].decode(errors="replace")
        lacks = not_found(f"engine {member.name}: {message}", param="model", code="model_not_found")
        raise _TryAnotherError(lacks, _Why.REFUSED)

    def _request_headers(self, exchange: Exchange) -> dict[str, str]:
        """The headers for the engine. A tenant's request carries the tenant's own key, by which engines know the
        tenant."""
        headers = exchange.headers
        handed_on = {k.decode("latin-1"): v.decode("latin-1") for k, v in headers.items() if k in _HANDED_ON}
        if self._engine_api_key is not None and exchange.tenant is None:
            handed_on["authorization"] = f"Bearer {self._engine_api_key}"
        return handed_on


def _for_rank(headers: dict[str, str], member: Member) -> Headers:
    """vLLM's server sends a request to the data-parallel rank that this header names."""
    rank = member.address.rank
    return as_sent(headers if rank is None else {**headers, "x-data-parallel-rank": str(rank)})


async def _begun(member: Member, answer: httpx.Response) -> AsyncIterator[bytes]:
    """The answer from its first piece on, or the whole answer if it is no stream. Nothing has gone to the client
    before, so another engine can be tried after a failure."""
    pieces = answer.aiter_raw()
    if answer.status_code in _TRY_ANOTHER:
        raise _TryAnotherError(_refused(member, answer, await _reason(pieces)), _Why.REFUSED)
    first = await anext(pieces, b"") if _is_stream(answer) else await _whole(pieces)
    return _all(first, pieces)


def _is_stream(answer: httpx.Response) -> bool:
    return is_event_stream(answer.headers.get("content-type", ""))


async def _reason(pieces: AsyncIterator[bytes]) -> bytes:
    """What a refusal says, as far as it comes soon."""
    said = bytearray()
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(_PATIENCE_WITH_REFUSAL_S):
            async for piece in pieces:
                said += piece
                if len(said) > _MOST_BYTES_OF_REFUSAL:
                    break
    return bytes(said)


async def _whole(pieces: AsyncIterator[bytes]) -> bytes:
    whole = bytearray()
    async for piece in pieces:
        whole += piece
        if len(whole) > _MOST_BYTES_OF_ANSWER:
            raise ApiError(HTTPStatus.BAD_GATEWAY, f"an engine's answer exceeds {_MOST_BYTES_OF_ANSWER:,} bytes")
    return bytes(whole)


async def _all(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def _status_of(answer: httpx.Response) -> int:
    """The status of the answer that the client gets. HTTP has none of 600 or more, and no server sends one."""
    return answer.status_code if answer.status_code < _STATUSES_END else HTTPStatus.BAD_GATEWAY


def _lacks_model(body: bytes) -> bool:
    """Whether a refusal, in the shape of OpenAI's API, is of the model."""
    try:
        return bool(msgspec.json.decode(body, type=_Refusal).error.param == "model")
    except MALFORMED:
        return False


def _handed_back(answer: httpx.Response) -> Headers:
    return [(name.lower(), value) for name, value in answer.headers.raw if name.lower() in _HANDED_BACK]


def _told(prompt: Prompt, choice: EngineChoice) -> Headers:
    """The header that tells the router's choice: compared with the answer's usage it shows how right the router was."""
    engine = (b"x-octavo-engine", choice.engine.encode())
    return [engine, (b"x-octavo-expected", b"%d" % choice.resumed_tokens)] if prompt.num_tokens else [engine]


def _why(error: Exception) -> _Why:
    return _Why.UNREACHED if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) else _Why.BROKEN


def _is_over(failed: Counter[_Why]) -> bool:
    return any(failed[why] >= most for why, most in _MOST.items())


def _gone(member: Member, error: Exception) -> ApiError:
    return ApiError(HTTPStatus.BAD_GATEWAY, f"engine {member.name} went away: {reason_of(error)}", code="engine_gone")


def _refused(member: Member, answer: httpx.Response, body: bytes) -> ApiError:
    message = body[:_MOST_CHARS_OF_REASON].decode(errors="replace")
    retry = {"retry-after": answer.headers.get("retry-after", "1")}
    status = HTTPStatus(answer.status_code)
    return ApiError(status, f"engine {member.name}: {message}", code="engine_busy", headers=retry)
