"""The `octavo` command: it shows what the packages below compute.

`octavo plan` is in `commands.plan`, `octavo route drain` in `commands.route_drain`. All else is what commands share,
where an arrow leads to what a module calls:

    entry -> command -> commands    from the process to the command that is called
    flags                           how commands ask, and what a person hears of a mistake
    settings                        the settings of servers, and where each value comes from
    output, drawing, exit_codes     how commands answer
    client                          a client of any server
    model_folder, needed_packages   where a model is; what must be installed
    run_async, process_group        Ctrl-C; processes that are not left behind
"""

from octavo.cli.entry import main as main, run as run  # at once: within them Ctrl-C is no traceback
from octavo.door import open_door


def __getattr__(name: str) -> object:
    return open_door(globals(), name)


def __dir__() -> object:
    return open_door(globals(), "__all__")
