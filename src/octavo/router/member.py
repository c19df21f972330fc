"""`Member`: one engine of a fleet, and what it has told of itself."""

import asyncio
import logging
import math
import re
import time
from dataclasses import dataclass, field

from octavo.http import EngineFacts
from octavo.router.address import EngineAddress
from octavo.router.index import FleetIndex
from octavo.router.remedies import OF_ADDRESSES, Remedies
from octavo.router.token_telling import TokenTelling

_logger = logging.getLogger(__name__)

_QUESTION = re.compile(r"GET /\w+: ")


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One engine, and the present knowledge of it."""

    address: EngineAddress
    remedies: Remedies = OF_ADDRESSES
    lost: str = "not asked yet"
    """Why it cannot be reached; empty while it can."""
    blind: str = ""
    """Why its blocks are not known; empty while they are."""
    has_left: bool = False
    """Whether the fleet has dropped it; requests that were sent there may end."""
    is_draining: bool = False
    """Whether it gets nothing new, and only answers the requests that it has."""
    is_listed: bool = True
    """Whether the name that it was found by still has its address; otherwise it gets nothing new."""
    added_at: float = field(default_factory=time.monotonic)
    """When it came into the fleet."""
    facts: EngineFacts | None = None
    has_begun_anew: bool = False
    """Whether its events tell of a restart since it told its facts. A restart may be quicker than the look for its
    health, or another engine takes over its address."""
    index: FleetIndex | None = None
    """The index with its blocks; None while nothing is known of them."""
    requests: set[asyncio.Timeout] = field(default_factory=set)
    """The requests under way there. They end when the engine does."""
    answered_at: float = -math.inf
    """When the last whole answer had come from it, by `time.monotonic`."""
    learns_plan: bool = False
    """Whether the engine does not tell its plan, so that the knowledge of its blocks is "at most"."""
    renders: bool = False
    """Whether it tells a prompt's images too, and not only its tokens."""
    telling: TokenTelling = field(default_factory=TokenTelling)
    num_batches: int = 0
    """The batches of events that were applied."""

    @property
    def name(self) -> str:
        return self.address.name

    @property
    def is_reachable(self) -> bool:
        return not self.lost

    @property
    def problem(self) -> str:
        """Empty while the engine works."""
        return self.lost or self.blind

    def lose(self, reason: str) -> None:
        """The same reason for another question is no news."""
        if _without_question(reason) != _without_question(self.lost):
            _logger.warning("engine %s is lost: %s", self.name, reason)
        self.lost = reason

    def go_blind(self, reason: str) -> None:
        if reason != self.blind:
            _logger.warning("engine %s: %s", self.name, reason)
        self.blind = reason

    def serves(self, model: str) -> bool:
        """Whether the engine has told that it serves a model or an adapter of this name."""
        return self.facts is not None and model in self.facts.names

    def drain(self, *, is_draining: bool) -> None:
        if is_draining != self.is_draining:
            _logger.info("engine %s %s", self.name, "gets no new requests" if is_draining else "takes requests again")
        self.is_draining = is_draining

    @property
    def takes_requests(self) -> bool:
        return self.is_reachable and self.is_listed and not self.is_draining


def _without_question(reason: str) -> str:
    return _QUESTION.sub("", reason, count=1)
