"""Makes an engine with all its tiers from the settings of `octavo serve`, and runs the server."""

import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from transformers.utils import logging as _untyped_logging

from octavo.blocks import KVCacheManager
from octavo.cli.output import print_error, write_output, write_ready
from octavo.cli.settings import ServeSettings
from octavo.engine import AsyncEngine, Engine, EngineConfig, check_before_loading, offload_maker
from octavo.errors import EngineDiedError
from octavo.events import is_loopback
from octavo.http import EndingSignals, quotas_of, tenants_of, url_of
from octavo.offload import OffloadConfig, OffloadScheduler
from octavo.server import OffloadReport, ReadOffload, Server, ServerConfig, view_tiers
from octavo.settings import with_home
from octavo.units import counted, format_bytes

transformers_logging: Any = _untyped_logging

_logger = logging.getLogger(__name__)
_TOLD_EVERY_S = 10.0
_OPEN_TO_ALL = "anybody who reaches this address may use the model: add --api-key, or leave --host out"


class ServedEngine(NamedTuple):
    """A running engine, and a way to look at its tiers."""

    engine: AsyncEngine
    read_offload: ReadOffload | None


def run_server(settings: ServeSettings, listener: socket.socket, signals: EndingSignals) -> None:
    """Serves until it is asked to end. Raises EngineDiedError if the engine dies before."""
    server = settings.server
    if sys.stderr.isatty() and not server.log_json:
        transformers_logging.enable_progress_bar()  # progress bars are for people, not for logs
    tenants = tenants_of(server.tenants, server)
    check_before_loading(settings.engine, settings.offload)
    with _telling_time(f"loads {settings.engine.model} as {settings.engine.dtype} on {settings.engine.device}"):
        served = build_engine(
            settings.engine, settings.offload, quotas=quotas_of(tenants), model_name=server.model_name
        )
    if server.api_key is None and not tenants and not is_loopback(server.host):
        print_error(_OPEN_TO_ALL)
    serving = Server(served.engine, server, read_offload=served.read_offload, tenants=tenants)
    signals.hand_to(serving.handle_exit)
    announce(server, url_of(listener), served.engine.engine)
    tell_facts(served)
    serving.run(sockets=[listener])
    if (error := served.engine.error) is not None:
        raise EngineDiedError(error) from error


def announce(server: ServerConfig, url: str, engine: Engine) -> None:
    """Prints where the server and its events are, and warns of a context in which nothing can be resumed."""
    plan = engine.manager.config
    if engine.manager.is_caching and (reason := plan.why_nothing_resumes()):
        print_error(reason)
    write_ready(
        f"Serving {server.model_name}: page at {url} and OpenAI's API at {url}/v1; context "
        f"{plan.limits.max_model_len:,} tokens, pool {format_bytes(plan.num_sheets * plan.sheet_bytes)}\n"
    )
    if engine.event_endpoints:
        write_output(f"KV events, which contain the prompts, at {' and replay at '.join(engine.event_endpoints)}\n")


def tell_facts(served: ServedEngine) -> None:
    """Logs the plan and the tiers."""
    plan = served.engine.engine.manager.config
    for index, group in enumerate(plan.groups):
        _logger.info(
            "group %d: %s of %s, blocks of %s, pages of %s",
            index,
            counted(len(group.layer_names), "layer"),
            group.kind,
            counted(group.block_size, "token"),
            format_bytes(group.page_bytes),
        )
    _logger.info(
        "pool: %s of %s; a prompt resumes at multiples of %s",
        counted(plan.num_sheets, "sheet"),
        format_bytes(plan.sheet_bytes),
        counted(plan.resume_granularity, "token"),
    )
    if served.read_offload is not None:
        for tier in view_tiers(served.read_offload()):
            in_use = f" in use, {counted(tier.num_chunks, 'chunk')}" if tier.bytes_budget else ""
            _logger.info("%s: %s%s", tier.medium, tier.usage, in_use)


@contextmanager
def _telling_time(what: str) -> Iterator[None]:
    """Logs when a long task begins, that it goes on, and how long it took."""
    began, is_done = time.monotonic(), threading.Event()

    def tell() -> None:
        while not is_done.wait(_TOLD_EVERY_S):
            _logger.info("still %s: %.0f s", what, time.monotonic() - began)

    _logger.info("%s", what)
    teller = threading.Thread(target=tell, name="octavo-telling", daemon=True)
    teller.start()
    try:
        yield
        _logger.info("loaded in %.1f s", time.monotonic() - began)
    finally:
        is_done.set()
        teller.join()


def build_engine(
    config: EngineConfig,
    offload: OffloadConfig | None,
    *,
    quotas: Mapping[str, int],
    model_name: str,
) -> ServedEngine:
    """Loads the model, allocates everything and starts the engine's thread."""
    if offload is None:
        return ServedEngine(AsyncEngine(Engine.from_config(config)), None)
    make_scheduler = offload_maker(config, offload, digests=_digests_folder(), quotas=quotas, model_name=model_name)
    made: list[OffloadScheduler] = []

    def make_offload(manager: KVCacheManager, runner: Any) -> OffloadScheduler:
        made.append(make_scheduler(manager, runner))
        return made[0]

    engine = Engine.from_config(config, make_offload=make_offload)
    (scheduler,) = made
    return ServedEngine(AsyncEngine(engine), lambda: OffloadReport(status=scheduler.status(), stats=scheduler.stats()))


def _digests_folder() -> Path | None:
    """The folder with the digests of models, so that a restart need not read their weights; None without a home."""
    return with_home(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "octavo" / "digests")
