"""Codecs: a chunk's bytes in fewer bytes, and back.

Encoded chunks say by their first byte what they are; what is not made smaller stays as it was:

    0 | bytes                              raw
    1 | a zstd frame of the byte planes    lossless
    2 | float32 scales | int8 elements     lossy: one scale for each row, absolute maximum / 127

A byte plane is every w-th byte of elements of w bytes. Exponents of neighbours are alike, mantissas are noise, so
planes compress where bytes in their order do not.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from octavo.chunks import OffloadKey, get_offload_group_idx
from octavo.errors import InputError

HEADER_BYTES = 1
_RAW, _PLANES, _ROWS = 0, 1, 2

Bytes1D = npt.NDArray[np.uint8]


class Codec(Protocol):
    """Bytes to fewer bytes. Called from one thread."""

    def encode(self, key: OffloadKey, data: Bytes1D) -> bytes:
        """At most HEADER_BYTES more than the data."""

    def decode(self, key: OffloadKey, encoded: memoryview, num_bytes: int) -> Bytes1D | None:
        """So many bytes, or None if the encoded ones cannot be of so many. Lengths within are not believed: it takes
        no more memory than a few times `num_bytes`, whatever they claim."""


class ZstdPlanes:
    """zstd on byte planes: lossless."""

    def __init__(self, element_bytes: Sequence[int], level: int) -> None:
        """`element_bytes` of each group's elements; the last one is of all groups that follow."""
        try:
            import zstandard  # an optional dependency
        except ImportError as error:
            raise InputError("a zstd tier needs the package zstandard: pip install 'octavo[zstd]'") from error
        self._element_bytes = element_bytes
        self._compressor: Any = zstandard.ZstdCompressor(level=level, write_checksum=False)
        self._decompressor: Any = zstandard.ZstdDecompressor()
        self._frame_parameters: Any = zstandard.get_frame_parameters
        self._error = zstandard.ZstdError

    def encode(self, key: OffloadKey, data: Bytes1D) -> bytes:
        frame: bytes = self._compressor.compress(_to_planes(data, self._width(key)))
        return _smaller(_PLANES, frame, data)

    def decode(self, key: OffloadKey, encoded: memoryview, num_bytes: int) -> Bytes1D | None:
        kind, body = _split(encoded)
        if kind == _RAW:
            return _raw(body, num_bytes)
        if kind != _PLANES:
            return None
        try:
            parameters = self._frame_parameters(body)
            if parameters.content_size != num_bytes:  # it would be allocated before a byte is decoded
                return None
            planes = np.frombuffer(self._decompressor.decompress(body, max_output_size=num_bytes), dtype=np.uint8)
        except self._error:
            return None
        return _from_planes(planes, self._width(key)) if len(planes) == num_bytes else None

    def _width(self, key: OffloadKey) -> int:
        return self._element_bytes[min(get_offload_group_idx(key), len(self._element_bytes) - 1)]


ELEMENTS = ("bf16", "fp16", "fp32", "raw")
"""What a group's elements can be for `Int8Rows`."""


class Int8Rows:
    """Floating point as int8 with one scale for each row: lossy, and only on purpose.

    The error of an element is at most half a step: 1/254 of its row's largest magnitude, and the rounding of its own
    type. Chunks with infinities or NaN, or that are not whole rows, and groups that are `raw` stay as they are.
    """

    def __init__(self, elements: Sequence[str], row_elements: int) -> None:
        """`elements` of each group, one of ELEMENTS; the last one is of all groups that follow."""
        self._elements = elements
        self._row_elements = row_elements

    def encode(self, key: OffloadKey, data: Bytes1D) -> bytes:
        element = self._element(key)
        if element == "raw" or len(data) % (self._row_elements * _WIDTHS[element]):
            return _smaller(_RAW, None, data)
        values = _to_float32(data, element).reshape(-1, self._row_elements)
        scales = np.abs(values).max(axis=1, keepdims=True) / 127
        if not np.isfinite(scales).all():
            return _smaller(_RAW, None, data)
        # a row of zeros, or so small that its scale would be zero, is a row of zeros
        steps = np.divide(values, scales, out=np.zeros_like(values), where=scales > _SMALLEST_SCALE)
        body = scales.astype("<f4").tobytes() + np.rint(steps).astype(np.int8).tobytes()
        return _smaller(_ROWS, body, data)

    def decode(self, key: OffloadKey, encoded: memoryview, num_bytes: int) -> Bytes1D | None:
        kind, body = _split(encoded)
        if kind == _RAW:
            return _raw(body, num_bytes)
        element = self._element(key)
        if kind != _ROWS or element == "raw":
            return None
        rows, rest = divmod(num_bytes, self._row_elements * _WIDTHS[element])
        if rest or len(body) != rows * (_SCALE_BYTES + self._row_elements):
            return None
        scales = np.frombuffer(body[: rows * _SCALE_BYTES], dtype="<f4").reshape(rows, 1)
        steps = np.frombuffer(body[rows * _SCALE_BYTES :], dtype=np.int8).reshape(rows, self._row_elements)
        return _from_float32(steps * scales, element)

    def _element(self, key: OffloadKey) -> str:
        return self._elements[min(get_offload_group_idx(key), len(self._elements) - 1)]


_WIDTHS = {"bf16": 2, "fp16": 2, "fp32": 4}
_SCALE_BYTES = 4
_SMALLEST_SCALE = float(np.finfo(np.float32).tiny)


def _to_float32(data: Bytes1D, element: str) -> npt.NDArray[np.float32]:
    if element == "bf16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return data.view("<f2" if element == "fp16" else "<f4").astype(np.float32)


def _from_float32(values: npt.NDArray[np.float32], element: str) -> Bytes1D:
    flat = values.reshape(-1)
    if element == "bf16":  # to the nearest, of two equally near the even one
        bits = flat.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").view(np.uint8)
    return flat.astype("<f2" if element == "fp16" else "<f4").view(np.uint8)


def _to_planes(data: Bytes1D, width: int) -> Bytes1D:
    """What does not make a whole element stays at the end."""
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


def _smaller(kind: int, body: bytes | None, data: Bytes1D) -> bytes:
    if body is None or len(body) >= len(data):
        return bytes([_RAW]) + data.tobytes()
    return bytes([kind]) + body


def _split(encoded: memoryview) -> tuple[int, memoryview]:
    return (encoded[0], encoded[HEADER_BYTES:]) if len(encoded) else (-1, encoded)


def _raw(body: memoryview, num_bytes: int) -> Bytes1D | None:
    return np.frombuffer(body, dtype=np.uint8) if len(body) == num_bytes else None
