"""`octavo serve`: a model behind OpenAI's API, on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from octavo.cli.engine_imports import require_engine
from octavo.cli.output import print_error, write_output
from octavo.errors import InputError
from octavo.units import format_bytes, parse_bytes, parse_tokens

_OPEN_TO_ALL = "anybody who reaches this address may use the model: add --api-key, or leave --host out"


def serve(
    model: Annotated[Path, typer.Argument(help="A folder with config.json, weights and a tokenizer.")],
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 8000,
    name: Annotated[
        str | None, typer.Option("--served-model-name", help="As requests name the model.", show_default="the folder's")
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(help="What clients must show as a bearer.", envvar="OCTAVO_API_KEY", show_default="none"),
    ] = None,
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Of weights and cache.")] = "float32",
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Where the model runs.")] = "cpu",
    device_memory: Annotated[str, typer.Option(help="The pool of pages, beside the weights: 8GiB.")] = "2GiB",
    memory: Annotated[
        str | None, typer.Option(help="Host memory for what the pool cannot hold: 16GiB.", show_default="none")
    ] = None,
    disk: Annotated[
        Path | None, typer.Option(help="A folder for what is kept across restarts.", show_default="none")
    ] = None,
    disk_size: Annotated[str, typer.Option(help="The most that --disk may take.")] = "100GiB",
    policy: Annotated[
        str | None, typer.Option(help="What memory gives up first.", show_default="by resume points")
    ] = None,
    kv_events: Annotated[
        str | None, typer.Option(help="Where KV events are published: tcp://*:5557.", show_default="nowhere")
    ] = None,
    hash_seed: Annotated[
        str | None, typer.Option(help="Engines with equal seeds share blocks and events.", show_default="none")
    ] = None,
    max_model_len: Annotated[
        str | None, typer.Option(help="The longest context: 32k.", show_default="the model's, if it fits")
    ] = None,
    max_num_seqs: Annotated[int, typer.Option(help="Sequences that run at once.", min=1)] = 64,
    max_step_tokens: Annotated[int, typer.Option(help="Tokens computed in one step.", min=1)] = 2048,
    max_waiting: Annotated[int, typer.Option(help="Requests that wait; more get 429.", min=1)] = 1024,
    no_prefix_caching: Annotated[bool, typer.Option("--no-prefix-caching", help="Compute every prompt anew.")] = False,
    shutdown_timeout: Annotated[
        float, typer.Option(help="Seconds that open requests may go on when the server is to end.", min=0)
    ] = 30.0,
) -> None:
    """Serve a model by OpenAI's API, and never compute the same prefix twice."""
    require_engine()
    from octavo.cli.serve_engine import OffloadFlags, build_engine, quieten  # torch, which takes seconds
    from octavo.engine import EngineConfig
    from octavo.events import PublisherConfig
    from octavo.server import Server, ServerConfig, open_socket, url_of

    if not (model / "config.json").is_file():
        raise InputError(f"{model} is not a model's folder: it has no config.json")
    server_config = ServerConfig(
        model_name=name or model.resolve().name,
        host=host,
        port=port,
        api_key=api_key,
        shutdown_timeout_s=shutdown_timeout,
    )
    engine_config = EngineConfig(
        model=model,
        dtype=dtype,
        device=device,
        device_memory_bytes=_bytes("--device-memory", device_memory),
        max_model_len=None if max_model_len is None else _tokens("--max-model-len", max_model_len),
        max_step_tokens=max_step_tokens,
        max_num_seqs=max_num_seqs,
        max_waiting=max_waiting,
        enable_prefix_caching=not no_prefix_caching,
        hash_seed=hash_seed,
        kv_events=None if kv_events is None else PublisherConfig(endpoint=kv_events),
    )
    offload = OffloadFlags(
        memory_bytes=None if memory is None else _bytes("--memory", memory),
        disk=disk,
        disk_bytes=_bytes("--disk-size", disk_size),
        policy=policy,
    ).to_config()
    quieten()
    listener = open_socket(server_config)
    try:
        served = build_engine(engine_config, offload)
    except BaseException:
        listener.close()
        raise
    config = served.engine.engine.manager.config
    if api_key is None and host not in ("127.0.0.1", "::1", "localhost"):
        print_error(_OPEN_TO_ALL)
    url = url_of(listener)
    write_output(
        f"Serving {server_config.model_name}: page at {url} and OpenAI's API at {url}/v1; context "
        f"{config.limits.max_model_len:,} tokens, pool {format_bytes(config.num_sheets * config.sheet_bytes)}\n"
    )
    Server(served.engine, server_config, read_offload=served.read_offload).run(sockets=[listener])


def _bytes(flag: str, text: str) -> int:
    with _naming(flag):
        return parse_bytes(text)


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
