"""`octavo epp`: the endpoint picker of a Gateway."""

import asyncio
import os
from typing import Any

from octavo.cli.flags import ConfigFile
from octavo.cli.needed_packages import require_gateway
from octavo.cli.output import print_error, write_ready
from octavo.cli.settings import EPP, gather_settings, picker_settings_from, values_by_key, with_settings
from octavo.events import is_loopback
from octavo.gateway import PickerConfig
from octavo.http import EndingSignals, ending_well
from octavo.units import counted

_TELLS_KEY = "every client that reaches this address is told the engines' key: let only the Gateway reach it"


@with_settings(EPP)
def epp(
    *,
    config: ConfigFile = None,
    **settings: Any,
) -> None:
    """Tell a Gateway (Envoy's ext_proc) which engine can resume most of each request soonest.

    Start each engine with --kv-events, so that the picker knows what it holds. A flag --engine-api-key may also stand
    in the environment, as OCTAVO_ENGINE_API_KEY, or in the file of --config.
    """
    picker = picker_settings_from(gather_settings(EPP, values_by_key(EPP, settings), os.environ, config))
    with ending_well() as signals:
        require_gateway()
        from octavo.http import set_up_logs

        set_up_logs(picker)
        if picker.engine_api_key is not None and picker.tenants is None and not is_loopback(picker.host):
            print_error(_TELLS_KEY)
        asyncio.run(_serve(picker, signals))


async def _serve(config: PickerConfig, signals: EndingSignals) -> None:
    """Serves until a signal ends it."""
    from octavo.gateway import PickerServer

    server, loop = PickerServer(config), asyncio.get_running_loop()
    signals.hand_to(lambda *_: None if loop.is_closed() else loop.call_soon_threadsafe(server.end))
    count = counted(len(server.fleet.members), "engine")

    def tell(address: str) -> None:
        page = "" if server.status_url is None else f", page and metrics at {server.status_url}"
        write_ready(f"Picks one of {count} for each request of a Gateway: gRPC at {address}{page}\n")

    await server.serve(tell)
