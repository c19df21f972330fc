"""The grammar of specs: `KVCacheSpec` says what one layer keeps, and what must be resident to resume.

The law of resumption. A block that was complete at n' and is needed at n > n' is needed at n' too:

    needed_blocks(n) ∩ [0, n'/b)  ⊆  needed_blocks(n')          for all boundaries n' < n

It holds for every cache that is written front to back: a request that resumed at n' without a block still lacks it when
it reaches n. So if block k is missing for a resume at n, every boundary from the end of k to n needs it too, and the
search goes on at the start of k. `octavo.testing` checks the law for any spec.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

from octavo.errors import SpecError

FAR = (1 << 40) - 1
"""A sequence longer than any window, at whose end no chunk ends."""
_MOST_PIECES = 8
"""The most pieces into which points at equal distances cut a prompt, or one step of a longer one."""


class ResumePoint(NamedTuple):
    """A place in a request's sequence where computing could go on: everything before `num_tokens` is cached."""

    num_tokens: int
    num_prompt_tokens: int = 0
    num_encoder_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """The largest request that an engine admits, and the most tokens that it computes in one step."""

    max_model_len: int
    max_step_tokens: int = 8192
    max_encoder_tokens: int = 0
    least_step_tokens: int = 1
    """A step of fewer takes as long, so no prompt is cut into shorter pieces."""

    def __post_init__(self) -> None:
        require_positive(self, "max_model_len", "max_step_tokens", "least_step_tokens")
        require_not_negative(self, "max_encoder_tokens")

    def shortest_piece(self, num_prompt_tokens: int, unit_tokens: int) -> int:
        """The least distance of points that cut the prefill of such a prompt, since each piece is a step of its own:
        `unit_tokens` times a power of two, so that points of different distances meet."""
        shortest = max(self.least_step_tokens, ceil_div(min(num_prompt_tokens, self.max_step_tokens), _MOST_PIECES))
        return unit_tokens << max(0, ceil_div(shortest, unit_tokens) - 1).bit_length()


@dataclass(frozen=True, kw_only=True)  # not slotted: a subclass's super() would break
class KVCacheSpec(ABC):
    """The cache format that one layer needs: a frozen value.

    A new kind is a frozen dataclass with the three abstract members below, and a registration
    (`register_kv_cache_spec`). `kind` is the name that KV events and reports use.
    """

    kind: ClassVar[str] = "unknown"
    holds_checkpoints: ClassVar[bool] = False
    """A block holds the whole past up to its end (recurrent state) instead of its own tokens, so resuming
    at n needs the one block that ends at n, and most blocks of a sequence are never kept."""
    indexes_decoder_tokens: ClassVar[bool] = True
    """Block k holds tokens `[k * block_size, (k + 1) * block_size)` of the sequence being generated."""

    block_size: int
    page_size_padded: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, "block_size")
        if self.page_size_padded is None:
            return
        require_not_negative(self, "page_size_padded")
        if self.page_size_padded < self.unpadded_page_size_bytes:
            raise SpecError(
                f"{type(self).__name__}: page_size_padded = {self.page_size_padded} is smaller than the "
                f"{self.unpadded_page_size_bytes} bytes that a page holds"
            )

    @property
    @abstractmethod
    def unpadded_page_size_bytes(self) -> int:
        """Bytes of one block of this layer, scales included, padding not."""

    @abstractmethod
    def needed_blocks(self, point: ResumePoint) -> tuple[range, ...]:
        """The blocks that must be resident to go on computing at `point`.

        Returns disjoint, ascending, non-empty ranges of block indices, and obeys the law of resumption (see the
        module). A block that `point.num_tokens` cuts counts as a block; the caller sees to it that it is a
        block cached up to exactly there.
        """

    @abstractmethod
    def max_blocks_per_request(self, limits: RequestLimits) -> int:
        """The most blocks that one request can hold at any time, a step in flight included."""

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one block of this layer, padding included."""
        return self.page_size_padded or self.unpadded_page_size_bytes

    @property
    def always_needs_last_block(self) -> bool:
        """Whether a resume at any n > 0 needs the block that ends there. A search may then skip what has no last
        block without asking for the rest; False is always right."""
        return self.holds_checkpoints

    @cached_property
    def needs_whole_prefix(self) -> bool:
        """Whether a resume needs the blocks from the first one on, wherever it is. An encoder's input counts: all of it
        is needed. What needs the first blocks and some later ones counts too: between lies the way to the first."""
        if self.holds_checkpoints:
            return False
        ranges = self.needed_blocks(ResumePoint(FAR)) if self.indexes_decoder_tokens else (range(1),)
        return bool(ranges) and ranges[0].start == 0

    @property
    def alignment_bytes(self) -> int:
        """The address of this layer's page must be a multiple of this."""
        return 1

    @property
    def reserved_blocks(self) -> int:
        """Blocks of the group that no request owns and that are never freed."""
        return 0

    def is_uniform_with_collection(self, specs: Mapping[str, "KVCacheSpec"]) -> bool:
        """Whether this spec and all of `specs` can share one block table.

        The default: all derive from this spec's `uniform_type_base_spec`. A kind with parameters that decide which
        blocks live (a window, a chunk) overrides it and compares them.
        """
        base = find_uniform_type_base(self)
        return all(isinstance(spec, base) for spec in specs.values())

    def with_block_size(self, block_size: int) -> Self:
        """The same layer with blocks of another size; declared padding is dropped, since it was for the old one."""
        return replace(self, block_size=block_size, page_size_padded=None)


def find_uniform_type_base(spec: KVCacheSpec) -> type[KVCacheSpec]:
    """The class that all layers of a spec's group derive from, as it was registered."""
    return _uniform_type_bases.find(spec)


def install_uniform_type_bases(find: Callable[[KVCacheSpec], type[KVCacheSpec]]) -> None:
    """For the registry, which stands above the specs that it holds."""
    _uniform_type_bases.find = find


class _UniformTypeBases:
    """Until the registry installs itself, each class is its own base."""

    def __init__(self) -> None:
        self.find: Callable[[KVCacheSpec], type[KVCacheSpec]] = type


_uniform_type_bases = _UniformTypeBases()


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def blocks_holding(first_token: int, end_token: int, block_size: int) -> tuple[range, ...]:
    """The blocks that hold tokens `[first_token, end_token)`."""
    if first_token >= end_token:
        return ()
    return (range(first_token // block_size, ceil_div(end_token, block_size)),)


def union_of_ranges(ranges: Iterable[range]) -> tuple[range, ...]:
    """The ascending, disjoint ranges that cover what `ranges` cover."""
    merged: list[range] = []
    for r in sorted(ranges, key=lambda r: r.start):
        if merged and r.start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, r.stop))
        else:
            merged.append(r)
    return tuple(merged)


def require_positive(value: object, *names: str) -> None:
    for name in names:
        number = getattr(value, name)
        if not _is_whole_number(number) or number < 1:
            raise SpecError(f"{type(value).__name__}: {name} must be a whole number of 1 or more, not {number!r}")


def require_not_negative(value: object, *names: str) -> None:
    for name in names:
        number = getattr(value, name)
        if not _is_whole_number(number) or number < 0:
            raise SpecError(f"{type(value).__name__}: {name} must be a whole number of 0 or more, not {number!r}")


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
