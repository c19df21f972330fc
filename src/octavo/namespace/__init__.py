"""The identity under which bytes may be reused: a digest of everything that decides their meaning."""

from octavo.namespace.identity import (
    FORMAT_VERSION,
    NAMESPACE_BYTES,
    CacheIdentity,
    encode,
    make_family,
    make_namespace,
    may_persist,
)
from octavo.namespace.restarts import (
    NAMESPACE_PART,
    PARTIAL,
    brief,
    describe_identity,
    described_namespace,
    keep_description,
    pack_description,
    parse_description,
    read_description,
    why_cold,
)
from octavo.namespace.weights import WeightStamps, digest_weights, stamp_weights

__all__ = [
    "FORMAT_VERSION",
    "NAMESPACE_BYTES",
    "NAMESPACE_PART",
    "PARTIAL",
    "CacheIdentity",
    "WeightStamps",
    "brief",
    "describe_identity",
    "described_namespace",
    "digest_weights",
    "encode",
    "keep_description",
    "make_family",
    "make_namespace",
    "may_persist",
    "pack_description",
    "parse_description",
    "read_description",
    "stamp_weights",
    "why_cold",
]
