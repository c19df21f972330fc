"""The finished memory plan: groups, page classes and sheets.

    pool      int8 (num_sheets, sheet_bytes)
    class     pool.view(-1, page_bytes): pages_per_sheet rows of it lie in each sheet
    block i   row i of its group's class; layer l of it starts at layer_offsets[l] within the row

A sheet is leased to one class at a time. Groups whose pages are equally large share a class, and so its block ids.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from octavo.planning.resumability import why_nothing_resumes
from octavo.specs import RequestLimits, ResumePoint, UniformTypeKVCacheSpecs, blocks_to_resume, ceil_div, last_boundary


@dataclass(frozen=True, slots=True, kw_only=True)
class PageClass:
    """Pages of one size, into which a sheet is cut."""

    page_bytes: int
    pages_per_sheet: int
    num_blocks: int
    """Rows of the class's view of the whole pool. No other number of blocks counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheGroupSpec:
    """The layers that share a block table, and where each lies in a page."""

    spec: UniformTypeKVCacheSpecs
    layer_offsets: Mapping[str, int]
    page_bytes: int
    """Bytes from the first layer's start to the last one's end, rounded up to the alignment."""
    page_class: int | None
    """Index of the class of its pages; None for a group that keeps nothing."""
    reserved_blocks: int
    """Blocks that no request owns and that are never freed: sinks, and the null row where a kernel needs one."""
    is_draft: bool = False

    @property
    def layer_names(self) -> tuple[str, ...]:
        return tuple(self.spec.specs)

    @property
    def kind(self) -> str:
        return self.spec.kind

    @property
    def block_size(self) -> int:
        return self.spec.block_size

    @property
    def unpadded_page_bytes(self) -> int:
        """Bytes of cache content in one block, without any padding."""
        return sum(spec.unpadded_page_size_bytes for spec in self.spec.specs.values())


@dataclass(frozen=True, kw_only=True)
class KVCacheConfig:
    """The memory plan of one rank. All code that allocates, indexes or offloads blocks takes its numbers from here."""

    groups: tuple[KVCacheGroupSpec, ...]
    page_classes: tuple[PageClass, ...]
    sheet_bytes: int
    num_sheets: int
    memory_bytes: int
    """The memory that was given; `num_sheets * sheet_bytes` of it is used."""
    alignment_bytes: int
    hash_block_size: int
    resume_granularity: int
    checkpoint_interval_tokens: int | None
    """Tokens between checkpoints of recurrent state; None takes them only at promised boundaries."""
    asked_interval_tokens: int | None
    """The same where it was asked for; None where the plan reckoned it."""
    limits: RequestLimits

    @cached_property
    def has_draft(self) -> bool:
        return any(group.is_draft for group in self.groups)

    def class_of(self, group: KVCacheGroupSpec) -> PageClass | None:
        return None if group.page_class is None else self.page_classes[group.page_class]

    def why_nothing_resumes(self) -> str | None:
        """A sentence if no request within these limits can ever be resumed, whatever is cached; else None."""
        return why_nothing_resumes(self.resume_granularity, self.limits.max_model_len, has_draft=self.has_draft)

    def last_boundary(self, num_tokens: int) -> int:
        """The last boundary at which a request with these tokens could resume."""
        return last_boundary(num_tokens, self.resume_granularity, has_draft=self.has_draft)

    def blocks_to_resume(self, point: ResumePoint) -> list[tuple[range, ...]]:
        """By group: the blocks that it must have for a request to resume at `point`."""
        return [
            blocks_to_resume(group.spec.rule, point, is_draft=group.is_draft, granularity=self.resume_granularity)
            for group in self.groups
        ]

    def sheets_for(self, blocks_per_group: Sequence[int]) -> int:
        """The sheets that hold these blocks of each group beside the reserved ones, without fragmentation."""
        return sum(self.sheets_by_class(blocks_per_group))

    def sheets_by_class(self, blocks_per_group: Sequence[int]) -> list[int]:
        """The same sheets, by page class."""
        pages = [0] * len(self.page_classes)
        for group, blocks in zip(self.groups, blocks_per_group, strict=True):
            if group.page_class is not None:
                pages[group.page_class] += blocks + group.reserved_blocks
        return [ceil_div(n, cls.pages_per_sheet) for n, cls in zip(pages, self.page_classes, strict=True)]
