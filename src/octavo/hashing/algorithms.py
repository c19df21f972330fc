"""The hash algorithms: how a block becomes a message, and how messages are chained.

A message is `tokens || extra keys`, and what is hashed is `parent || message`. In Octavo's own form it is

    parent's digest | hash_block_size tokens, little-endian int32 | extra keys, canonical CBOR, or nothing
    fixed length    | fixed length                                | the rest

so different (parent, tokens, extra keys) are different bytes. The first parent, the root, digests the algorithm's name,
the block size and the seed: their chains are different from the start, at no cost per block.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from hashlib import sha256
from struct import Struct
from typing import ClassVar, cast

import cbor2
import numpy as np

from octavo.hashing.cbor_tokens import cbor_of_block, cbor_of_blocks
from octavo.hashing.identity import ExtraKeys
from octavo.ids import BlockHash

TOKEN_DTYPE = np.dtype("<i4")
BYTES_PER_TOKEN = TOKEN_DTYPE.itemsize

DEFAULT_SEED = "vllm-none-hash"
"""vLLM's seed where PYTHONHASHSEED is not set."""


class HashAlgorithm(ABC):
    """How blocks of `hash_block_size` tokens are hashed; a value, made once per engine."""

    name: ClassVar[str]
    digest_size_bytes: ClassVar[int] = 32

    def __init__(self, *, hash_block_size: int) -> None:
        self._hash_block_size = hash_block_size

    @abstractmethod
    def root(self, seed: str) -> BlockHash:
        """The parent of every first block."""

    @abstractmethod
    def token_messages(self, token_bytes: bytes) -> list[bytes]:
        """The first part of each block's message. `token_bytes` holds whole blocks of `TOKEN_DTYPE`, at least one."""

    @abstractmethod
    def extra_keys_message(self, keys: ExtraKeys) -> bytes:
        """The second part of a block's message."""

    def lookahead_message(self, keys: ExtraKeys, following: Sequence[int]) -> bytes:
        """The second part, where the hash also covers the tokens after the block."""
        return cbor2.dumps((keys or None, *following), canonical=True)

    @abstractmethod
    def chain(self, parent: BlockHash, messages: list[bytes]) -> list[BlockHash]:
        """The hashes of consecutive blocks. It is the one loop per block, so it only hashes."""


class _Int32Algorithm(HashAlgorithm):
    """Octavo's own form of messages."""

    def __init__(self, *, hash_block_size: int) -> None:
        super().__init__(hash_block_size=hash_block_size)
        self._bytes_per_block = hash_block_size * BYTES_PER_TOKEN
        self._block_dtype = np.dtype((np.void, self._bytes_per_block))

    def root(self, seed: str) -> BlockHash:
        origin = ("octavo-block-hash-1", self.name, self._hash_block_size, seed)
        return BlockHash(sha256(cbor2.dumps(origin, canonical=True)).digest()[: self.digest_size_bytes])

    def token_messages(self, token_bytes: bytes) -> list[bytes]:
        if len(token_bytes) == self._bytes_per_block:
            return [token_bytes]
        if len(token_bytes) == self._block_dtype.itemsize:  # decoding: one block at a time
            return [token_bytes]
        return cast("list[bytes]", np.frombuffer(token_bytes, dtype=self._block_dtype).tolist())

    def extra_keys_message(self, keys: ExtraKeys) -> bytes:
        return cbor2.dumps(keys, canonical=True) if keys else b""


class Sha256Int32(_Int32Algorithm):
    """Collision-resistant, and near the speed of SHA-256 itself: the default."""

    name = "sha256_int32"

    def chain(self, parent: BlockHash, messages: list[bytes]) -> list[BlockHash]:
        digest: bytes = parent
        return cast("list[BlockHash]", [digest := sha256(digest + message).digest() for message in messages])


class Xxh3Int32(_Int32Algorithm):
    """Fast, and not collision-resistant: who can choose prompts can make two with one hash, and get another's KV.

    Only for engines whose users all trust each other.
    """

    name = "xxh3_128"
    digest_size_bytes = 16

    def __init__(self, *, hash_block_size: int) -> None:
        from xxhash import xxh3_128_digest  # some systems with vLLM lack it, and only this algorithm needs it

        super().__init__(hash_block_size=hash_block_size)
        self._hash: Callable[[bytes], bytes] = xxh3_128_digest

    def chain(self, parent: BlockHash, messages: list[bytes]) -> list[BlockHash]:
        digest: bytes = parent
        xxh3 = self._hash
        return cast("list[BlockHash]", [digest := xxh3(digest + message) for message in messages])


class Sha256Cbor(HashAlgorithm):
    """vLLM's `sha256_cbor`, byte for byte: SHA-256 of canonical CBOR of `(parent, tokens, extra keys or None)`."""

    name = "sha256_cbor"

    _PARENT_HEAD = b"\x83\x58\x20"  # an array of 3, whose first element is 32 bytes
    _NO_KEYS = b"\xf6"  # null
    _MIN_VECTOR_BLOCKS = 10  # fewer are encoded faster one by one

    def __init__(self, *, hash_block_size: int) -> None:
        super().__init__(hash_block_size=hash_block_size)
        self._tokens_head = cbor2.dumps((0,) * hash_block_size)[:-hash_block_size]
        self._block = Struct(f"<{hash_block_size}i")

    def root(self, seed: str) -> BlockHash:
        return BlockHash(sha256(cbor2.dumps(seed, canonical=True)).digest())

    def token_messages(self, token_bytes: bytes) -> list[bytes]:
        if len(token_bytes) < self._MIN_VECTOR_BLOCKS * self._block.size:
            return [self._tokens_head + cbor_of_block(block) for block in self._block.iter_unpack(token_bytes)]
        blocks = np.frombuffer(token_bytes, dtype=TOKEN_DTYPE).reshape(-1, self._hash_block_size)
        encoded, ends = cbor_of_blocks(blocks)
        head = self._tokens_head
        return [head + encoded[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def extra_keys_message(self, keys: ExtraKeys) -> bytes:
        return cbor2.dumps(keys, canonical=True) if keys else self._NO_KEYS

    def chain(self, parent: BlockHash, messages: list[bytes]) -> list[BlockHash]:
        digest: bytes = parent
        head = self._PARENT_HEAD
        return cast("list[BlockHash]", [digest := sha256(head + digest + message).digest() for message in messages])


HASH_ALGORITHMS: dict[str, type[HashAlgorithm]] = {
    algorithm.name: algorithm for algorithm in (Sha256Int32, Sha256Cbor, Xxh3Int32)
}
DEFAULT_ALGORITHM = Sha256Int32.name
