"""`octavo select`: says which engine a request should go to, for those who send it there themselves."""

import os
import secrets
from typing import Any

import msgspec

from octavo.cli.flags import ConfigFile
from octavo.cli.needed_packages import require_router
from octavo.cli.output import write_ready
from octavo.cli.settings import SELECT, gather_settings, selection_settings_from, values_by_key, with_settings
from octavo.http import EndingSignals, ending_well
from octavo.router import SelectionConfig


@with_settings(SELECT)
def select(
    *,
    config: ConfigFile = None,
    **settings: Any,
) -> None:
    """Say which engine can resume most of a prompt, to routers that send requests themselves.

    Engines are told by POST /register or /workers; POST /query and /select ask. Without --api-key, a key is made and
    said at the start. A flag --api-key may also stand in the environment, as OCTAVO_API_KEY, or in --config's file.
    """
    given = gather_settings(SELECT, values_by_key(SELECT, settings), os.environ, config)
    wanted = selection_settings_from(given)
    with ending_well() as signals:
        require_router()
        _run(wanted, signals)


def _run(wanted: SelectionConfig, signals: EndingSignals) -> None:
    from octavo.http import open_socket, set_up_logs, url_of
    from octavo.router import SelectionServer

    set_up_logs(wanted)
    made = None if wanted.api_key is not None else secrets.token_urlsafe(24)
    server = SelectionServer(wanted if made is None else msgspec.structs.replace(wanted, api_key=made))
    signals.hand_to(server.handle_exit)
    listener = open_socket(wanted)
    key = "" if made is None else f" with the key {made}"
    write_ready(f"Selects engines: POST /register and /query at {url_of(listener)}{key}\n")
    server.run(sockets=[listener])
