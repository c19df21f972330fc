"""A log of many keys without their bytes: sealed segments, sparse but for headers and summaries."""

from pathlib import Path

import numpy as np
from xxhash import xxh3_128_digest

from octavo.chunks import ALL_BLOCKS, TENANT_BYTES, make_offload_key
from octavo.ids import BlockHash, GroupIdx
from octavo.tiers.disk import layout, segment_name, summary

CHUNK_BYTES = 3 << 10


def make_log(directory: Path, namespace: bytes, num_keys: int) -> int:
    """Returns the bytes that the files seem to have."""
    directory.mkdir(mode=0o700)
    total = 0
    for number, first in enumerate(range(0, num_keys, summary.MAX_RECORDS), start=1):
        total += _make_segment(directory, namespace, number, range(first, min(num_keys, first + summary.MAX_RECORDS)))
    return total


def _make_segment(directory: Path, namespace: bytes, number: int, keys: range) -> int:
    n, size = len(keys), layout.record_bytes(CHUNK_BYTES)
    table = summary.pack_table(
        summary.Table(
            [make_offload_key(BlockHash(key.to_bytes(32, "big")), GroupIdx(0)) for key in keys],
            np.array(keys, dtype=np.uint64) + 1,
            np.full(n, ALL_BLOCKS, dtype=np.int64),
            layout.SEGMENT_HEADER_BYTES + size * np.arange(n, dtype=np.int64),
            np.full(n, CHUNK_BYTES, dtype=np.int64),
            np.zeros(n, dtype=np.uint32),
            bytes(16 * n),
            bytes(TENANT_BYTES * n),
        )
    )
    end = layout.SEGMENT_HEADER_BYTES + n * size
    with (directory / segment_name(number)).open("wb") as file:
        file.write(layout.pack_segment_header(layout.SegmentHeader(layout.VERSION, number, 0, namespace, end)))
        file.seek(end)
        file.write(table)
        file.seek(end + layout.aligned(len(table)))
        file.write(
            summary.pack_trailer(
                summary.Trailer(number, namespace, end, len(table), xxh3_128_digest(table), n, 0, layout.NO_FAMILY)
            )
        )
    return end + layout.aligned(len(table)) + layout.ALIGNMENT
