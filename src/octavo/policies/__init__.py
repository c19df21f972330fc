"""Eviction policies: one file for each, and what they are built of.

Inside, where an arrow leads to what a module calls:

    base                                           the contract
    lru, arc                                       policies that know chunks only
    resume_points -> point_keeper                  the default policy, which keeps and gives up whole resume points
    point_table -> weighed_points, hazards         which point goes first; how soon points are used again
    stretches -> stretch_columns, held_stretches   runs of chunks that come and go together
    safety_net -> rivals                           with full attention alone: the order that resumes more

`make_policy("resume_points", groups, num_slots)` makes one by its name. Another package brings one
through an entry point:

    [project.entry-points."octavo.eviction_policies"]
    mine = "my_package:MyPolicy"
"""

from collections.abc import Sequence

from octavo.chunks import GroupOffloadConfig, PromisedPoint, StoredChunk
from octavo.policies.arc import ARCPolicy
from octavo.policies.base import EvictionPolicy
from octavo.policies.lru import LRUPolicy
from octavo.policies.resume_points import ResumePointPolicy
from octavo.registry import ClassRegistry

POLICIES = ClassRegistry[EvictionPolicy](
    "policy",
    EvictionPolicy,
    "octavo.eviction_policies",
    {
        "lru": "octavo.policies.lru:LRUPolicy",
        "arc": "octavo.policies.arc:ARCPolicy",
        "resume_points": "octavo.policies.resume_points:ResumePointPolicy",
    },
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
    return POLICIES.find(name)(groups, num_slots)
