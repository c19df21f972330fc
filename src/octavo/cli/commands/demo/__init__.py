"""`octavo demo`: how soon a chat goes on with and without what was computed before.

Inside:

    command       its flags, and the calls that answer them
    view -> run   the report, written as turns are served; the turns, served and timed
    run -> kinds  the small models, one for each kind of layers
"""

from octavo.cli.commands.demo.command import demo

__all__ = ["demo"]
