"""What an engine did and how full its pool is: counters that only grow, and snapshots between two steps."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from octavo.blocks import KVCacheManager, rows_held
from octavo.engine.outputs import FinishReason
from octavo.ids import GroupIdx, enumerate_groups


@dataclass(slots=True, kw_only=True)
class EngineCounters:
    """Counts since the engine was made."""

    steps: int = 0
    failed_steps: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    """Prompt tokens of the requests that came in."""
    prefill_tokens_computed: int = 0
    """Tokens computed in chunks, those computed again after a preemption included."""
    output_tokens: int = 0
    tokens_resumed: dict[str, int] = field(default_factory=dict)
    """Tokens that were resumed, by medium."""
    tokens_asked: int = 0
    """Tokens of all choices when they started, resumed or not."""
    tokens_missed_by_group: dict[int, int] = field(default_factory=dict)
    """Tokens that were not resumed because a group lacked something, by that group."""
    choices_finished: dict[str, int] = field(default_factory=dict)
    """Choices that have ended, by reason."""
    preemptions: int = 0
    stalls: int = 0
    """Times that no request made progress though there was work: see `ProgressWatch`."""
    forward_s: float = 0.0
    """Seconds in the model."""
    step_s: float = 0.0
    """Seconds in steps that computed something, the model included."""

    def count_resumed(self, by_medium: Mapping[str, int]) -> None:
        for medium, tokens in by_medium.items():
            self.tokens_resumed[medium] = self.tokens_resumed.get(medium, 0) + tokens

    def count_finished(self, reason: FinishReason) -> None:
        self.choices_finished[reason.value] = self.choices_finished.get(reason.value, 0) + 1

    def take_cache_stats(self, manager: KVCacheManager) -> None:
        """Adds the manager's counts since the last time."""
        stats = manager.take_stats()
        self.tokens_asked += stats.tokens_asked
        for group, tokens in stats.tokens_missed_by_group.items():
            self.tokens_missed_by_group[group] = self.tokens_missed_by_group.get(group, 0) + tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOccupancy:
    """One group's share of the pool."""

    group_idx: GroupIdx
    kind: str
    block_size: int
    num_layers: int
    page_bytes: int
    page_class: int | None
    held_blocks: int
    """Blocks in the tables of requests; a page that several share counts once."""
    indexed_blocks: int
    """Blocks that can be found, held or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassOccupancy:
    """The use of one page class: pages of one size."""

    page_bytes: int
    pages_per_sheet: int
    leased_sheets: int
    held_pages: int
    cached_pages: int
    free_pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSnapshot:
    """The engine between two steps."""

    num_running: int
    num_waiting: int
    is_stalled: bool
    counters: EngineCounters
    """A copy."""
    sheet_bytes: int
    num_sheets: int
    free_sheets: int
    groups: tuple[GroupOccupancy, ...]
    classes: tuple[ClassOccupancy, ...]


def take_snapshot(
    manager: KVCacheManager, counters: EngineCounters, *, num_running: int, num_waiting: int, is_stalled: bool
) -> EngineSnapshot:
    """Adds the cache's new counts to the counters, and takes the snapshot."""
    counters.take_cache_stats(manager)
    config = manager.config
    return EngineSnapshot(
        num_running=num_running,
        num_waiting=num_waiting,
        is_stalled=is_stalled,
        counters=deepcopy(counters),
        sheet_bytes=config.sheet_bytes,
        num_sheets=config.num_sheets,
        free_sheets=len(manager.pool.free_sheets),
        groups=group_occupancy(manager),
        classes=class_occupancy(manager),
    )


def group_occupancy(manager: KVCacheManager) -> tuple[GroupOccupancy, ...]:
    """How much of the pool each group has. Its time grows with the number of held blocks."""
    held: list[set[int]] = [set() for _ in manager.config.groups]
    for request in manager.requests.values():
        for rows, table in zip(held, request.tables, strict=True):
            rows.update(rows_held(table))
    return tuple(
        GroupOccupancy(
            group_idx=index,
            kind=group.kind,
            block_size=group.block_size,
            num_layers=len(group.layer_names),
            page_bytes=group.page_bytes,
            page_class=group.page_class,
            held_blocks=len(rows),
            indexed_blocks=len(manager.pool.indexes[index]),
        )
        for index, (group, rows) in enumerate_groups(zip(manager.config.groups, held, strict=True))
    )


def class_occupancy(manager: KVCacheManager) -> tuple[ClassOccupancy, ...]:
    """The use of the pages of each class."""
    return tuple(
        ClassOccupancy(
            page_bytes=page_class.page_bytes,
            pages_per_sheet=page_class.pages_per_sheet,
            leased_sheets=usage.leased_sheets,
            held_pages=usage.held_pages,
            cached_pages=usage.cached_pages,
            free_pages=usage.free_pages,
        )
        for page_class, usage in zip(manager.config.page_classes, manager.usage(), strict=True)
    )
