"""Makes the offloading of the embedded engine from an `OffloadConfig`."""

import logging
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

import torch

from octavo.blocks import KVCacheManager
from octavo.engine.compatibility import check_together
from octavo.engine.config import EngineConfig
from octavo.engine.runner import ModelRunner
from octavo.engine.torch_dtypes import cache_dtype
from octavo.errors import WeightsChangedError
from octavo.namespace import digest_weights, stamp_weights
from octavo.offload import OffloadConfig, OffloadScheduler, make_offload_scheduler
from octavo.transfer import register_sheets

logger = logging.getLogger(__name__)

MakeOffload = Callable[[KVCacheManager, ModelRunner], OffloadScheduler]


def offload_maker(
    engine: EngineConfig,
    offload: OffloadConfig,
    *,
    digests: Path | None = None,
    quotas: Mapping[str, int] = MappingProxyType({}),
    model_name: str = "",
) -> MakeOffload:
    """The argument `make_offload` of `Engine.from_config`. Call it before the model is loaded, so that weights that
    change meanwhile are noticed. In the folder `digests` it may remember digests of weights, so that a restart need not
    read them. By `model_name` a person knows whose the chunks are; by default it is the folder's."""
    check_together(engine, offload)
    stamps = stamp_weights(engine.model)

    def make(manager: KVCacheManager, runner: ModelRunner) -> OffloadScheduler:
        kept = offload
        try:
            model_digest = digest_weights(engine.model, digests, loaded=stamps)
        except WeightsChangedError as error:
            logger.warning("nothing is kept below memory: %s", error)
            kept, model_digest = replace(offload, tiers=()), os.urandom(32)
        return make_offload_scheduler(
            manager,
            register_sheets(runner.pages.pool, manager.config),
            kept,
            model_digest=model_digest,
            dtype=cache_dtype(runner.model.dtype).value,
            attention_backend=f"octavo.engine 1, transformers {version('transformers')}",
            computed_on=_computed_on(runner.model.device),
            logs_changes=engine.kv_events is not None,
            quotas=quotas,
            model_name=model_name or Path(engine.model).name,
        )

    return make


def _computed_on(device: torch.device) -> str:
    """Kernels, and with them the order of sums, differ by torch's version and by what the device can do."""
    if device.type == "cpu":
        kind = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    else:
        kind = torch.cuda.get_device_name(device)
    return f"torch {torch.__version__}, {kind}"
