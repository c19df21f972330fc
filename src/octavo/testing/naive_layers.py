"""What the layers of a group read and write in a step, by the definition of the model.

A slot is (row, slot in the page, prefix that is or will be in it).
"""

from collections.abc import Iterator, Sequence

from octavo.ids import GroupIdx, Row
from octavo.planning import KVCacheGroupSpec
from octavo.specs import (
    BlockTable,
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    FullAttentionSpec,
    KVCacheSpec,
    ResumePoint,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)
from octavo.testing.naive_device import STATE_SLOT
from octavo.testing.naive_request import NaiveRequest


def slots_read(
    request: NaiveRequest, group_idx: GroupIdx, group: KVCacheGroupSpec, start: int
) -> list[tuple[Row, int, int]]:
    """What a step that starts here reads of what earlier steps wrote."""
    table = request.blocks.tables[group_idx]
    if group.spec.holds_checkpoints:
        return [(table.rows[0], STATE_SLOT, request.prefixes[start - 1])] if start else []
    if group.spec.indexes_decoder_tokens:
        size = group.block_size
        return [
            (_row_of(table, group, token), token % size, request.prefixes[token])
            for token in tokens_read(group.spec, request.blocks.resume_point(start))
        ]
    if table.num_published:
        return [(row, 0, request.encoder_block(block)) for block, row in enumerate(table.rows)]
    return []  # the encoder runs in this step


def slots_written(
    request: NaiveRequest, group_idx: GroupIdx, group: KVCacheGroupSpec, *, start: int, end: int, written: Sequence[int]
) -> list[tuple[Row, int, int]]:
    """What the step over tokens `[start, end)` writes. `written` are the prefixes of all tokens up to its end."""
    table = request.blocks.tables[group_idx]
    if group.spec.holds_checkpoints:
        states = states_written(request, group.spec, start, end)
        return [(table.rows[i], STATE_SLOT, written[token]) for i, token in states]
    if group.spec.indexes_decoder_tokens:
        size = group.block_size
        kept = range(max(start, end - size) if is_circular(group) else start, end)
        return [(_row_of(table, group, t), t % size, written[t]) for t in kept]
    if table.num_published:
        return []
    return [(row, 0, request.encoder_block(block)) for block, row in enumerate(table.rows)]


def _row_of(table: BlockTable, group: KVCacheGroupSpec, token: int) -> Row:
    return table.rows[0 if is_circular(group) else token // group.block_size]


def is_circular(group: KVCacheGroupSpec) -> bool:
    """Whether all tokens of a request go into one block."""
    return isinstance(group.spec.first, CircularBufferSpec)


def tokens_read(spec: KVCacheSpec, point: ResumePoint) -> set[int]:
    """The past tokens that computing token n reads, by the definition of the model."""
    n = point.num_tokens
    if isinstance(spec, UniformTypeKVCacheSpecs):
        return {token for layer in spec.distinct for token in tokens_read(layer, point)}
    if isinstance(spec, FullAttentionSpec):
        return set(range(n))
    if isinstance(spec, SlidingWindowSpec):
        return set(range(max(0, n - spec.sliding_window + 1), n))
    if isinstance(spec, ChunkedLocalAttentionSpec):
        return {token for token in range(n) if token // spec.attention_chunk_size == n // spec.attention_chunk_size}
    if isinstance(spec, CircularBufferSpec):
        return set(range(n // spec.tokens_per_state * spec.tokens_per_state, n))
    size = spec.block_size  # a plug-in's kind: all blocks that it says it needs
    needed = [range(r.start * size, min(n, r.stop * size)) for r in spec.needed_blocks(point)]
    return {token for tokens in needed for token in tokens}


def num_running_states(spec: KVCacheSpec) -> int:
    """Pages that hold the states after the last tokens."""
    layer = spec.first if isinstance(spec, UniformTypeKVCacheSpecs) else spec
    return 1 + getattr(layer, "num_speculative_tokens", 0)


def states_written(request: NaiveRequest, spec: KVCacheSpec, start: int, end: int) -> Iterator[tuple[int, int]]:
    """(index in the table, last token) of the states that a step leaves."""
    is_decoding = start >= request.blocks.num_prompt_tokens
    if is_decoding and num_running_states(spec) > 1 and end - start <= num_running_states(spec):
        return ((i, start + i) for i in range(end - start))
    return iter([(0, end - 1)])
