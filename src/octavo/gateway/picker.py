"""`Picker`: which engine a request should go to, as addresses that a Gateway understands."""

import asyncio
import socket
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from octavo.router import UNREAD, Choice, Fleet, Prompt, PromptReader, ReadPrompt, Reservation
from octavo.server import ApiError

_DECISIONS = 64
_ADDRESS_LASTS_S = 5.0
"""Names are looked up again after this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedEngine:
    """One decision, for people who ask why."""

    prompt: Prompt
    choice: Choice


@dataclass(slots=True, kw_only=True, eq=False)
class Picked:
    """Where a request goes. `begun` and `end` must follow."""

    endpoints: tuple[str, ...]
    """`10.0.0.5:8000`; the first is the choice, the others follow if it does not answer."""
    fleet: Fleet
    sent: Reservation
    expecting: AbstractContextManager[None]
    is_open: bool = True

    def begun(self) -> None:
        """Its first token has come."""
        self.fleet.placement.first_token(self.sent, time.monotonic())

    def end(self) -> None:
        """It is answered, or nobody waits for it any more."""
        if self.is_open:
            self.is_open = False
            self.expecting.__exit__(None, None, None)
            self.fleet.placement.end(self.sent)


class Picker:
    """Picks engines of a fleet."""

    def __init__(self, fleet: Fleet, *, fallbacks: int) -> None:
        self._fleet = fleet
        self._reader = PromptReader(fleet)
        self._addresses = _Addresses()
        self._fallbacks = fallbacks
        self.decisions: deque[PickedEngine] = deque(maxlen=_DECISIONS)
        """The last ones, the newest at the end."""

    async def pick(
        self, body: bytes | None, headers: Mapping[str, str], allowed: Collection[str] | None = None
    ) -> Picked:
        """The engine for a request, of `allowed` endpoints if there are any. ApiError where there is none."""
        read = UNREAD if body is None else await self._reader.read(body, headers)
        endpoints = await self._addresses.of(self._fleet, self._fleet.ready)
        if allowed is not None:
            endpoints = {name: endpoint for name, endpoint in endpoints.items() if endpoint in allowed}
        choice = self._fleet.placement.choose(read.prompt, list(endpoints))
        if choice is None:
            reason = "no engine can be reached" if allowed is None else "no engine that this request may use is ready"
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, reason, headers={"retry-after": "1"})
        self.decisions.append(PickedEngine(prompt=read.prompt, choice=choice))
        return self._send(read, choice, endpoints)

    def _send(self, read: ReadPrompt, choice: Choice, endpoints: dict[str, str]) -> Picked:
        placement, named = self._fleet.placement, [endpoints.pop(choice.engine)]
        sent = placement.send(choice, read.prompt, time.monotonic())
        expecting = self._fleet.expecting(choice.engine, read)
        expecting.__enter__()
        while len(named) <= self._fallbacks and (other := placement.choose(read.prompt, list(endpoints))) is not None:
            named.append(endpoints.pop(other.engine))
        return Picked(endpoints=tuple(named), fleet=self._fleet, sent=sent, expecting=expecting)


class _Addresses:
    """Engines' addresses as numbers, since a Gateway looks up no names."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, float]] = {}

    async def of(self, fleet: Fleet, names: Iterable[str]) -> dict[str, str]:
        """By engine. One whose name cannot be looked up is left out."""
        found: dict[str, str] = {}
        for name in names:
            endpoint, until = self._known.get(name, ("", 0.0))
            if time.monotonic() >= until:
                endpoint = await _endpoint_of(fleet.members[name].address.url) or endpoint
                self._known[name] = endpoint, time.monotonic() + _ADDRESS_LASTS_S
            if endpoint:
                found[name] = endpoint
        return found


async def _endpoint_of(url: str) -> str | None:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return None
    host = found[0][4][0]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
