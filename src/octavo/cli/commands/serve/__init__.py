"""`octavo serve`: a model by OpenAI's API. `command` has its flags, `engine` makes the engine and runs the server."""

from octavo.cli.commands.serve.command import serve

__all__ = ["serve"]
