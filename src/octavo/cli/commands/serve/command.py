"""`octavo serve`: a model behind OpenAI's API, on this machine."""

import logging
import os
from typing import Annotated, Any

import typer

from octavo.cli.flags import ConfigFile
from octavo.cli.model_folder import open_model
from octavo.cli.needed_packages import LOADS_TORCH, quiet_transformers, require_engine
from octavo.cli.settings import MODEL, SERVE, gather_settings, settings_from, values_by_key, with_settings
from octavo.http import ending_well

_logger = logging.getLogger(__name__)


@with_settings(SERVE)
def serve(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A folder with config.json, weights and a tokenizer, or a name in the hub's local cache.",
            show_default=False,
        ),
    ] = None,
    *,
    tiny: Annotated[
        str | None,
        typer.Option(
            help="Instead of MODEL, a tiny one with random weights, such as gemma3 or qwen3_next.", show_default=False
        ),
    ] = None,
    config: ConfigFile = None,
    **settings: Any,
) -> None:
    """Serve a model by OpenAI's API, and never compute the same prefix twice.

    A flag --max-num-seqs may also stand in the environment, as OCTAVO_MAX_NUM_SEQS, or in the file of --config.
    """
    given = gather_settings(SERVE, {MODEL: model, **values_by_key(SERVE, settings)}, os.environ, config)
    named = None if MODEL not in given or (tiny and model is None) else str(given[MODEL].value)
    with ending_well() as signals, open_model(named, tiny=tiny) as found:
        require_engine()
        from octavo.http import open_socket, set_up_logs

        in_force = settings_from(given, folder=found.folder, model_name=found.name)
        set_up_logs(in_force.server)
        with open_socket(in_force.server) as listener:
            _logger.info(LOADS_TORCH)
            quiet_transformers()
            from octavo.cli.commands.serve.engine import run_server

            found.make_tiny()
            run_server(in_force, listener, signals)
