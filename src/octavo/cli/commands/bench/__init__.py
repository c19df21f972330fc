"""`octavo bench serve`: sends a workload to any server that speaks OpenAI's API, and measures it.

Inside:

    command   its flags, and the calls that answer them
    workload  the requests: conversations, or those of a trace
    run       sends them, several at once, and times each token by token
    view      the figures, as a table and as JSON
"""

from octavo.cli.commands.bench.command import app

__all__ = ["app"]
