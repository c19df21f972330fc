"""`octavo warm`: sends the prompts of a file (`run`) before traffic arrives; `command` has its flags."""

from octavo.cli.commands.warm.command import warm

__all__ = ["warm"]
