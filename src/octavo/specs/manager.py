"""The contract of a manager: what one group does with one request's blocks.

An engine's facade (`octavo.blocks.KVCacheManager`) calls the managers of all groups in turn. It takes pages for all of
them at once, so that an allocation happens whole or not at all: a manager says how many it needs, then puts
them where they belong. `octavo.blocks.managers` has the built-in ones; a new kind mostly subclasses
`ResumeRuleManager` there.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from octavo.hashing import RequestIdentity
from octavo.ids import BlockHash, GroupIdx, Row
from octavo.specs.base import KVCacheSpec, ResumePoint
from octavo.specs.uniform import UniformTypeKVCacheSpecs

NULL_BLOCK = Row(-1)
"""Stands in a block table where the request has no block: skipped by a resume, or no longer needed."""


FoundBlocks = Sequence[tuple[range, list[Row]]]
"""Runs of blocks with the rows that hold them, in the order of the sequence."""


class BlockTable:
    """One request's blocks in one group: `rows[i]` is the row of block i."""

    __slots__ = ("num_published", "num_retired", "rows")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.num_retired = 0
        """Of the blocks below this one, the request holds only those that it still needs."""
        self.num_published = 0
        """All blocks below this one that the request holds have been published to the index."""


class CachedSequence(Protocol):
    """A request, as managers see it."""

    request_id: str
    identity: RequestIdentity
    generation: int
    """The pool's, when the request started; what it computes is published only under that."""
    num_prompt_tokens: int
    num_computed_tokens: int
    """Tokens that are computed and final."""
    num_scheduled_tokens: int
    """Tokens that are computed once all steps that have been allocated for are done."""

    @property
    def tokens(self) -> Sequence[int]:
        """All that are known."""

    def resume_point(self, num_tokens: int) -> ResumePoint: ...

    def hashes(self, group_idx: GroupIdx) -> Sequence[BlockHash]:
        """The hashes of the request's full blocks, by the group's block size."""

    def is_worth_a_checkpoint(self, num_tokens: int) -> bool:
        """Whether recurrent state at this boundary is promised to be kept."""


class PageHolder(Protocol):
    """The pool, as managers see it. Rows are given in the order of their sequence."""

    def hold(self, group_idx: GroupIdx, rows: Sequence[Row]) -> None: ...
    def let_go(self, group_idx: GroupIdx, rows: Sequence[Row]) -> None: ...
    def is_writable(self, group_idx: GroupIdx, row: Row) -> bool: ...
    def publish(
        self, group_idx: GroupIdx, sequence: CachedSequence, blocks: Sequence[int], rows: Sequence[Row]
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCopy:
    """One page's bytes that must be copied before a step's kernels run; copies are made in the order given."""

    group_idx: GroupIdx
    source: Row
    destination: Row


class SingleTypeKVCacheManager(ABC):
    """How one group allocates, frees and caches. It keeps no request: tables and pages are arguments."""

    def __init__(self, spec: KVCacheSpec, group_idx: GroupIdx, pages: PageHolder) -> None:
        self.spec = spec.rule if isinstance(spec, UniformTypeKVCacheSpecs) else spec
        self.block_size = spec.block_size
        self.group_idx = group_idx
        self.pages = pages

    def new_table(self) -> BlockTable:
        """The empty table of a new request."""
        return BlockTable()

    @abstractmethod
    def adopt(self, table: BlockTable, found: FoundBlocks, point: ResumePoint) -> None:
        """Begins a request at `point` with the blocks that a resume needs, which the caller has held for it."""

    @abstractmethod
    def num_pages_needed(self, table: BlockTable, sequence: CachedSequence, num_tokens: int) -> int:
        """The number of pages that `extend` to `num_tokens` takes. Changes nothing."""

    @abstractmethod
    def extend(
        self, table: BlockTable, sequence: CachedSequence, num_tokens: int, pages: list[Row]
    ) -> Sequence[PageCopy]:
        """Makes room for tokens up to `num_tokens` with the pages asked for, held once each. Returns the copies that
        must be made first."""

    @abstractmethod
    def commit(self, table: BlockTable, sequence: CachedSequence, num_tokens: int) -> None:
        """Publishes the blocks that became full when the computed tokens grew to `num_tokens`, and gives back the pages
        that no resume from there on needs. `sequence.num_computed_tokens` is still the former number."""

    @abstractmethod
    def release(self, table: BlockTable, sequence: CachedSequence) -> None:
        """Gives back all pages; the table is empty after it."""

    @abstractmethod
    def tokens_until_extend(self, table: BlockTable, sequence: CachedSequence) -> int:
        """The most tokens for which `extend` has nothing to do."""

    @abstractmethod
    def tokens_until_commit(self, table: BlockTable, sequence: CachedSequence) -> int:
        """The fewest computed tokens with which `commit` has something to do."""

    @abstractmethod
    def fork(self, table: BlockTable, sequence: CachedSequence) -> BlockTable:
        """The table of a second sequence with the same computed tokens. Pages are shared until one of the two
        writes; the writer's `extend` copies. No step of the sequence is in flight."""
