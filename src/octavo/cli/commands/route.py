"""`octavo route`: OpenAI's API in front of several engines."""

import os
from typing import Annotated, Any

import typer

from octavo.cli.flags import ConfigFile
from octavo.cli.needed_packages import require_router
from octavo.cli.output import print_error, write_ready
from octavo.cli.settings import ROUTE, gather_settings, router_settings_from, values_by_key, with_settings
from octavo.events import is_loopback
from octavo.http import EndingSignals, ending_well
from octavo.router import RouterConfig
from octavo.units import counted

_OPEN_TO_ALL = "anybody who reaches this address may use the engines: add --api-key, or leave --host out"


@with_settings(ROUTE)
def route(
    engines: Annotated[list[str] | None, typer.Argument(help="Engines, as for --engine.", show_default=False)] = None,
    *,
    config: ConfigFile = None,
    **settings: Any,
) -> None:
    """Send each request to the engine that can resume most of it soonest.

    Start each engine with --kv-events, so that the router knows what it holds. A flag --engine-api-key may also stand
    in the environment, as OCTAVO_ENGINE_API_KEY, or in the file of --config.
    """
    settings["engine"] = [*(engines or ()), *(settings["engine"] or ())] or None
    given = gather_settings(ROUTE, values_by_key(ROUTE, settings), os.environ, config)
    router = router_settings_from(given)
    with ending_well() as signals:
        require_router()
        _run(router, signals)


def _run(router: RouterConfig, signals: EndingSignals) -> None:
    from octavo.http import open_socket, set_up_logs, url_of
    from octavo.router import RouterServer

    set_up_logs(router)
    server = RouterServer(router)
    signals.hand_to(server.handle_exit)
    listener = open_socket(router)
    if router.api_key is None and not is_loopback(router.host):
        print_error(_OPEN_TO_ALL)
    url, fleet = url_of(listener), server.fleet
    count = counted(len(fleet.members), "engine")
    count += f" and those at {', '.join(fleet.names.problems)}" if fleet.names.problems else ""
    write_ready(f"Routing to {count}: OpenAI's API at {url}/v1, the fleet at {url}\n")
    server.run(sockets=[listener])
