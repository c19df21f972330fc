"""`Fingerprint`: digests of a prompt by which two prompts can be compared, and never its tokens.

Each block has a digest of its own tokens, without those before them, and each part of the identity has one. Digests are
made with a random key that stays in this process, so nobody can look texts up by them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from secrets import randbits, token_bytes

import numpy as np
from numpy.typing import NDArray

from octavo.hashing import PLAIN, RequestIdentity

_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fingerprint:
    """The fingerprint of one prompt."""

    blocks: NDArray[np.uint64]
    """A digest for each full hash block."""
    parts: Mapping[str, bytes]
    """By name, a digest of each part of the identity that the request had: `cache_salt`, `lora`, ..."""
    images: tuple[tuple[int, int, bytes], ...] = ()
    """First token, number of tokens and digest of each image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first difference between two prompts."""

    block: int
    """The first hash block that differs."""
    parts: tuple[str, ...]
    """What differs in it: `tokens`, `image`, or a part of the identity."""
    num_equal_blocks: int
    """Blocks with the same tokens at the same index, before and after it."""


class FingerprintMaker:
    """Makes fingerprints that can be compared with each other."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._key = token_bytes(16)
        self._weights = np.array([randbits(64) | 1 for _ in range(block_tokens)], dtype=np.uint64)

    def of(self, tokens: Sequence[int] | NDArray[np.int32], identity: RequestIdentity) -> Fingerprint:
        size = self.block_tokens
        whole = np.asarray(tokens, dtype=np.int32)[: len(tokens) // size * size]
        blocks = (whole.reshape(-1, size).astype(np.uint64) + np.uint64(1)) @ self._weights
        if identity is PLAIN:
            return Fingerprint(blocks=blocks, parts={})
        images = tuple((item.offset, item.length, self._digest(item.identifier)) for item in identity.multimodal)
        return Fingerprint(blocks=blocks, parts=self._parts_of(identity), images=images)

    def _parts_of(self, identity: RequestIdentity) -> dict[str, bytes]:
        lora = None
        if identity.lora_name is not None:
            lora = repr((identity.lora_name, identity.lora_path, identity.lora_digest))
        parts = {
            "cache_salt": identity.cache_salt,
            "lora": lora,
            "encoder": identity.encoder_digest,
            "prompt_embeds": None if identity.prompt_embeds is None else identity.prompt_embeds.data,
        }
        return {name: self._digest(value) for name, value in parts.items() if value is not None}

    def _digest(self, value: str | bytes) -> bytes:
        data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        return blake2b(data, digest_size=_DIGEST_BYTES, key=self._key).digest()


def compare(one: Fingerprint, other: Fingerprint, block_tokens: int) -> Difference | None:
    """The first difference within the blocks that both have; None if there is none."""
    both = min(len(one.blocks), len(other.blocks))
    equal = one.blocks[:both] == other.blocks[:both]
    tokens_part = both if equal.all() else int(np.argmin(equal))
    differing = tuple(sorted(n for n in {*one.parts, *other.parts} if one.parts.get(n) != other.parts.get(n)))
    images = set(one.images) ^ set(other.images)
    image_parts = min((first // block_tokens for first, _, _ in images), default=both)
    block = 0 if differing else min(tokens_part, image_parts)
    if block >= both:
        return None
    own = (*differing, *(("image",) if image_parts == block else ()), *(("tokens",) if tokens_part == block else ()))
    return Difference(block=block, parts=own, num_equal_blocks=int(equal.sum()))
