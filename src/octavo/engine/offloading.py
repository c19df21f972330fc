"""From an `OffloadConfig` to the slower side of the embedded engine."""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from octavo.blocks import KVCacheManager
from octavo.engine.config import EngineConfig
from octavo.engine.runner import ModelRunner
from octavo.errors import InputError
from octavo.namespace import digest_weights
from octavo.offload import OffloadConfig, OffloadScheduler, make_offload_scheduler
from octavo.transfer import register_sheets

MakeOffload = Callable[[KVCacheManager, ModelRunner], OffloadScheduler]


def offload_maker(engine: EngineConfig, offload: OffloadConfig, *, digests: Path | None = None) -> MakeOffload:
    """What `Engine.from_config` wants as `make_offload`. In the folder `digests` it may remember digests of weights, so
    that a restart need not read them."""
    if not engine.enable_prefix_caching:
        raise InputError(
            "without prefix caching nothing is stored below the device: leave out the tiers (--memory, --disk) or "
            "--no-prefix-caching"
        )

    def make(manager: KVCacheManager, runner: ModelRunner) -> OffloadScheduler:
        return make_offload_scheduler(
            manager,
            register_sheets(runner.pages.pool, manager.config),
            offload,
            model_digest=digest_weights(engine.model, digests),
            dtype=engine.dtype,
            attention_backend=f"octavo.engine 1, transformers {version('transformers')}",
            logs_changes=engine.kv_events is not None,
        )

    return make
