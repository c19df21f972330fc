"""`Picker`: chooses the engine of a request, and tells its address to a Gateway."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from http import HTTPStatus
from urllib.parse import urlsplit

from octavo.http import ApiError
from octavo.router import (
    UNREAD,
    Decisions,
    EngineChoice,
    Fleet,
    LookUp,
    PromptReader,
    ReadPrompt,
    hints_in,
    look_up,
)

_ADDRESS_LASTS_S = 5.0
"""Seconds after which names are looked up again."""
_PATIENCE_S = 1.0
"""The longest that a request waits for an address of which nothing is known."""


class Picked:
    """The engines picked for a request, which counts at one of them until `end`."""

    def __init__(
        self,
        choices: Mapping[str, EngineChoice],
        read: ReadPrompt,
        fleet: Fleet,
        note_first_token: Callable[[float], None],
        *,
        is_stream: bool,
    ) -> None:
        """`choices`: by addresses such as `10.0.0.5:8000`, in the order in which they are to be tried. `is_stream`:
        whether `begun` will be called."""
        self._choices = choices
        self._read = read
        self._fleet = fleet
        self._note_first_token = note_first_token
        self._is_stream = is_stream
        self._counts = ExitStack()
        self._began_at = time.monotonic()
        self._is_open = True
        self._go_to(self.endpoints[0])

    @property
    def endpoints(self) -> tuple[str, ...]:
        """First the choice, then those to try if it does not answer."""
        return tuple(self._choices)

    @property
    def marks(self) -> dict[str, str]:
        """Headers for the engine, by which it tells other pickers of the request."""
        return self._fleet.marks(self._read.prompt, self._choices[self.endpoints[0]])

    def answered_by(self, endpoint: str) -> None:
        """The Gateway says who answers: the request counts there from now on. What is not known stays as it was."""
        choice = self._choices.get(endpoint)
        if self._is_open and choice is not None and endpoint != self._at and choice.engine in self._fleet.members:
            self._counts.close()
            self._go_to(endpoint)

    def begun(self) -> None:
        """A piece of the answer has come. An engine's speed is not learned from a request that another one had first,
        as nobody says when it got it."""
        if self._sent.has_begun:
            return
        now = time.monotonic()
        self._fleet.placement.first_token(self._sent, now if self._at == self.endpoints[0] else self._sent.sent_at)
        self._note_first_token(now - self._began_at)

    def end(self) -> None:
        """The request is answered, or given up."""
        self._is_open = False
        self._counts.close()

    def _go_to(self, endpoint: str) -> None:
        self._at, choice = endpoint, self._choices[endpoint]
        self._counts.enter_context(self._fleet.expecting(choice.engine, self._read))
        self._sent = self._fleet.placement.send(choice, self._read.prompt, time.monotonic(), is_told=self._is_stream)
        self._counts.callback(self._fleet.placement.end, self._sent)


class Picker:
    """Picks engines of a fleet."""

    def __init__(
        self,
        fleet: Fleet,
        note_first_token: Callable[[float], None],
        *,
        fallbacks: int,
        look_up: LookUp = look_up,
    ) -> None:
        """`look_up` finds the engines' addresses. `note_first_token` gets the seconds that each first token took."""
        self._fleet = fleet
        self._reader = PromptReader(fleet)
        self._addresses = _Addresses(look_up)
        self._fallbacks = fallbacks
        self._note_first_token = note_first_token
        self.decisions = Decisions()

    async def pick(
        self,
        body: bytes | None,
        headers: Mapping[str, str],
        tenant: str | None = None,
        *,
        path: str = "",
        allowed: Collection[str] | None = None,
    ) -> Picked:
        """Picks a request's engine, out of `allowed` endpoints if there are any. Raises ApiError if there is none."""
        self.decisions.num_requests += 1
        read = UNREAD if body is None else await self._reader.read(body, headers, tenant)
        known = await self._addresses.of(self._fleet)
        hints = hints_in(body or b"")
        endpoints = {name: known[name] for name in self._fleet.ready_for(hints.model) if name in known}  # some left
        if allowed is not None:
            endpoints = {name: endpoint for name, endpoint in endpoints.items() if endpoint in allowed}
        if not endpoints:
            raise self._absence(hints.model, is_limited=allowed is not None)
        now = time.monotonic()
        choice = self._fleet.placement.choose(read.prompt, list(endpoints), now, priority=hints.priority)
        if choice is None:
            raise self._fleet.refusal(hints.model)
        self.decisions.add(path, read.prompt, choice)
        choices = {endpoints.pop(choice.engine): choice}
        while len(choices) <= self._fallbacks:
            other = self._fleet.placement.choose(read.prompt, list(endpoints), now, priority=hints.priority)
            if other is None:
                break
            choices[endpoints.pop(other.engine)] = other
        return Picked(choices, read, self._fleet, self._note_first_token, is_stream=hints.is_stream)

    def _absence(self, model: str, *, is_limited: bool) -> ApiError:
        """Why there is no endpoint for a request."""
        if not is_limited and not self._fleet.ready_for(model):
            return self._fleet.absence(model)
        reason = "no engine that this request may use is ready" if is_limited else "no engine's name can be looked up"
        return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, reason, headers={"retry-after": "1"})


class _Addresses:
    """Engines' addresses as numbers, since a Gateway looks up no names. A request waits for no resolver where an
    address is known: that is looked up again beside it."""

    def __init__(self, look_up: LookUp) -> None:
        self._look_up = look_up
        self._known: dict[str, _Endpoint] = {}
        """By URL."""

    async def of(self, fleet: Fleet) -> dict[str, str]:
        """By engine, the address; one that cannot be looked up is left out."""
        ready = {name: fleet.members[name].address.url for name in fleet.ready}
        urls = {member.address.url for member in fleet.members.values()}
        self._known = {url: endpoint for url, endpoint in self._known.items() if url in urls}
        endpoints = {name: self._known.setdefault(url, _Endpoint(url)) for name, url in ready.items()}
        asking = [endpoint.renewal(self._look_up) for endpoint in endpoints.values()]
        new = [task for task, endpoint in zip(asking, endpoints.values(), strict=True) if not endpoint.text]
        if new:
            await asyncio.wait(new, timeout=_PATIENCE_S)
        return {name: endpoint.text for name, endpoint in endpoints.items() if endpoint.text}


class _Endpoint:
    """The address of one engine. It stays as it was while it is looked up, and where that fails."""

    def __init__(self, url: str) -> None:
        self.text = ""
        """Empty while it is not known."""
        self._url = url
        self._renewing: asyncio.Task[None] | None = None
        self._lasts_until = 0.0

    def renewal(self, look_up: LookUp) -> asyncio.Task[None]:
        """The last look-up, or a new one if that is due."""
        if self._renewing is None or (self._renewing.done() and time.monotonic() >= self._lasts_until):
            self._renewing = asyncio.create_task(self._renew(look_up))
        return self._renewing

    async def _renew(self, look_up: LookUp) -> None:
        parts = urlsplit(self._url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with suppress(OSError, UnicodeError, ValueError):
            hosts = await look_up(parts.hostname or "", port)
            host = min(hosts, key=lambda host: (":" in host, host))  # the same choice each time, and IPv4 before IPv6
            self.text = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._lasts_until = time.monotonic() + _ADDRESS_LASTS_S
