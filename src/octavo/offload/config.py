"""How a person configures offloading, checked once; and the manager that follows from it.

    memory: 16GiB
    policy: resume_points
    store: at_boundaries
    blocks_per_chunk: {full_attention: 16}
    tiers:
      - {type: disk, path: /var/cache/octavo, size: 200GiB}

Without `memory` the arena keeps nothing: it is a staging area of `staging` bytes between the device and the tiers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.chunks import MOST_BLOCKS_PER_CHUNK, GroupOffloadConfig
from octavo.errors import InputError
from octavo.host import HostArena, plan_slots
from octavo.offload.lower_tier import OffloadLimits
from octavo.offload.manager import OffloadingManager
from octavo.offload.stores import StorePolicy
from octavo.policies import POLICIES, make_policy
from octavo.settings import (
    take_bytes,
    take_choice,
    take_nothing_else,
    take_seconds,
    take_whole,
)
from octavo.specs import KVCacheSpec
from octavo.tiers import OffloadingSpec, Tier, TierContext, spec_from_config

_KEYS = (
    "memory",
    "staging",
    "tiers",
    "policy",
    "store",
    "blocks_per_chunk",
    "load_timeout_s",
    "store_timeout_s",
)
_STORE_POLICIES = tuple(policy.value for policy in StorePolicy)
_STAGING_BYTES = 256 << 20
_LOAD_TIMEOUT_S = 5.0
_ANY_KIND = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadConfig:
    """What a person asked for."""

    memory_bytes: int
    """The whole budget of the arena, bookkeeping included."""
    keeps_in_memory: bool = True
    """False: the arena is only a staging area."""
    tiers: tuple[OffloadingSpec, ...] = ()
    """Below the arena, the nearest first."""
    policy: str = "resume_points"
    blocks_per_chunk: Mapping[str, int] = field(default_factory=dict)
    """By kind of group, or `default`; 1 where neither is given."""
    store: StorePolicy = StorePolicy.AT_BOUNDARIES
    """When what requests compute is stored."""
    load_timeout_s: float = _LOAD_TIMEOUT_S
    """How long a request waits for its chunks before it computes them."""
    limits: OffloadLimits = field(default_factory=OffloadLimits)

    @classmethod
    def from_mapping(cls, config: Mapping[str, Any]) -> "OffloadConfig":
        """InputError names a wrong key or value, and the right ones."""
        values = dict(config)
        keeps_in_memory = values.get("memory") is not None
        memory_bytes = take_bytes(values, "memory") if keeps_in_memory else _take_staging(values)
        checked = cls(
            memory_bytes=memory_bytes,
            keeps_in_memory=keeps_in_memory,
            tiers=_take_tiers(values),
            policy=take_choice(values, "policy", POLICIES.names(), "resume_points"),
            blocks_per_chunk=_take_blocks_per_chunk(values),
            store=StorePolicy(take_choice(values, "store", _STORE_POLICIES, StorePolicy.AT_BOUNDARIES.value)),
            load_timeout_s=take_seconds(values, "load_timeout_s", _LOAD_TIMEOUT_S),
            limits=OffloadLimits(
                store_timeout_s=take_seconds(values, "store_timeout_s", OffloadLimits().store_timeout_s)
            ),
        )
        take_nothing_else(values, "offloading", _KEYS)
        if not keeps_in_memory and not checked.tiers:
            raise InputError("offloading needs somewhere to keep chunks: give it memory (memory: 8GiB), or tiers")
        return checked

    def blocks_per_chunk_of(self, spec: KVCacheSpec) -> int:
        """States are stored one by one: most blocks of a sequence never become one."""
        if spec.holds_checkpoints:
            return 1
        return self.blocks_per_chunk.get(spec.kind, self.blocks_per_chunk.get(_ANY_KIND, 1))


def make_offloading_manager(
    config: OffloadConfig, groups: Sequence[GroupOffloadConfig], namespace: bytes, *, logs_changes: bool = False
) -> OffloadingManager:
    """Allocates the arena and opens the tiers. Nothing stays open if one of them cannot be."""
    context = TierContext(namespace=namespace, max_chunk_bytes=max(group.chunk_bytes for group in groups))
    tiers: list[Tier] = []
    try:
        for spec in config.tiers:
            tiers.append(spec.build(context))  # noqa: PERF401 - those before it are closed if one fails
        return _make_manager(config, groups, tiers, logs_changes=logs_changes)
    except BaseException:
        for tier in tiers:
            tier.close()
        raise


def _make_manager(
    config: OffloadConfig, groups: Sequence[GroupOffloadConfig], tiers: Sequence[Tier], *, logs_changes: bool
) -> OffloadingManager:
    slots = plan_slots(groups, config.memory_bytes)
    return OffloadingManager(
        HostArena(slots.num_slots, slots.slot_bytes),
        groups,
        make_policy(config.policy, groups, slots.num_slots),
        tiers,
        limits=config.limits,
        keeps_in_memory=config.keeps_in_memory,
        logs_changes=logs_changes,
    )


def _take_staging(values: dict[str, Any]) -> int:
    values.pop("memory", None)
    return take_bytes(values, "staging", _STAGING_BYTES)


def _take_tiers(values: dict[str, Any]) -> tuple[OffloadingSpec, ...]:
    tiers = values.pop("tiers", ())
    if not isinstance(tiers, list | tuple):
        raise InputError(f"tiers must be a list such as [{{type: disk, path: ..., size: ...}}], not {tiers!r}")
    return tuple(map(spec_from_config, tiers))


def _take_blocks_per_chunk(values: dict[str, Any]) -> Mapping[str, int]:
    """One number for all, or by kind of group."""
    given = values.pop("blocks_per_chunk", {})
    by_kind = dict(given) if isinstance(given, Mapping) else {_ANY_KIND: given}
    return {
        str(kind): take_whole({"blocks_per_chunk": number}, "blocks_per_chunk", 1, most=MOST_BLOCKS_PER_CHUNK)
        for kind, number in by_kind.items()
    }
