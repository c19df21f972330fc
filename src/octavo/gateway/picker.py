"""`Picker`: chooses the engine of a request, and tells its address to a Gateway."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from octavo.router import (
    UNREAD,
    Choice,
    Decisions,
    Fleet,
    LookUp,
    PromptReader,
    ReadPrompt,
    Reservation,
    hints_in,
    look_up,
)
from octavo.server import ApiError

_ADDRESS_LASTS_S = 5.0
"""Seconds after which names are looked up again."""
_PATIENCE_S = 1.0
"""The longest that a request waits for an address of which nothing is known."""


@dataclass(slots=True, kw_only=True, eq=False)
class Picked:
    """The engines picked for a request. `begun` and `end` must follow."""

    endpoints: tuple[str, ...]
    """Addresses such as `10.0.0.5:8000`: first the choice, then those to try if it does not answer."""
    marks: dict[str, str]
    """Headers for the engine, by which it tells other pickers of the request."""
    fleet: Fleet
    sent: Reservation
    expecting: AbstractContextManager[None]
    note_first_token: Callable[[float], None]
    is_open: bool = True

    def begun(self) -> None:
        """Notes that a piece of the answer has come."""
        if not self.sent.has_begun:
            now = time.monotonic()
            self.fleet.placement.first_token(self.sent, now)
            self.note_first_token(now - self.sent.sent_at)

    def end(self) -> None:
        """Notes that the request is answered, or given up."""
        if self.is_open:
            self.is_open = False
            self.expecting.__exit__(None, None, None)
            self.fleet.placement.end(self.sent)


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
            reason = "no engine can be reached" if allowed is None else "no engine that this request may use is ready"
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, reason, headers={"retry-after": "1"})
        choice = self._fleet.placement.choose(read.prompt, list(endpoints), priority=hints.priority)
        if choice is None:
            raise self._fleet.refusal(hints.model)
        self.decisions.add(path, read.prompt, choice)
        return self._send(read, choice, endpoints, hints.priority)

    def _send(self, read: ReadPrompt, choice: Choice, endpoints: dict[str, str], priority: int) -> Picked:
        placement, named = self._fleet.placement, [endpoints.pop(choice.engine)]
        sent = placement.send(choice, read.prompt, time.monotonic())
        expecting = self._fleet.expecting(choice.engine, read)
        expecting.__enter__()
        while len(named) <= self._fallbacks:
            other = placement.choose(read.prompt, list(endpoints), priority=priority)
            if other is None:
                break
            named.append(endpoints.pop(other.engine))
        return Picked(
            endpoints=tuple(named),
            marks=self._fleet.marks(read.prompt, choice),
            fleet=self._fleet,
            sent=sent,
            expecting=expecting,
            note_first_token=self._note_first_token,
        )


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
