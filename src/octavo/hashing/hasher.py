"""`BlockHasher` hashes the full blocks of a request, and later those that fill while it grows."""

import struct
from array import array
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from octavo.errors import BlockSizeError, InputError
from octavo.hashing.algorithms import (
    BYTES_PER_TOKEN,
    DEFAULT_ALGORITHM,
    DEFAULT_SEED,
    HASH_ALGORITHMS,
    TOKEN_DTYPE,
    HashAlgorithm,
)
from octavo.hashing.identity import RequestIdentity
from octavo.ids import BlockHash

Tokens: TypeAlias = NDArray[np.int32] | Sequence[int]
"""An array is faster: converting a list costs half as much as hashing it."""
_Hash = TypeVar("_Hash")
_TOKENS_AT_ONCE = 8192
"""What is made of more tokens at once is memory that the system hands out anew each time, which costs as much as the
work."""
_TOKENS_OF_RUN = 1024
_LONGEST_BLOCK = 1 << 24
"""Longer than any prompt."""
_RUN = struct.Struct(f"<{_TOKENS_OF_RUN}i")
"""Packs tokens of a list; an array of the list's numbers takes twice the time."""


class BlockHasher:
    """Hashes requests' blocks of `hash_block_size` tokens under one algorithm and seed. Holds no state.

    Hashers with another algorithm, seed or block size give no equal hashes (with `xxh3_128`: none by chance).
    """

    def __init__(
        self,
        *,
        hash_block_size: int,
        algorithm: str = DEFAULT_ALGORITHM,
        seed: str | None = None,
        lookahead_tokens: int = 0,
    ) -> None:
        """`lookahead_tokens` after a block are part of its hash too, as vLLM 0.33 hashes with a draft model, whose KV
        of a block depends on them. A block has no hash until they are known."""
        if not isinstance(hash_block_size, int) or not 1 <= hash_block_size <= _LONGEST_BLOCK:
            raise InputError(
                f"hash_block_size must be a whole number of 1 to {_LONGEST_BLOCK:,}, not {hash_block_size!r}"
            )
        if not isinstance(seed, str | None):
            raise InputError(f"seed must be a string, not {seed!r}")
        self.hash_block_size = hash_block_size
        self.seed = DEFAULT_SEED if seed is None else seed
        self._lookahead_tokens = lookahead_tokens
        self._blocks_at_once = max(1, _TOKENS_AT_ONCE // hash_block_size)
        self._algorithm = _find_algorithm(algorithm)(hash_block_size=hash_block_size)
        self.root = self._algorithm.root(self.seed)
        """The parent of every first block; vLLM's NONE_HASH."""

    @property
    def algorithm(self) -> str:
        return self._algorithm.name

    @property
    def digest_size_bytes(self) -> int:
        return self._algorithm.digest_size_bytes

    def hash_tokens(self, tokens: Tokens, identity: RequestIdentity) -> list[BlockHash]:
        """The hashes of all full blocks of `tokens`."""
        hashes: list[BlockHash] = []
        self.extend(hashes, tokens, identity)
        return hashes

    def extend(self, hashes: list[BlockHash], tokens: Tokens, identity: RequestIdentity) -> None:
        """Append the hashes of the full blocks of `tokens` that `hashes` does not have yet.

        `hashes` are those of the first blocks of the same `tokens` and `identity`: all tokens are given, and only
        the new ones are read. If this raises, `hashes` is as it was.
        """
        first_block = len(hashes)
        end_block = max(0, len(tokens) - self._lookahead_tokens) // self.hash_block_size
        if first_block == end_block:
            return
        if first_block > end_block:
            raise InputError(
                f"more hashes than full blocks: {first_block} given, and {len(tokens)} tokens fill {end_block}"
            )
        parent = hashes[-1] if hashes else self.root
        if len(parent) != self._algorithm.digest_size_bytes:
            raise InputError(
                f"the last of the given hashes has {len(parent)} bytes, and {self.algorithm} makes "
                f"{self.digest_size_bytes}: they are from another algorithm"
            )
        end = min(end_block, first_block + self._blocks_at_once)
        new = self._algorithm.chain(parent, self._messages(range(first_block, end), tokens, identity))
        while end < end_block:
            start, end = end, min(end_block, end + self._blocks_at_once)
            new += self._algorithm.chain(new[-1], self._messages(range(start, end), tokens, identity))
        hashes.extend(new)

    def _messages(self, blocks: range, tokens: Tokens, identity: RequestIdentity) -> list[bytes]:
        algorithm = self._algorithm
        first_token, end_token = blocks.start * self.hash_block_size, blocks.stop * self.hash_block_size
        of_tokens = algorithm.token_messages(_token_bytes(tokens, first_token, end_token))
        if self._lookahead_tokens:
            return self._messages_ahead(blocks, of_tokens, tokens, identity)
        common, own = identity.sparse_extra_keys(blocks, self.hash_block_size)
        of_common = algorithm.extra_keys_message(common)
        messages = [message + of_common for message in of_tokens] if of_common else of_tokens
        for k, keys in own.items():
            i = k - blocks.start
            messages[i] = of_tokens[i] + algorithm.extra_keys_message(keys)
        return messages

    def _messages_ahead(
        self, blocks: range, of_tokens: list[bytes], tokens: Tokens, identity: RequestIdentity
    ) -> list[bytes]:
        """vLLM's form: the extra keys are (those of the block and of the next tokens, or None, *next tokens)."""
        size, ahead = self.hash_block_size, self._lookahead_tokens
        common, own = identity.sparse_extra_keys(blocks, size, lookahead_tokens=ahead)
        messages = []
        for k, message in zip(blocks, of_tokens, strict=True):
            following = [int(token) for token in tokens[(k + 1) * size : (k + 1) * size + ahead]]
            messages.append(message + self._algorithm.lookahead_message(own.get(k, common), following))
        return messages


def hashes_for_block_size(hashes: Sequence[_Hash], hash_block_size: int, block_size: int) -> Sequence[_Hash]:
    """The hashes of blocks of `block_size` tokens: each is the one at the block's last hash-block boundary."""
    if hash_block_size < 1 or block_size < 1 or block_size % hash_block_size:
        raise BlockSizeError(
            f"block_size = {block_size} is not a multiple of hash_block_size = {hash_block_size}: "
            f"take a hash_block_size that divides every group's block size"
        )
    ratio = block_size // hash_block_size
    return hashes[ratio - 1 :: ratio]


def _find_algorithm(name: str) -> type[HashAlgorithm]:
    try:
        return HASH_ALGORITHMS[name]
    except KeyError:
        known = ", ".join(HASH_ALGORITHMS)
        raise InputError(f"there is no hash algorithm {name!r}: known are {known}") from None


def _token_bytes(tokens: Tokens, first: int, end: int) -> bytes:
    """Tokens `[first, end)` as `TOKEN_DTYPE`, all of them in 0 to 2**31 - 1."""
    part = tokens[first:end]
    if isinstance(part, array) and part.typecode == "i" and TOKEN_DTYPE.isnative and part.itemsize == BYTES_PER_TOKEN:
        data = part.tobytes()
    elif isinstance(part, np.ndarray):
        data = part.tobytes() if part.dtype == TOKEN_DTYPE and part.ndim == 1 else _bytes_of_array(part, first)
    else:
        data = _bytes_of_sequence(part, first)
    if not data[BYTES_PER_TOKEN - 1 :: BYTES_PER_TOKEN].isascii():  # a negative number's top byte is 128 or more
        raise _bad_token(np.frombuffer(data, dtype=TOKEN_DTYPE).tolist(), first)
    return data


def _bytes_of_array(part: NDArray[np.generic], first: int) -> bytes:
    if part.ndim != 1 or part.dtype.kind not in "iu":
        raise InputError(f"tokens must be one row of whole numbers, not {part.ndim} dimensions of {part.dtype}")
    converted = part.astype(TOKEN_DTYPE)
    if not np.array_equal(converted, part):
        raise _bad_token(part.tolist(), first)
    return converted.tobytes()


def _bytes_of_sequence(part: Sequence[int], first: int) -> bytes:
    numbers = list(part)  # an array made of bytes would take them for its memory
    whole = len(numbers) - len(numbers) % _TOKENS_OF_RUN
    try:
        runs = [_RUN.pack(*numbers[start : start + _TOKENS_OF_RUN]) for start in range(0, whole, _TOKENS_OF_RUN)]
        return b"".join([*runs, struct.pack(f"<{len(numbers) - whole}i", *numbers[whole:])])
    except struct.error:
        raise _bad_numbers(numbers, first) from None


def _bad_numbers(numbers: list[int], first: int) -> InputError:
    """The error for numbers that are no tokens, or no numbers."""
    try:
        array("i", numbers)  # which says what is wrong
    except TypeError as e:
        return InputError(f"tokens must be whole numbers: {e}")
    except OverflowError:
        pass
    return _bad_token(numbers, first)


def _bad_token(part: Sequence[int], first: int) -> InputError:
    position, token = next((first + i, t) for i, t in enumerate(part) if not 0 <= t < 2**31)
    return InputError(f"token {token} at position {position} is outside 0 to 2**31 - 1")
