"""How commands ask.

Inside, where an arrow leads to what a module calls:

    common         flags that several commands have
    values         how the texts of flags are read
    many -> once   a command with many flags, and how its help lists them; a flag is given once, or may be a list
    once -> paths  paths, in which a shell may have left a `~`
    complaints     what a person hears of a mistake on a command line
"""

from octavo.cli.flags.common import SERVER_URL, ApiKey, ConfigFile, ServedModel
from octavo.cli.flags.complaints import CommandLineError, sentence_of
from octavo.cli.flags.many import ManyFlagsCommand
from octavo.cli.flags.once import CommandGroup, FlagsOnceCommand
from octavo.cli.flags.values import bytes_of, is_hex, naming, not_empty

__all__ = [
    "SERVER_URL",
    "ApiKey",
    "CommandGroup",
    "CommandLineError",
    "ConfigFile",
    "FlagsOnceCommand",
    "ManyFlagsCommand",
    "ServedModel",
    "bytes_of",
    "is_hex",
    "naming",
    "not_empty",
    "sentence_of",
]
