"""The `octavo` command: it shows what the packages below compute.

`octavo plan` is in `commands.plan`, `octavo route drain` in `commands.route_drain`. What commands share, where an arrow
leads to what a module calls:

    entry -> command -> commands           from the process to the command that is called
    settings                               settings of servers, and where each value comes from
    client                                 a client of any server
    flags, path_flags, many_flags, output, drawing, exit_codes
                                           how commands ask and answer
    needed_packages, model_folder          what must be installed, and where a model is
    run_async, own_group                   Ctrl-C, and processes that are not left behind
"""

from octavo.cli.entry import main as main, run as run  # at once: within them Ctrl-C is no traceback
from octavo.door import open_door


def __getattr__(name: str) -> object:
    return open_door(globals(), name)


def __dir__() -> object:
    return open_door(globals(), "__all__")
