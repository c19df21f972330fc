"""The server's view of offloading, read on the engine's thread between two steps."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from octavo.engine import EngineSnapshot
from octavo.offload import MEMORY, OffloadStats, OffloadStatus
from octavo.tiers import TierState
from octavo.units import counted, format_bytes


class OffloadReport(NamedTuple):
    """All of offloading at a glance."""

    status: OffloadStatus
    stats: OffloadStats


Seen = tuple[EngineSnapshot, OffloadReport | None]
"""The engine and its offloading at one moment."""
ReadOffload = Callable[[], OffloadReport]
"""Called on the engine's thread."""


class TierView(msgspec.Struct, kw_only=True, frozen=True):
    """One medium below the device."""

    medium: str
    is_ok: bool
    reason: str
    bytes_used: int
    bytes_budget: int
    num_chunks: int
    counters: dict[str, int]
    levels: dict[str, int] = {}
    work: dict[str, float] = {}

    @property
    def usage(self) -> str:
        """Its bytes and its budget. Of a store that engines share, which has its own: the number of known chunks."""
        if not self.bytes_budget:
            return f"{counted(self.num_chunks, 'chunk')} known"
        return f"{format_bytes(self.bytes_used)} of {format_bytes(self.bytes_budget)}"


def view_tiers(report: OffloadReport) -> list[TierView]:
    """Host memory, and the tiers below it."""
    status = report.status
    memory = TierView(
        medium=MEMORY,
        is_ok=True,
        reason="",
        bytes_used=status.bytes_used,
        bytes_budget=status.bytes_budget,
        num_chunks=status.num_chunks,
        counters=dict(status.counters),
    )
    return [memory] + [
        TierView(
            medium=medium,
            is_ok=tier.state is TierState.OK,
            reason=tier.reason,
            bytes_used=tier.bytes_used,
            bytes_budget=tier.bytes_budget,
            num_chunks=tier.num_chunks,
            counters=dict(tier.counters),
            levels=dict(tier.levels),
            work=dict(tier.work),
        )
        for medium, tier in status.tiers
    ]
