"""`octavo store`: what a store that engines share holds, and how it is kept in bounds.

Inside:

    command  its commands and their flags
    address  where the store is, and with which key it is read: flags of all of them
    view     the words for what it holds
"""

from octavo.cli.commands.store.command import app

__all__ = ["app"]
