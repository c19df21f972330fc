"""`octavo serve`: a model behind OpenAI's API, on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from octavo.cli.engine_imports import require_engine
from octavo.cli.model_folder import open_model
from octavo.errors import InputError
from octavo.units import parse_bytes, parse_seconds, parse_tokens

_Model = Annotated[
    str | None,
    typer.Argument(
        help="A folder with config.json, weights and a tokenizer, or a name in the hub's local cache.",
        show_default=False,
    ),
]
_Tiny = Annotated[
    str | None, typer.Option(help="Instead of MODEL, a tiny one with random weights: gemma3.", show_default=False)
]
_Host = Annotated[str, typer.Option(help="The address to listen on.")]
_Port = Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)]
_Name = Annotated[
    str | None, typer.Option("--served-model-name", help="As requests name the model.", show_default="the folder's")
]
_ApiKey = Annotated[
    str | None, typer.Option(help="What clients must show as a bearer.", envvar="OCTAVO_API_KEY", show_default="none")
]
_AllowedHost = Annotated[
    list[str] | None,
    typer.Option(help="A further name of this server, for clients without a key.", show_default=False),
]
_Dtype = Annotated[Literal["float32", "bfloat16"], typer.Option(help="Of weights and cache.")]
_Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="Where the model runs.")]
_DeviceMemory = Annotated[str, typer.Option(help="The pool of pages, beside the weights: 8GiB.")]
_Memory = Annotated[
    str | None, typer.Option(help="Host memory for what the pool cannot hold: 16GiB.", show_default="none")
]
_Disk = Annotated[Path | None, typer.Option(help="A folder for what is kept across restarts.", show_default="none")]
_DiskSize = Annotated[str, typer.Option(help="The most that --disk may take.")]
_DiskKey = Annotated[
    Path | None, typer.Option(help="A file with 32 bytes in hex or base64: --disk is encrypted.", show_default="none")
]
_WaitForDisk = Annotated[
    str | None, typer.Option(help="How long another server may take to leave --disk: 60s.", show_default="not at all")
]
_Policy = Annotated[str | None, typer.Option(help="What memory gives up first.", show_default="by resume points")]
_KvEvents = Annotated[
    str | None, typer.Option(help="Publish KV events there: tcp://127.0.0.1:5557.", show_default="nowhere")
]
_KvEventsReplay = Annotated[
    str | None, typer.Option(help="Send missed KV events again there: tcp://127.0.0.1:5558.", show_default="nowhere")
]
_KvEventsKeys = Annotated[
    Path | None, typer.Option(help="A folder of `octavo events keys`: who may read events.", show_default="none")
]
_KvEventsPlain = Annotated[
    bool, typer.Option("--kv-events-plain", help="Other machines may read events, with the prompts, without keys.")
]
_HashSeed = Annotated[
    str | None, typer.Option(help="Engines with equal seeds share blocks and events.", show_default="none")
]
_MaxModelLen = Annotated[
    str | None, typer.Option(help="The longest context: 32k.", show_default="the model's, if it fits")
]
_MaxNumSeqs = Annotated[int, typer.Option(help="Sequences that run at once.", min=1)]
_MaxStepTokens = Annotated[int, typer.Option(help="Tokens computed in one step.", min=1)]
_MaxWaiting = Annotated[int, typer.Option(help="Requests that wait; more get 429.", min=1)]
_Record = Annotated[
    Path | None, typer.Option(help="A new file for `octavo simulate`: lengths, times, hashes.", show_default="none")
]
_NoPrefixCaching = Annotated[bool, typer.Option("--no-prefix-caching", help="Compute every prompt anew.")]
_ShutdownTimeout = Annotated[
    float, typer.Option(help="Seconds that open requests may go on when the server is to end.", min=0)
]


def serve(
    model: _Model = None,
    *,
    tiny: _Tiny = None,
    host: _Host = "127.0.0.1",
    port: _Port = 8000,
    name: _Name = None,
    api_key: _ApiKey = None,
    allowed_host: _AllowedHost = None,
    dtype: _Dtype = "float32",
    device: _Device = "cpu",
    device_memory: _DeviceMemory = "2GiB",
    memory: _Memory = None,
    disk: _Disk = None,
    disk_size: _DiskSize = "100GiB",
    disk_key: _DiskKey = None,
    wait_for_disk: _WaitForDisk = None,
    policy: _Policy = None,
    kv_events: _KvEvents = None,
    kv_events_replay: _KvEventsReplay = None,
    kv_events_keys: _KvEventsKeys = None,
    kv_events_plain: _KvEventsPlain = False,
    hash_seed: _HashSeed = None,
    max_model_len: _MaxModelLen = None,
    max_num_seqs: _MaxNumSeqs = 64,
    max_step_tokens: _MaxStepTokens = 2048,
    max_waiting: _MaxWaiting = 1024,
    record: _Record = None,
    no_prefix_caching: _NoPrefixCaching = False,
    shutdown_timeout: _ShutdownTimeout = 30.0,
) -> None:
    """Serve a model by OpenAI's API, and never compute the same prefix twice."""
    require_engine()
    from octavo.cli.serve_engine import EventFlags, OffloadFlags, run_server  # torch, which takes seconds
    from octavo.engine import EngineConfig
    from octavo.server import ServerConfig

    with open_model(model, tiny=tiny) as found:
        run_server(
            ServerConfig(
                model_name=name or found.name,
                host=host,
                port=port,
                api_key=api_key,
                allowed_hosts=tuple(allowed_host or ()),
                shutdown_timeout_s=shutdown_timeout,
            ),
            EngineConfig(
                model=found.folder,
                dtype=dtype,
                device=device,
                device_memory_bytes=_bytes("--device-memory", device_memory),
                max_model_len=None if max_model_len is None else _tokens("--max-model-len", max_model_len),
                max_step_tokens=max_step_tokens,
                max_num_seqs=max_num_seqs,
                max_waiting=max_waiting,
                enable_prefix_caching=not no_prefix_caching,
                hash_seed=hash_seed,
                record=record,
                kv_events=EventFlags(
                    endpoint=kv_events,
                    replay_endpoint=kv_events_replay,
                    keys=kv_events_keys,
                    allows_plain=kv_events_plain,
                ).to_config(),
            ),
            OffloadFlags(
                memory_bytes=None if memory is None else _bytes("--memory", memory),
                disk=disk,
                disk_bytes=_bytes("--disk-size", disk_size),
                disk_key=disk_key,
                wait_for_disk_s=None if wait_for_disk is None else _seconds("--wait-for-disk", wait_for_disk),
                policy=policy,
            ).to_config(),
        )


def _bytes(flag: str, text: str) -> int:
    with _naming(flag):
        return parse_bytes(text)


def _seconds(flag: str, text: str) -> float:
    with _naming(flag):
        return parse_seconds(text)


def _tokens(flag: str, text: str) -> int:
    with _naming(flag):
        return parse_tokens(text)


@contextmanager
def _naming(flag: str) -> Iterator[None]:
    """Puts the flag before the complaint about its value."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{flag}: {error}") from error
