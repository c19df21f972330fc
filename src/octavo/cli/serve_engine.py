"""From the flags of `octavo serve` to an engine with all its tiers."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from transformers.utils import logging as _untyped_logging

from octavo.blocks import KVCacheManager
from octavo.engine import AsyncEngine, Engine, EngineConfig, offload_maker
from octavo.offload import OffloadConfig, OffloadScheduler
from octavo.policies import POLICIES
from octavo.server import OffloadReport, ReadOffload
from octavo.settings import take_choice

transformers_logging: Any = _untyped_logging


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadFlags:
    """What is wanted below the device; None is nothing."""

    memory_bytes: int | None = None
    disk: Path | None = None
    disk_bytes: int
    policy: str | None = None

    def to_config(self) -> OffloadConfig | None:
        """None: nothing is wanted. A policy must be a known one even then."""
        config: dict[str, Any] = {}
        if self.policy is not None:
            config["policy"] = take_choice({"policy": self.policy}, "policy", POLICIES.names(), self.policy)
        if self.memory_bytes is None and self.disk is None:
            return None
        if self.memory_bytes is not None:
            config["memory"] = self.memory_bytes
        if self.disk is not None:
            config["tiers"] = [{"type": "disk", "path": str(self.disk), "size": self.disk_bytes}]
        return OffloadConfig.from_mapping(config)


class ServedEngine(NamedTuple):
    """An engine that runs, and how to look at its tiers."""

    engine: AsyncEngine
    read_offload: ReadOffload | None


def build_engine(config: EngineConfig, offload: OffloadConfig | None) -> ServedEngine:
    """Loads the model, allocates everything and starts the engine's thread."""
    if offload is None:
        return ServedEngine(AsyncEngine(Engine.from_config(config)), None)
    make_scheduler = offload_maker(config, offload, digests=_digests_folder())
    made: list[OffloadScheduler] = []

    def make_offload(manager: KVCacheManager, runner: Any) -> OffloadScheduler:
        made.append(make_scheduler(manager, runner))
        return made[0]

    engine = Engine.from_config(config, make_offload=make_offload)
    (scheduler,) = made
    return ServedEngine(AsyncEngine(engine), lambda: OffloadReport(status=scheduler.status(), stats=scheduler.stats()))


def quieten() -> None:
    """Progress bars are for people: a log wants none."""
    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()


def _digests_folder() -> Path:
    """Where a model's digest is remembered, so that a restart need not read its weights."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "octavo" / "digests"
