"""The identity under which bytes may be reused: a digest of all that decides what they mean."""

from octavo.namespace.identity import (
    FORMAT_VERSION,
    NAMESPACE_BYTES,
    CacheIdentity,
    encode,
    make_namespace,
    may_persist,
)
from octavo.namespace.weights import WeightStamps, digest_weights, stamp_weights

__all__ = [
    "FORMAT_VERSION",
    "NAMESPACE_BYTES",
    "CacheIdentity",
    "WeightStamps",
    "digest_weights",
    "encode",
    "make_namespace",
    "may_persist",
    "stamp_weights",
]
