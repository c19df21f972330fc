"""The `octavo` command: it shows what the packages below compute."""

from octavo.cli.entry import main as main, run as run  # at once: within them Ctrl-C is no traceback
from octavo.door import open_door


def __getattr__(name: str) -> object:
    return open_door(globals(), name)


def __dir__() -> object:
    return open_door(globals(), "__all__")
