"""What a person writes into `kv_connector_extra_config`, checked.

    "memory": "8GiB", "disk": "/nvme/octavo", "disk_size": "200GiB", "policy": "arc"

    "memory": "8GiB", "shared": "s3://bucket/prefix"

`memory` is for all ranks of an engine together. `disk` and `disk_size` are short for the most usual of `tiers`, which
says the same in general: [{"type": "disk", "path": "/nvme/octavo", "size": "200GiB"}]. `shared` is for the last one: a
store that engines share, by its url or with its settings: {"url": "s3://bucket/prefix", "endpoint": ...}.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from octavo.chunks import MOST_BLOCKS_PER_CHUNK
from octavo.errors import InputError
from octavo.host import is_unlocked
from octavo.offload import OffloadConfig
from octavo.recording import RECORDING_BYTES, name_part
from octavo.settings import Count, Settings, Size, with_home

_REPLICA = "replica-"


class _ExtraConfig(Settings, frozen=True, kw_only=True):
    what = "kv_connector_extra_config"

    memory: Size
    disk: Path | None = None
    disk_size: Size | None = None
    tiers: tuple[Any, ...] = ()
    shared: Annotated[str, Meta(description="a store's url")] | dict[str, Any] | None = None
    policy: Any = None
    load_timeout_s: Any = None
    store_timeout_s: Any = None
    loads: Any = None
    """These six are checked as settings of `OffloadConfig`."""
    digests: Path | None = with_home(Path("~/.cache/octavo"))
    keep_media: bool = False
    record: Path | None = None
    record_size: Size = RECORDING_BYTES
    why: bool = False
    # vLLM's connector reads these itself:
    spec_name: Any = None
    spec_module_path: Any = None
    blocks_per_chunk: Annotated[int, Meta(ge=1, le=MOST_BLOCKS_PER_CHUNK)] | None = None
    block_size: Count | None = None
    offload_prompt_only: bool | None = None
    self_describing_kv_events: bool | None = None
    sync_load_budget_bytes: Annotated[int, Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.disk is None) != (self.disk_size is None):
            raise InputError('disk and disk_size belong together: "disk": "/nvme/octavo", "disk_size": "200GiB"')

    def all_tiers(self) -> list[Any]:
        disk = [] if self.disk is None else [{"type": "disk", "path": str(self.disk), "size": self.disk_size}]
        return [*disk, *self.tiers]

    def of_offload(self) -> dict[str, Any]:
        """The settings that `OffloadConfig` reads, without the tiers."""
        shared = {"url": self.shared} if isinstance(self.shared, str) else self.shared
        values = {
            "memory": self.memory,
            "shared": shared,
            "policy": self.policy,
            "load_timeout_s": self.load_timeout_s,
            "store_timeout_s": self.store_timeout_s,
            "loads": self.loads,
        }
        return {key: value for key, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """The configuration as a person wrote it."""

    offload: OffloadConfig
    digests: Path | None
    """A folder that remembers digests of weights, so that a restart need not read them."""
    keeps_media: bool
    """Whether prompts with images, audio or video go below memory too. vLLM lets clients name these, and the names are
    part of block hashes, so only somebody who knows the clients can say that equal names are equal images."""
    record: Path | None = None
    """A file for `octavo simulate` to replay: lengths, times and hashes of requests, without text. If it is there, a
    new one beside it."""
    record_bytes: int = RECORDING_BYTES
    """The most that such a file takes."""
    folders: Sequence[Path] = ()
    """The folders of tiers as they were written; an engine among several has its own below each."""
    says_why: bool = False
    """Whether the log has a line for each request that ends: the chunks that it asked the tiers for and did not get."""

    @classmethod
    def from_extra_config(cls, extra_config: Mapping[str, Any], *, replica: int | None = None) -> "PluginConfig":
        """InputError names a wrong key or value, and the right ones. `replica` is the number of the engine, if it is
        one of several with the same configuration: a directory has one writer, so each gets a folder of its own."""
        asked = _ExtraConfig.from_mapping(extra_config)
        tiers, record = asked.all_tiers(), asked.record
        if replica is not None:
            tiers = [_of_replica(tier, replica) for tier in tiers]
            record = record and name_part(record, f"{_REPLICA}{replica}")
        config = OffloadConfig.from_mapping({**asked.of_offload(), "tiers": tiers})
        return cls(
            offload=config,
            digests=asked.digests,
            keeps_media=asked.keep_media,
            record=record,
            record_bytes=asked.record_size,
            folders=list(_folders_of(asked.all_tiers())),
            says_why=asked.why,
        )


def find_replica(engine_id: str, index: int, num_replicas: int) -> int | None:
    """The number of an engine among data-parallel ones; None if it is alone. Of a dense model vLLM tells each of them
    that it is alone, and only the engine's id, to which it adds `_dp0`, says that there are others."""
    return index if num_replicas > 1 or re.search(r"_dp\d+$", engine_id) else None


def left_behind(folders: Sequence[Path], replica: int | None) -> list[Path]:
    """What engines in another number have left: folders of replicas below that of an engine which is alone, or chunks
    beside the folders of replicas. No engine of this number reads them, and no budget counts them."""
    possible = folders if replica is not None else [own for folder in folders for own in _replicas_in(folder)]
    return sorted(path for path in possible if is_unlocked(path / "lock") and any(path.glob("*.octavo")))


def _replicas_in(folder: Path) -> list[Path]:
    """None of a folder that this user may not look into: to open the tier there fails, and says why."""
    try:
        return list(folder.glob(f"{_REPLICA}*"))
    except OSError:
        return []


def _folders_of(tiers: Any) -> Iterator[Path]:
    for tier in tiers:
        if isinstance(tier, Mapping):
            path = tier.get("path")
            if isinstance(path, str) and path:
                yield Path(path)
            yield from _folders_of([tier.get("tier")])


def _of_replica(tier: Any, replica: int) -> Any:
    """The tier with its path, or that of the tier within it, moved to a folder of the replica's own. What is no path is
    left, to be refused."""
    if not isinstance(tier, Mapping):
        return tier
    own = dict(tier)
    path = own.get("path")
    if isinstance(path, str) and path:
        own["path"] = str(Path(path) / f"{_REPLICA}{replica}")
    if "tier" in own:
        own["tier"] = _of_replica(own["tier"], replica)
    return own
