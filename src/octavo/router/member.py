"""`Member`: one engine of a fleet, and what it has told of itself."""

import asyncio
from dataclasses import dataclass, field

from octavo.router.address import EngineAddress
from octavo.router.index import FleetIndex
from octavo.server import EngineFacts


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One engine, as the fleet knows it now."""

    address: EngineAddress
    is_reachable: bool = False
    has_left: bool = False
    """The fleet has it no more; what was sent there may end."""
    is_draining: bool = False
    """It answers what it has, and gets nothing new."""
    is_listed: bool = True
    """Whether the name that it was found by still has its address; otherwise it gets nothing new."""
    problem: str = "not asked yet"
    """Why it is not reachable, or why its blocks are not known; empty when all is well."""
    facts: EngineFacts | None = None
    index: FleetIndex | None = None
    """Where its blocks are; None while nothing is known of them."""
    requests: set[asyncio.Timeout] = field(default_factory=set)
    """What is under way there. It ends when the engine does."""
    learns_plan: bool = False
    """Whether the engine does not tell its plan, so that what is known of it is "at most"."""
    num_batches: int = 0
    """Of events, that were applied."""

    @property
    def name(self) -> str:
        return self.address.name

    @property
    def takes_requests(self) -> bool:
        return self.is_reachable and self.is_listed and not self.is_draining
