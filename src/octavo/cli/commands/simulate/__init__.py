"""`octavo simulate`: what a cache would bring before anybody buys it.

Inside:

    command     its flags, and the calls that answer them
    question    one configuration to try on a trace, and those of a sweep or a comparison
    run         the simulations, on as many cores as there are
    view, plot  the results in the terminal and as JSON; the curve of a sweep as a picture
"""

from octavo.cli.commands.simulate.command import simulate

__all__ = ["simulate"]
