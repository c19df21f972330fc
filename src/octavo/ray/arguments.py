"""`Arguments`: the arguments of `serve run octavo.ray:app`, written `name=value`.

A name is that of a flag of `octavo serve`, with underscores (`max_num_seqs=32`, `memory=16GiB`), or of a field of
`RayConfig`. `config=FILE` is a file as `octavo serve --config` takes it, and may have a section `ray`.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from octavo.cli import (
    MODEL,
    SERVE_SECTIONS,
    Catalogue,
    GivenValues,
    ServeSettings,
    gather_settings,
    open_model,
    settings_from,
)
from octavo.errors import InputError
from octavo.server import ServerConfig
from octavo.settings import Count, Settings, read_path, unknown_name


class RayConfig(Settings, frozen=True, kw_only=True):
    """What Ray Serve is told of the engines."""

    replicas: Count = 1
    """How many engines there are."""
    cpus: Annotated[float, Meta(gt=0, le=1e6, description="a number of CPUs above 0, at most 1000000")] = 1.0
    """The CPUs that Ray sets aside for each engine; on a CPU, it computes with as many threads."""


_CATALOGUE = Catalogue.of("serve run octavo.ray:app", {**SERVE_SECTIONS, "ray": ("Ray Serve", RayConfig)})
_NOT_HERE = frozenset({"server.host", "server.port", "engine.record"})
"""Settings that make no sense here: Ray has its own server, and replicas cannot all write one file."""
_BY_NAME = {
    setting.flag.removeprefix("--").replace("-", "_"): key
    for key, setting in _CATALOGUE.settings.items()
    if key not in _NOT_HERE
}
_TINY, _CONFIG = "tiny", "config"
_LOOPBACK = "tcp://127.0.0.1:*"
_EVENTS = {"engine.kv_events.endpoint": _LOOPBACK, "engine.kv_events.replay": _LOOPBACK}
"""Defaults of the events' endpoints: any free ports, which each replica reports."""
_EVENTS_KEYS = "engine.kv_events.keys"
_DEVICE = "engine.device"
_DISK = "offload.disk.path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """All arguments, checked. They travel to the replicas, which find the model."""

    values: Mapping[str, object]
    """Values by the key of the setting."""
    tiny: str | None
    ray: RayConfig

    @classmethod
    def of(cls, told: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> "Arguments":
        """Checks the arguments. Raises InputError that names what is wrong."""
        for name in told:
            if name not in (*_BY_NAME, _TINY, _CONFIG):
                raise InputError(unknown_name("argument", name, sorted([*_BY_NAME, _TINY, _CONFIG])))
        flags = {key: told[name] for name, key in _BY_NAME.items() if name in told}
        file, tiny = told.get(_CONFIG), told.get(_TINY)
        given = gather_settings(_CATALOGUE, flags, environment, None if file is None else read_path(str(file)))
        values = {key: one.value for key, one in given.items()}
        if tiny is None and MODEL not in values:
            raise InputError("name a model: model=FOLDER, a name in the hub's local cache, or tiny=qwen3_next")
        ray = {key.removeprefix("ray."): values.pop(key) for key in [*values] if key.startswith("ray.")}
        if "engine.kv_events.endpoint" not in values and values.get("engine.prefix_caching") is not False:
            values |= _EVENTS
        return cls(values=values, tiny=None if tiny is None else str(tiny), ray=RayConfig.from_mapping(ray))

    @contextmanager
    def open(self, *, rank: int = 0) -> Iterator[ServeSettings]:
        """The configurations of the replica with this rank, while the model's folder is open."""
        given = self._given(rank)
        named = None if MODEL not in given or self.tiny is not None else str(given[MODEL].value)
        with open_model(named, tiny=self.tiny) as found:
            found.make_tiny()
            yield settings_from(given, folder=found.folder, model_name=found.name)

    @property
    def server(self) -> ServerConfig:
        """The server's configuration, the same for all engines. The model's name is set where the model is found."""
        told = {key.removeprefix("server."): value for key, value in self.values.items() if key.startswith("server.")}
        return ServerConfig.from_mapping({"served_model_name": "of the engines"} | told)

    @property
    def num_gpus(self) -> int:
        return int(self.values.get(_DEVICE) == "cuda")

    @property
    def events_keys(self) -> str | None:
        """The folder with the keys of the engines' events; the request router needs it too."""
        folder = self.values.get(_EVENTS_KEYS)
        return None if folder is None else str(folder)

    def _given(self, rank: int) -> GivenValues:
        """The values for one replica: it has its own folder within the disk tier's."""
        disk = self.values.get(_DISK)
        own = {} if disk is None else {_DISK: str(Path(str(disk)) / f"replica-{rank}")}
        return gather_settings(_CATALOGUE, {**self.values, **own}, {}, None)
