"""Layers of one type in one group: they share a block table, whatever their page sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from octavo.errors import SpecError
from octavo.specs.base import KVCacheSpec, RequestLimits, ResumePoint, find_uniform_type_base, union_of_ranges


@dataclass(frozen=True, kw_only=True)
class UniformTypeKVCacheSpecs(KVCacheSpec):
    """The spec of a group: its layers' specs, which live and die together.

    The number of blocks comes from the plan. It cannot be told from a tensor's shape, since the layers' pages differ in
    size.
    """

    specs: Mapping[str, KVCacheSpec]

    @classmethod
    def of(cls, specs: Mapping[str, KVCacheSpec]) -> "UniformTypeKVCacheSpecs":
        """The group that holds all of `specs`; SpecError where they cannot share a block table."""
        if not specs:
            raise SpecError("a group needs at least one layer")
        return cls(block_size=next(iter(specs.values())).block_size, specs=dict(specs))

    def __post_init__(self) -> None:
        if not self.are_uniform(self.specs):
            described = ", ".join(f"{name}: {type(s).__name__}({s.block_size})" for name, s in self.specs.items())
            raise SpecError(f"these layers cannot share a block table: {described}")
        if self.block_size != self.first.block_size:
            raise SpecError(f"block_size = {self.block_size}, but the layers have {self.first.block_size}")
        super().__post_init__()

    @staticmethod
    def are_uniform(specs: Mapping[str, KVCacheSpec]) -> bool:
        """Whether every spec agrees that all of them can share a block table."""
        one_block_size = len({spec.block_size for spec in specs.values()}) == 1
        return one_block_size and all(spec.is_uniform_with_collection(specs) for spec in set(specs.values()))

    @cached_property
    def rule(self) -> KVCacheSpec:
        """The spec whose resume rule is the group's: the layers' own where all have the same."""
        return self.first if len(self.distinct) == 1 else self

    def __hash__(self) -> int:
        return hash(frozenset(self.specs.items()))  # equality of mappings knows no order

    @cached_property
    def first(self) -> KVCacheSpec:
        return next(iter(self.specs.values()))

    @cached_property
    def distinct(self) -> tuple[KVCacheSpec, ...]:
        """The layers' specs, equal ones once."""
        return tuple(dict.fromkeys(self.specs.values()))

    # One name for the group: its layers' kind, or the base that they agreed on when they differ.
    @property
    def kind(self) -> str:  # type: ignore[override]
        kinds = {spec.kind for spec in self.specs.values()}
        if len(kinds) == 1:
            return kinds.pop()
        return find_uniform_type_base(self.first).kind

    @property
    def holds_checkpoints(self) -> bool:  # type: ignore[override]
        return self.first.holds_checkpoints

    @property
    def indexes_decoder_tokens(self) -> bool:  # type: ignore[override]
        return self.first.indexes_decoder_tokens

    @property
    def always_needs_last_block(self) -> bool:
        return all(spec.always_needs_last_block for spec in self.distinct)

    @property
    def unpadded_page_size_bytes(self) -> int:
        return sum(spec.page_size_bytes for spec in self.specs.values())

    @property
    def alignment_bytes(self) -> int:
        return max(spec.alignment_bytes for spec in self.specs.values())

    @property
    def reserved_blocks(self) -> int:
        return max(spec.reserved_blocks for spec in self.specs.values())

    def needed_blocks(self, point: ResumePoint) -> tuple[range, ...]:
        if len(self.distinct) == 1:
            return self.first.needed_blocks(point)
        answers = {spec.needed_blocks(point) for spec in self.distinct}
        if len(answers) == 1:
            return answers.pop()
        return union_of_ranges(r for answer in answers for r in answer)

    def max_blocks_per_request(self, limits: RequestLimits) -> int:
        return max(spec.max_blocks_per_request(limits) for spec in self.distinct)

    def with_block_size(self, block_size: int) -> "UniformTypeKVCacheSpecs":
        return self.of({name: spec.with_block_size(block_size) for name, spec in self.specs.items()})
