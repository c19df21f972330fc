"""The namespace, under which bytes may be reused, and which requests may leave bytes behind.

A namespace digests all that decides a chunk's bytes apart from its key. Any difference makes another namespace, so a
mismatch is a miss and never wrong output. What differs between requests of one engine (tokens, LoRA, salt) is in the
block hashes: `octavo.hashing`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from octavo.errors import InputError
from octavo.hashing import RequestIdentity

if TYPE_CHECKING:  # `octavo cache` reads descriptions, and needs no plans
    from octavo.planning import KVCacheConfig

FORMAT_VERSION = 1
"""The version of chunks, raised when the meaning of their bytes changes."""
NAMESPACE_BYTES = 16
_MAGIC, _FAMILY_MAGIC = b"octavo-namespace-1", b"octavo-family-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheIdentity:
    """All that decides what an engine's chunks hold."""

    model_digest: bytes
    """The digest of the weights and the resolved config: `digest_weights`."""
    dtype: str
    """The type in which the cache is really held, after every default and override."""
    config: "KVCacheConfig"
    """Page layout and geometry: groups, specs, the offsets and the order of layers. How much memory there is, and how
    it is cut into sheets, does not matter: a chunk's bytes do not depend on it."""
    blocks_per_chunk: tuple[int, ...]
    """Blocks per chunk, by group."""
    hash_algorithm: str
    hash_seed: str
    attention_backend: str
    """Backends lay out K and V differently within equal pages."""
    computed_on: str
    """The device and the library that compute, as far as these decide how sums are rounded."""
    tensor_parallel_size: int = 1
    tensor_parallel_rank: int = 0
    pipeline_parallel_size: int = 1
    pipeline_parallel_rank: int = 0


def make_namespace(identity: CacheIdentity) -> bytes:
    """The 16 bytes under which chunks of this identity are kept."""
    return sha256(_MAGIC + encode(identity_fields(identity))).digest()[:NAMESPACE_BYTES]


def make_family(model_digests: Sequence[bytes]) -> bytes:
    """The 16 bytes that all namespaces of these models share, whatever else decides them."""
    return sha256(_FAMILY_MAGIC + encode(list(model_digests))).digest()[:NAMESPACE_BYTES]


def identity_fields(identity: CacheIdentity) -> dict[str, object]:
    """The parts that the namespace digests, by name."""
    if not identity.model_digest:
        raise InputError("a namespace needs the digest of the model's weights: see digest_weights")
    if len(identity.blocks_per_chunk) != len(identity.config.groups):
        raise InputError(
            f"{len(identity.blocks_per_chunk)} blocks_per_chunk for {len(identity.config.groups)} groups: give one each"
        )
    return {f.name: getattr(identity, f.name) for f in dataclasses.fields(identity)} | {
        "config": _geometry(identity.config),
        "format_version": FORMAT_VERSION,
    }


def may_persist(identity: RequestIdentity) -> bool:
    """Whether a request's chunks may outlive the process: an adapter that is known by name only may be another one
    under the same name tomorrow."""
    return identity.lora_name is None or identity.lora_digest is not None


def encode(value: object) -> bytes:  # noqa: C901, PLR0911 - one line for each type
    """The one encoding of a value: its type's letter, its length, its bytes; mappings in their order, which counts.

    Every part is prefixed with its length, so that no two values have the same encoding.
    """
    match value:
        case None:
            return _part(b"n", b"")
        case bool():
            return _part(b"t", bytes([value]))
        case Enum():
            return _part(b"e", encode(type(value).__name__) + encode(value.value))
        case int():
            return _part(b"i", str(value).encode())
        case float():
            return _part(b"f", value.hex().encode())
        case str():
            return _part(b"s", value.encode("utf-8", "surrogatepass"))
        case bytes():
            return _part(b"b", value)
        case Mapping():
            return _part(b"m", b"".join(encode(key) + encode(item) for key, item in value.items()))
        case list() | tuple():
            return _part(b"l", b"".join(map(encode, value)))
        case frozenset() | set():
            return _part(b"u", b"".join(sorted(map(encode, value))))
        case _ if dataclasses.is_dataclass(value):
            return _part(b"d", encode(type(value).__qualname__) + encode(_deciding_fields(value)))
        case _:
            raise InputError(f"{value!r} cannot be part of a namespace: {type(value).__name__} has no one encoding")


def _deciding_fields(value: Any) -> dict[str, object]:
    """All but those that say that no chunk's bytes depend on them."""
    fields = dataclasses.fields(value)
    return {f.name: getattr(value, f.name) for f in fields if f.metadata.get("decides_bytes", True)}


def _part(letter: bytes, content: bytes) -> bytes:
    return letter + len(content).to_bytes(8, "big") + content


def _geometry(config: "KVCacheConfig") -> dict[str, object]:
    return {
        "hash_block_size": config.hash_block_size,
        "alignment_bytes": config.alignment_bytes,
        "groups": [
            {
                "spec": group.spec,
                "layer_offsets": group.layer_offsets,
                "page_bytes": group.page_bytes,
                "is_draft": group.is_draft,
            }
            for group in config.groups
        ],
    }
