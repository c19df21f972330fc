"""Eviction policies: the contract (`base`), one file for each, and what they are built of.

make_policy("resume_points", groups, num_slots)
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from octavo.chunks import GroupOffloadConfig, PromisedPoint, StoredChunk
from octavo.errors import InputError
from octavo.policies.arc import ARCPolicy
from octavo.policies.base import EvictionPolicy
from octavo.policies.lru import LRUPolicy
from octavo.policies.resume_points import ResumePointPolicy

POLICIES: Mapping[str, type[EvictionPolicy]] = MappingProxyType(
    {"lru": LRUPolicy, "arc": ARCPolicy, "resume_points": ResumePointPolicy}
)
"""By the name that a configuration gives."""

__all__ = [
    "POLICIES",
    "ARCPolicy",
    "EvictionPolicy",
    "GroupOffloadConfig",
    "LRUPolicy",
    "PromisedPoint",
    "ResumePointPolicy",
    "StoredChunk",
    "make_policy",
]


def make_policy(name: str, groups: Sequence[GroupOffloadConfig], num_slots: int) -> EvictionPolicy:
    """The policy of this name for a tier of `num_slots`, whose chunks are of these groups."""
    try:
        policy = POLICIES[name]
    except KeyError:
        raise InputError(f"policy {name!r} is not known; choose one of {', '.join(sorted(POLICIES))}") from None
    return policy(groups, num_slots)
