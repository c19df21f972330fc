"""`octavo events`: a live stream of KV events to read, to keep, and to play again.

Inside:

    command           its commands and their flags
    view              events as lines to read, and as JSON
    recorded, sender  events in a file; sends those of a file to subscribers
"""

from octavo.cli.commands.events.command import app

__all__ = ["app"]
