"""From the flags of `octavo serve` to an engine with all its tiers."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from transformers.utils import logging as _untyped_logging

from octavo.blocks import KVCacheManager
from octavo.cli.output import print_error, write_output
from octavo.engine import AsyncEngine, Engine, EngineConfig, offload_maker
from octavo.errors import EngineDiedError, InputError
from octavo.events import PublisherConfig, is_loopback
from octavo.offload import OffloadConfig, OffloadScheduler
from octavo.policies import POLICIES
from octavo.server import OffloadReport, ReadOffload, Server, ServerConfig, open_socket, url_of
from octavo.units import format_bytes

transformers_logging: Any = _untyped_logging

_OPEN_TO_ALL = "anybody who reaches this address may use the model: add --api-key, or leave --host out"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadFlags:
    """What is wanted below the device; None is nothing."""

    memory_bytes: int | None = None
    disk: Path | None = None
    disk_bytes: int
    disk_key: Path | None = None
    wait_for_disk_s: float | None = None
    policy: str | None = None

    def to_config(self) -> OffloadConfig | None:
        """None: nothing is wanted. A policy must be a known one even then."""
        config: dict[str, Any] = {}
        if self.policy is not None:
            POLICIES.find(self.policy)
            config["policy"] = self.policy
        if self.disk is None and (self.disk_key is not None or self.wait_for_disk_s is not None):
            raise InputError("--disk-key and --wait-for-disk are about a disk: add --disk FOLDER")
        if self.memory_bytes is None and self.disk is None:
            return None
        if self.memory_bytes is not None:
            config["memory"] = self.memory_bytes
        if self.disk is not None:
            config["tiers"] = [self._disk_tier()]
        return OffloadConfig.from_mapping(config)

    def _disk_tier(self) -> dict[str, Any]:
        tier: dict[str, Any] = {"type": "disk", "path": str(self.disk), "size": self.disk_bytes}
        if self.disk_key is not None:
            tier["key_file"] = str(self.disk_key)
        if self.wait_for_disk_s is not None:
            tier["wait_seconds"] = self.wait_for_disk_s
        return tier


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFlags:
    """Where KV events are published and who may read them."""

    endpoint: str | None
    replay_endpoint: str | None
    keys: Path | None
    allows_plain: bool

    def to_config(self) -> PublisherConfig | None:
        """None if no events are wanted."""
        if self.endpoint is not None:
            return PublisherConfig(
                endpoint=self.endpoint,
                replay_endpoint=self.replay_endpoint,
                keys=self.keys,
                allows_plain=self.allows_plain,
            )
        if self.replay_endpoint is not None or self.keys is not None or self.allows_plain:
            raise InputError("--kv-events-replay, --kv-events-keys and --kv-events-plain need --kv-events ENDPOINT")
        return None


class ServedEngine(NamedTuple):
    """An engine that runs, and how to look at its tiers."""

    engine: AsyncEngine
    read_offload: ReadOffload | None


def run_server(server: ServerConfig, config: EngineConfig, offload: OffloadConfig | None) -> None:
    """Serves until it is asked to end; EngineDiedError if the engine dies before. The ports are opened before the model
    is loaded."""
    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()  # progress bars are for people, not for logs
    listener = open_socket(server)
    try:
        served = build_engine(config, offload)
    except BaseException:
        listener.close()
        raise
    if server.api_key is None and not is_loopback(server.host):
        print_error(_OPEN_TO_ALL)
    announce(server, url_of(listener), served.engine.engine)
    Server(served.engine, server, read_offload=served.read_offload).run(sockets=[listener])
    if (error := served.engine.error) is not None:
        raise EngineDiedError(error) from error


def announce(server: ServerConfig, url: str, engine: Engine) -> None:
    """Says where the server and its events are, and warns of a context in which nothing can be resumed."""
    plan = engine.manager.config
    if engine.manager.is_caching and (reason := plan.why_nothing_resumes()):
        print_error(reason)
    write_output(
        f"Serving {server.model_name}: page at {url} and OpenAI's API at {url}/v1; context "
        f"{plan.limits.max_model_len:,} tokens, pool {format_bytes(plan.num_sheets * plan.sheet_bytes)}\n"
    )
    if engine.event_endpoints:
        write_output(f"KV events, which contain the prompts, at {' and replay at '.join(engine.event_endpoints)}\n")


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


def _digests_folder() -> Path:
    """Where a model's digest is remembered, so that a restart need not read its weights."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "octavo" / "digests"
