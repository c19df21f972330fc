from .commands.serve.engine import build_engine as build_engine
from .entry import main as main, run as run
from .model_folder import open_model as open_model
from .needed_packages import quiet_transformers as quiet_transformers, require_engine as require_engine
from .settings import (
    MODEL as MODEL,
    SERVE_SECTIONS as SERVE_SECTIONS,
    Catalogue as Catalogue,
    Given as Given,
    GivenValues as GivenValues,
    ServeSettings as ServeSettings,
    gather_settings as gather_settings,
    settings_from as settings_from,
)
