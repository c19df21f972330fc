"""`octavo demo`: how soon a chat goes on with and without what was computed before.

Inside:

    command       its flags, and its report, which is written as turns are served
    run -> kinds  the turns, served and timed; the small models, one for each kind of layers
"""

from octavo.cli.commands.demo.command import demo

__all__ = ["demo"]
