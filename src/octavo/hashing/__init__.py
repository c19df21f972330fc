"""Chained block hashes: `h_i = H(h_(i-1), tokens of block i, extra keys of block i)`.

Equal hashes mean that the KV of one request may be given to another, so everything that changes KV takes part: tokens,
`RequestIdentity`, seed. What is the same for one engine's requests (the model, the page layout) is in the namespace.
Why these algorithms: docs/decisions/0003-block-hashes.md.
"""

from octavo.door import attach_door

__getattr__, __dir__, __all__ = attach_door(__name__, __file__)
