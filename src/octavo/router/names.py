"""`Names`: engines behind names whose addresses change, such as a headless service of Kubernetes: `dns://engines:8000`.

A name stands for one engine at each of its addresses. An engine whose address a name has no more gets no new requests,
and is forgotten after a while; until then it may come back as it was known. A name that cannot be looked up stands for
the engines that it stood for.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TypeAlias

from octavo.http import run_apart, take_error
from octavo.router.address import EngineAddress

_logger = logging.getLogger(__name__)

LOOK_UP_INTERVAL_S = 2.0
_PATIENCE_S = 10.0
FORGOTTEN_AFTER_S = 60.0
_MOST_HOSTS = 1024

LookUp: TypeAlias = Callable[[str, int], Awaitable[Collection[str]]]
"""From a name and a port to the hosts that the name has now. OSError if the name cannot be looked up."""


async def look_up(name: str, port: int) -> Collection[str]:
    """As this machine's resolver answers. It may take minutes, and asyncio's threads have other names to look up."""
    ask = partial(socket.getaddrinfo, name, port, type=socket.SOCK_STREAM)
    found = await run_apart(ask, name="octavo-names")
    return {host for *_, (host, *_) in found if isinstance(host, str) and "%" not in host}  # not of one link only


@dataclass(slots=True)
class _Known:
    """The last knowledge of one name."""

    address: EngineAddress
    hosts: Collection[str] = ()
    """The hosts of the last answer."""
    last_had: dict[str, float] = field(default_factory=dict)
    """Per host that is not forgotten: when the name was last seen to have it."""
    problem: str = ""
    asking: asyncio.Future[Collection[str]] | None = None
    """The look-up that has not ended yet."""


class Names:
    """The engines behind each name."""

    def __init__(self, look_up: LookUp, clock: Callable[[], float]) -> None:
        self._look_up = look_up
        self._clock = clock
        self._known: dict[str, _Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    @property
    def problems(self) -> dict[str, str]:
        """Per name: why it could not be looked up lately; empty if it could."""
        return {name: known.problem for name, known in self._known.items()}

    def follow(self, addresses: Sequence[EngineAddress]) -> None:
        """Looks up these names from now on, and no others."""
        wanted = {address.name: address for address in addresses}
        old = self._known
        self._known = {
            name: old[name] if name in old and old[name].address == address else _Known(address)
            for name, address in wanted.items()
        }

    def engines(self) -> list[tuple[EngineAddress, bool]]:
        """The engines that are not forgotten, and whether their name still has them: those come last, as an address may
        have gone from one name to another."""
        found = [
            (known.address.at(host), host in known.hosts) for known in self._known.values() for host in known.last_had
        ]
        return sorted(found, key=itemgetter(1))

    async def ask(self) -> None:
        """Looks all names up."""
        await asyncio.gather(*(self._ask_one(known) for known in self._known.values()))

    async def _ask_one(self, known: _Known) -> None:
        """A look-up that takes too long goes on, and others do not wait for it again."""
        patience_s = _PATIENCE_S if known.asking is None else 0.0
        try:
            if known.asking is None:
                known.asking = asyncio.ensure_future(self._look_up(*known.address.host_and_port))
                known.asking.add_done_callback(take_error)  # the name may be followed no longer by then
            await asyncio.wait([known.asking], timeout=patience_s)
            if not known.asking.done():
                raise TimeoutError
            answer, known.asking = known.asking, None
            hosts = frozenset(answer.result())
            is_usable = 0 < len(hosts) <= _MOST_HOSTS
            problem = "" if is_usable else f"it has {len(hosts):,} addresses, not 1 to {_MOST_HOSTS:,}"
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError; a name may be none of DNS
            problem = str(error) or f"no answer in {_PATIENCE_S:.0f} s"
        if problem and problem != known.problem:
            _logger.warning("%s stands for the engines that it stood for: %s", known.address.url, problem)
        known.problem = problem
        if problem:
            return
        known.hosts, now = hosts, self._clock()
        known.last_had |= dict.fromkeys(sorted(hosts), now)
        known.last_had = {host: had for host, had in known.last_had.items() if now - had < FORGOTTEN_AFTER_S}
