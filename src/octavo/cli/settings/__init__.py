"""What a person can give to `octavo serve`, `route`, `epp` or `select`: on the command line, in the environment, in a
file.

Inside, where an arrow leads to what a module calls:

    sources, as_flags -> setting  the values in force, and where each comes from; settings as a command's parameters
    setting -> text               one value that a person can give, and its names; how its text is read
"""

from octavo.cli.settings.as_flags import shown_value, values_by_key, with_settings
from octavo.cli.settings.setting import (
    CATALOGUES,
    EPP,
    MODEL,
    ROUTE,
    SELECT,
    SERVE,
    SERVE_SECTIONS,
    Catalogue,
    Setting,
)
from octavo.cli.settings.sources import (
    Given,
    GivenValues,
    ServeSettings,
    catalogue_of,
    gather_settings,
    picker_settings_from,
    router_settings_from,
    selection_settings_from,
    settings_from,
)

__all__ = [
    "CATALOGUES",
    "EPP",
    "MODEL",
    "ROUTE",
    "SELECT",
    "SERVE",
    "SERVE_SECTIONS",
    "Catalogue",
    "Given",
    "GivenValues",
    "ServeSettings",
    "Setting",
    "catalogue_of",
    "gather_settings",
    "picker_settings_from",
    "router_settings_from",
    "selection_settings_from",
    "settings_from",
    "shown_value",
    "values_by_key",
    "with_settings",
]
