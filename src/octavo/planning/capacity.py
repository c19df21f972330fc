"""How much a plan holds, and how much it wastes, by cause."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from octavo.errors import InputError
from octavo.planning.kv_cache_config import KVCacheConfig, KVCacheGroupSpec
from octavo.specs import RequestLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """Bytes that hold no cache content, by cause. They are counted with the pool as full as it gets."""

    layer_padding: int
    """Layers' own padding, and the alignment of layers within a page."""
    page_padding: int
    """Padding that makes pages equal parts of a sheet."""
    reserved: int
    """Rows that no request owns: sinks and null rows."""
    open_sheets: int
    """Unused pages of the last sheet of each class."""
    unleased_sheets: int
    """Sheets that are left over, too few for anything more."""
    remainder: int
    """Memory beyond the last whole sheet."""

    @property
    def total(self) -> int:
        return sum(getattr(self, name) for name in self.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The most requests of a given context length that the pool holds."""

    context: int
    requests_at_once: int
    tokens: int
    """Tokens of these requests, and of the longest one that still fits."""
    blocks_per_request: tuple[int, ...]
    waste: Waste
    waste_fraction: float


def measure_capacity(config: KVCacheConfig, context: int | None = None) -> Capacity:
    """Fills the pool with requests of `context` tokens, each holding the most it ever can, then one shorter one."""
    context = context or config.limits.max_model_len
    per_request = blocks_of_request(config, context)
    if not any(per_request):
        raise InputError(f"a request of {context:,} tokens holds no block of any group")

    def blocks_held(requests: int, last_tokens: int) -> tuple[int, ...]:
        last = blocks_of_request(config, last_tokens) if last_tokens else (0,) * len(per_request)
        return tuple(requests * blocks + more for blocks, more in zip(per_request, last, strict=True))

    def fits(requests: int, last_tokens: int) -> bool:
        return config.sheets_for(blocks_held(requests, last_tokens)) <= config.num_sheets

    most_pages = config.num_sheets * max(cls.pages_per_sheet for cls in config.page_classes)
    requests = _most_that_fit(most_pages, lambda n: fits(n, 0))
    granule = config.resume_granularity
    last_tokens = granule * _most_that_fit((context - 1) // granule, lambda n: fits(requests, n * granule))
    waste = _count_waste(config, blocks_held(requests, last_tokens))
    return Capacity(
        context=context,
        requests_at_once=requests,
        tokens=requests * context + last_tokens,
        blocks_per_request=per_request,
        waste=waste,
        waste_fraction=waste.total / config.memory_bytes,
    )


def blocks_of_request(config: KVCacheConfig, num_tokens: int) -> tuple[int, ...]:
    """The most blocks of each group that a request with this many tokens ever holds."""
    limits = replace(config.limits, max_model_len=num_tokens)
    return tuple(group.spec.max_blocks_per_request(limits) for group in config.groups)


def longest_context_that_fits(config: KVCacheConfig) -> int:
    """The most tokens, in whole resume granules up to the limit, that one request can have; 0 when none can."""
    granule = config.resume_granularity

    def fits(granules: int) -> bool:
        return config.sheets_for(blocks_of_request(config, granules * granule)) <= config.num_sheets

    return granule * _most_that_fit(config.limits.max_model_len // granule, fits)


def grows_with_context(group: KVCacheGroupSpec) -> bool:
    """Whether a request holds more blocks of the group the longer it gets, without end."""
    far = RequestLimits(max_model_len=1 << 40, max_step_tokens=1)
    farther = replace(far, max_model_len=1 << 41)
    return group.spec.max_blocks_per_request(farther) > group.spec.max_blocks_per_request(far)


def _count_waste(config: KVCacheConfig, blocks_held: tuple[int, ...]) -> Waste:
    layer_padding = page_padding = reserved = 0
    pages = [0] * len(config.page_classes)
    for group, blocks in zip(config.groups, blocks_held, strict=True):
        if group.page_class is None:
            continue
        page_bytes = config.page_classes[group.page_class].page_bytes
        layer_padding += blocks * (group.page_bytes - group.unpadded_page_bytes)
        page_padding += blocks * (page_bytes - group.page_bytes)
        reserved += group.reserved_blocks * page_bytes
        pages[group.page_class] += blocks + group.reserved_blocks
    leased = [-(-n // cls.pages_per_sheet) for n, cls in zip(pages, config.page_classes, strict=True)]
    return Waste(
        layer_padding=layer_padding,
        page_padding=page_padding,
        reserved=reserved,
        open_sheets=sum(
            (sheets * cls.pages_per_sheet - n) * cls.page_bytes
            for sheets, n, cls in zip(leased, pages, config.page_classes, strict=True)
        ),
        unleased_sheets=(config.num_sheets - sum(leased)) * config.sheet_bytes,
        remainder=config.memory_bytes - config.num_sheets * config.sheet_bytes,
    )


def _most_that_fit(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest n up to `limit` that fits, for a test that stays false once it is; 0 when 1 does not fit."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
