"""What a person writes into `kv_connector_extra_config`, checked.

    "memory": "8GiB", "disk": "/nvme/octavo", "disk_size": "200GiB", "policy": "arc"

`memory` is for all ranks of an engine together. `disk` and `disk_size` are short for the most usual of `tiers`, which
says the same in general: [{"type": "disk", "path": "/nvme/octavo", "size": "200GiB"}].
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import InputError
from octavo.offload import OffloadConfig
from octavo.settings import take_bytes, take_name, take_nothing_else

_KEYS = (
    "memory",
    "disk",
    "disk_size",
    "policy",
    "tiers",
    "load_timeout_s",
    "store_timeout_s",
    "digests",
    "blocks_per_chunk",
    "block_size",
    "offload_prompt_only",
    "self_describing_kv_events",
)
_FOR_VLLM = (
    "spec_name",
    "spec_module_path",
    "blocks_per_chunk",
    "block_size",
    "offload_prompt_only",
    "self_describing_kv_events",
)
"""Keys that vLLM's connector reads itself."""
_FOR_OFFLOADING = ("memory", "tiers", "policy", "load_timeout_s", "store_timeout_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """What a person asked for."""

    offload: OffloadConfig
    digests: Path
    """A folder that remembers digests of weights, so that a restart need not read them."""

    @classmethod
    def from_extra_config(cls, extra_config: Mapping[str, Any], *, replica: int | None = None) -> "PluginConfig":
        """InputError names a wrong key or value, and the right ones. `replica` is the number of the engine, if it is
        one of several with the same configuration: a directory has one writer, so each gets a folder of its own."""
        values = {key: value for key, value in extra_config.items() if key not in _FOR_VLLM}
        digests = take_name(values, "digests")
        tiers = [*_take_disk(values), *_as_list(values.pop("tiers", ()))]
        offload = {key: values.pop(key) for key in _FOR_OFFLOADING if key in values}
        take_nothing_else(values, "kv_connector_extra_config", _KEYS)
        if offload.get("memory") is None:
            raise InputError('kv_connector_extra_config needs memory, such as "memory": "8GiB"')
        offload["memory"] = _take_memory(offload)
        if replica is not None:
            tiers = [_of_replica(tier, replica) for tier in tiers]
        return cls(
            offload=OffloadConfig.from_mapping({**offload, "tiers": tiers}),
            digests=Path(digests or "~/.cache/octavo").expanduser(),
        )


def _take_memory(values: dict[str, Any]) -> int:
    try:
        return take_bytes(values, "memory")
    except InputError as error:
        raise InputError(f"kv_connector_extra_config: memory: {error}") from error


def _take_disk(values: dict[str, Any]) -> list[dict[str, Any]]:
    path = take_name(values, "disk")
    size = values.pop("disk_size", None)
    if (path is None) != (size is None):
        raise InputError('disk and disk_size belong together: "disk": "/nvme/octavo", "disk_size": "200GiB"')
    return [] if path is None else [{"type": "disk", "path": path, "size": size}]


def _as_list(tiers: object) -> list[Any]:
    if not isinstance(tiers, list | tuple):
        raise InputError(f'tiers must be a list such as [{{"type": "disk", "path": ..., "size": ...}}], not {tiers!r}')
    return list(tiers)


def _of_replica(tier: Any, replica: int) -> Any:
    """The tier with its path, or that of the tier within it, in a folder of the replica's."""
    if not isinstance(tier, Mapping):
        return tier
    own = dict(tier)
    if isinstance(own.get("path"), str):
        own["path"] = str(Path(own["path"]) / f"replica-{replica}")
    if "tier" in own:
        own["tier"] = _of_replica(own["tier"], replica)
    return own
