"""Where a store that engines share is, and with which key it is read: what every `octavo store` command is given."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated

import typer

from octavo.offload import SharedConfig
from octavo.stores import RemoteSpec

_Url = Annotated[str, typer.Argument(help="As engines have it: s3://bucket/prefix, redis://host.", metavar="URL")]
_KeyFile = Annotated[
    Path | None, typer.Option(help="The engines' key, for what is encrypted.", show_default="OCTAVO_STORE_KEY")
]
_Endpoint = Annotated[str | None, typer.Option(help="The store's own address.", show_default="the cloud's")]
_Region = Annotated[str | None, typer.Option(help="The region of the bucket.", show_default="the environment's")]
_CaFile = Annotated[Path | None, typer.Option(help="Certificates of its authority, in PEM.", show_default="none")]


def at_a_store(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command these parameters beside its own, in place of its first one, the `RemoteSpec` that they make."""

    @wraps(command, assigned=("__name__", "__doc__"))
    def at_url(
        url: _Url,
        *,
        key_file: _KeyFile = None,
        endpoint: _Endpoint = None,
        region: _Region = None,
        ca_file: _CaFile = None,
        **own: object,
    ) -> None:
        given = {"endpoint": endpoint, "region": region, "ca_file": ca_file, "key_file": key_file}
        command(_spec(url, {name: str(value) for name, value in given.items() if value is not None}), **own)

    _, *own_parameters = Signature.from_callable(command, eval_str=True).parameters.values()
    url, *others = Signature.from_callable(at_url, follow_wrapped=False, eval_str=True).parameters.values()
    flags = [parameter for parameter in others if parameter.kind is not Parameter.VAR_KEYWORD]
    at_url.__signature__ = Signature([url, *own_parameters, *flags])  # type: ignore[attr-defined]
    return at_url


def _spec(url: str, options: dict[str, str]) -> RemoteSpec:
    return SharedConfig.from_mapping({"url": url} | options).spec
