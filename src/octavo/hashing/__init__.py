"""Chained block hashes: `h_i = H(h_(i-1), tokens of block i, extra keys of block i)`.

Equal hashes mean that the KV of one request may be given to another, so everything that changes KV takes part: tokens,
`RequestIdentity`, seed. What is the same for one engine's requests (the model, the page layout) is in the namespace.
Why these algorithms: docs/decisions/0003-block-hashes.md.
"""

from octavo.hashing.algorithms import DEFAULT_ALGORITHM, DEFAULT_SEED, HASH_ALGORITHMS
from octavo.hashing.hasher import BlockHasher, hashes_for_block_size
from octavo.hashing.identity import PLAIN, ExtraKeys, MultiModalItem, PromptEmbeds, RequestIdentity

__all__ = [
    "DEFAULT_ALGORITHM",
    "DEFAULT_SEED",
    "HASH_ALGORITHMS",
    "PLAIN",
    "BlockHasher",
    "ExtraKeys",
    "MultiModalItem",
    "PromptEmbeds",
    "RequestIdentity",
    "hashes_for_block_size",
]
