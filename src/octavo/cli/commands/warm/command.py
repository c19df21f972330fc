"""`octavo warm`: computes and keeps expected prompts before traffic arrives."""

from pathlib import Path
from typing import Annotated

import typer

from octavo.cli.exit_codes import FAILED
from octavo.cli.flags import ApiKey, ServedModel
from octavo.cli.output import write_output


def warm(
    url: Annotated[str, typer.Argument(help="Where the server or the router is.")],
    file: Annotated[
        Path,
        typer.Argument(
            help='One prompt per line, as JSON: a text, {"prompt": ...} or {"messages": [...]} with any other field of '
            "the request, such as cache_salt or tools."
        ),
    ],
    *,
    model: ServedModel = None,
    api_key: ApiKey = None,
    parallel: Annotated[int, typer.Option(help="Prompts that are under way at once.", min=1, max=256)] = 4,
) -> None:
    """Have a server compute and keep the prompts of a file; exit with 1 if any was refused."""
    from octavo.cli.client import base_url_of, first_model_of, headers_of, open_async_client, open_client
    from octavo.cli.commands.warm.run import Warmer, read_prompts
    from octavo.cli.run_async import run_async

    prompts = read_prompts(file)
    base_url, headers = base_url_of(url), headers_of(api_key)
    if model is None:
        with open_client(base_url, headers) as client:
            model = first_model_of(client)

    async def run(name: str) -> Warmer:
        async with open_async_client(base_url, headers) as client:
            warmer = Warmer(client, name, prompts)
            await warmer.run(parallel)
            return warmer

    warmer = run_async(run(model))
    write_output(warmer.summary() + "\n")
    if warmer.num_failed:
        raise typer.Exit(FAILED)
