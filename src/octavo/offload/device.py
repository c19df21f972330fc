"""What offloading wants of the device cache.

`octavo.blocks.DeviceCache` gives it, and an adapter of another engine may. Only `building` knows both packages.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from octavo.hashing import RequestIdentity
from octavo.ids import BlockHash, GroupIdx, Row
from octavo.planning import KVCacheConfig
from octavo.specs import PromisePlan, ResumePoint


class OffloadedRequest(Protocol):
    """A request, as offloading sees it."""

    request_id: str
    identity: RequestIdentity
    num_prompt_tokens: int
    num_computed_tokens: int
    """Tokens that are computed and final."""
    promises: PromisePlan
    """Where others will want to resume. Offloading plans it anew when it has seen what the tiers have."""

    @property
    def num_tokens(self) -> int: ...

    def resume_point(self, num_tokens: int) -> ResumePoint: ...

    def hashes(self, group_idx: GroupIdx) -> Sequence[BlockHash]: ...


class DeviceBlocks(Protocol):
    """Which blocks of one request's group are on the device (`BlockAvailability`), and where."""

    @property
    def index(self) -> Mapping[BlockHash, Row]: ...
    @property
    def hashes(self) -> Sequence[BlockHash]: ...
    def first_missing(self, start: int, stop: int) -> int: ...
    def available_until(self, stop: int) -> int: ...


class HeldPages(Protocol):
    """Pages that are held for one load."""

    @property
    def destinations(self) -> Sequence[Mapping[int, Row]]:
        """By group: the row into which each missing block is to be loaded."""


class Device(Protocol):
    """The device cache's side of loads and stores. It is given its own requests and pages back, so their types are
    its own: `OffloadedRequest` and `HeldPages` are what offloading wants of them."""

    @property
    def config(self) -> KVCacheConfig: ...
    def blocks_of(self, request: Any) -> Sequence[DeviceBlocks]: ...
    def reserve(
        self, request: Any, there: Sequence[Sequence[Row]], missing: Sequence[Sequence[int]]
    ) -> HeldPages | None: ...
    def fill(self, pages: Any, group_idx: GroupIdx, blocks: Sequence[int], /) -> None: ...
    def give_back(self, pages: Any, /) -> None: ...
    def hold(self, group_idx: GroupIdx, rows: Sequence[Row]) -> None: ...
    def let_go(self, group_idx: GroupIdx, rows: Sequence[Row]) -> None: ...
    def free_share(self) -> float: ...
    def is_busy(self) -> bool: ...
