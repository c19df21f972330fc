"""Tokens in canonical CBOR, one after the other, without an array's head.

cbor2 takes 150 ns per number, which would be most of the time of a hash. CBOR (RFC 8949, 3.1) writes a number below 24
as one byte; others as a byte that tells the width, and 1, 2 or 4 bytes, big-endian, whichever is shortest.
"""

from struct import Struct

import numpy as np
from numpy.typing import NDArray

_WIDTH_1, _WIDTH_2, _WIDTH_4 = 24, 25, 26
_in_0 = Struct(">B").pack
_in_1 = Struct(">BB").pack
_in_2 = Struct(">BH").pack
_in_4 = Struct(">BI").pack


def cbor_of_block(tokens: tuple[int, ...]) -> bytes:
    return b"".join(
        [
            _in_4(_WIDTH_4, t)
            if t >= 2**16
            else _in_2(_WIDTH_2, t)
            if t >= 2**8
            else _in_1(_WIDTH_1, t)
            if t >= 24
            else _in_0(t)
            for t in tokens
        ]
    )


def cbor_of_blocks(blocks: NDArray[np.int32]) -> tuple[bytes, list[int]]:
    """The same for rows of tokens at once, and where each row ends in it.

    Each token gets 8 columns, as two words are written faster than five bytes, and those that it needs are kept:

        column          0 to 2      3        4     5     6      7
        kept from       never    always    2**16 2**16  2**8    24
    """
    tokens = blocks.ravel()
    in_1, in_2, in_4 = tokens >= 24, tokens >= 2**8, tokens >= 2**16
    width = in_2.view(np.uint8) + in_4.view(np.uint8) + np.uint8(_WIDTH_1)
    columns = np.empty((tokens.size, 2), dtype=">u4")
    columns[:, 0] = np.where(in_1, width, tokens.astype(np.uint8))
    columns[:, 1] = tokens
    kept = np.zeros((tokens.size, 8), dtype=np.bool_)
    kept[:, 3] = True
    kept[:, 4] = kept[:, 5] = in_4
    kept[:, 6] = in_2
    kept[:, 7] = in_1
    ends = kept.reshape(len(blocks), -1).sum(axis=1, dtype=np.int32).cumsum()
    return np.compress(kept.ravel(), columns.view(np.uint8).ravel()).tobytes(), ends.tolist()
