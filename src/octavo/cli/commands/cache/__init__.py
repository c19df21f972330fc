"""`octavo cache`: what a disk tier's directory holds (`command`), shown as tables (`view`)."""

from octavo.cli.commands.cache.command import app

__all__ = ["app"]
