"""The kinds of pages whose shares are known: what of a layer's page is dealt out to ranks, and in which order it lies.

attention     by KV heads; heads or tokens come first
latent        every rank has all of it
scan state    by heads; the convolution before it by channels of each projection, which lie side by side in a row
"""

from collections.abc import Sequence
from math import prod

from octavo.errors import CacheLayoutError
from octavo.transfer.shares import Field, Rows

Page = tuple[Rows, ...]


def attention_page(
    *, num_heads: int, head_bytes: int, num_tokens: int, heads_first: bool, are_halves_apart: bool = False
) -> Page:
    """Keys and values of all ranks. `head_bytes` are those of one token and head: of its key and its value, or of
    either of them where all keys come before all values (`are_halves_apart`)."""
    halves = 2 if are_halves_apart else 1
    if heads_first:
        return (Rows(halves, (Field(num_heads, num_tokens * head_bytes),)),)
    return (Rows(halves * num_tokens, (Field(num_heads, head_bytes),)),)


def replicated_page(page_bytes: int) -> Page:
    """Latent attention, an indexer's keys, scales: every rank has the same bytes."""
    return (Rows(1, (Field(1, page_bytes),)),)


def state_page(
    shapes: Sequence[Sequence[int]],
    item_bytes: Sequence[int],
    *,
    num_ranks: int,
    has_one_group: bool = False,
    values_first: bool = True,
    steps_first: bool = True,
) -> Page:
    """A convolution's last inputs, then the scan's state, from the shapes that each rank has.

    conv (steps, channels), or (channels, steps) if not `steps_first`; alone for a short convolution
    scan (channels, size) for Mamba 1, (heads, head size, size) for what has heads

    With heads, channels are values of all heads, then what the groups have twice (B and C); queries and keys before
    values if not `values_first`. `has_one_group`: ranks have the same group, not each its own.
    """
    conv, *scans = shapes
    steps, channels = conv if steps_first else (conv[1], conv[0])
    item = item_bytes[0]
    if len(scans) > 1 or (scans and len(scans[0]) not in (2, 3)):
        raise CacheLayoutError(f"a state of shapes {list(map(tuple, shapes))} is of no kind whose order is known")
    fields = [Field(channels * num_ranks, item)]
    if scans and len(scans[0]) == 3:
        heads, head_size, size = scans[0]
        values = heads * head_size
        groups, rest = divmod(channels - values, 2 * size)
        if rest or groups < 0:
            raise CacheLayoutError(
                f"a convolution of {channels} channels is not made of {values} values and of pairs of {size}"
            )
        shared = [Field(1 if has_one_group else groups * num_ranks, size * item)] * 2 if groups else []
        own = [Field(values * num_ranks, item)]
        fields = own + shared if values_first else shared + own
    rows = Rows(steps, tuple(fields))
    if not steps_first:
        rows = Rows(1, tuple(Field(units, num_bytes * steps) for units, num_bytes in fields))
    if not scans:
        return (rows,)
    first, *inner = scans[0]
    return rows, Rows(1, (Field(first * num_ranks, prod(inner) * item_bytes[1]),))
