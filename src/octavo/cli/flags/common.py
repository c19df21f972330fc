"""Flags that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

SERVER_URL = "http://127.0.0.1:8000"
ConfigFile = Annotated[
    Path | None, typer.Option(help="A YAML file of settings; `octavo config` checks it.", show_default=False)
]
ServedModel = Annotated[str | None, typer.Option(help="Which model.", show_default="the server's first")]
ApiKey = Annotated[str | None, typer.Option(help="The server's API key.", envvar="OCTAVO_API_KEY", show_default="none")]
