"""`ZstdPlanes`: a chunk's bytes in fewer bytes, and back.

The first byte of an encoded chunk says how to read the rest, whatever the settings are by then:

    0        | bytes                                       as they were, where zstd does not make them fewer
    1, 2, 4  | a zstd frame of 1, 2 or 4 byte planes

Plane i of elements of w bytes holds byte i of each: `a0 a1 b0 b1 c0 c1` becomes `a0 b0 c0 a1 b1 c1`. Exponents of
neighbours are alike, mantissas are noise, so planes compress where bytes in their order do not.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.chunks import OffloadKey, get_offload_group_idx
from octavo.extras import load_package

FORMAT = b"zstd planes 1"
"""A part of the namespace of encoded chunks, so that no other reader finds them."""
HEADER_BYTES = 1
WIDTHS = (1, 2, 4)
"""The bytes that an element can have."""
_RAW = 0

Bytes1D = npt.NDArray[np.uint8]


class ZstdPlanes:
    """Lossless. One thread encodes, and another one may decode."""

    def __init__(self, element_bytes: Sequence[int], level: int) -> None:
        """`element_bytes`: the width of each group's elements; the last one holds for all further groups."""
        zstandard: Any = load_package("zstandard", "a zstd tier")
        self._element_bytes = element_bytes
        self._compressor = zstandard.ZstdCompressor(level=level, write_checksum=False)
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame_parameters = zstandard.get_frame_parameters
        self._error = zstandard.ZstdError

    def encode(self, key: OffloadKey, data: Bytes1D) -> bytearray:
        """The result has at most HEADER_BYTES more than the data."""
        width = self._element_bytes[min(get_offload_group_idx(key), len(self._element_bytes) - 1)]
        frame: bytes = self._compressor.compress(_to_planes(data, width))
        return bytearray([width]) + frame if len(frame) < len(data) else bytearray([_RAW]) + data.data

    def decode(self, encoded: memoryview, num_bytes: int) -> Bytes1D | None:
        """Exactly `num_bytes` bytes, or None if the encoded bytes do not give them. It takes at most a few times
        `num_bytes` of memory, whatever the encoded bytes claim."""
        width, body = (encoded[0], encoded[HEADER_BYTES:]) if len(encoded) else (-1, encoded)
        if width == _RAW:
            return np.frombuffer(body, dtype=np.uint8) if len(body) == num_bytes else None
        if width not in WIDTHS:
            return None
        try:
            if self._frame_parameters(body).content_size != num_bytes:  # it would be allocated first
                return None
            planes = np.frombuffer(self._decompressor.decompress(body, max_output_size=num_bytes), dtype=np.uint8)
        except self._error:
            return None
        return _from_planes(planes, width) if len(planes) == num_bytes else None


def _to_planes(data: Bytes1D, width: int) -> Bytes1D:
    """The planes of the data. Bytes behind the last whole element stay at the end."""
    whole = len(data) // width * width
    if width == 1 or not whole:
        return data
    planes = np.empty_like(data)
    planes[:whole].reshape(width, -1)[:] = data[:whole].reshape(-1, width).T
    planes[whole:] = data[whole:]
    return planes


def _from_planes(planes: Bytes1D, width: int) -> Bytes1D:
    whole = len(planes) // width * width
    if width == 1 or not whole:
        return planes
    data = np.empty_like(planes)
    data[:whole].reshape(-1, width)[:] = planes[:whole].reshape(width, -1).T
    data[whole:] = planes[whole:]
    return data
