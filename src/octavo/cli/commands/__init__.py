"""All commands by name. A command is the module of its name, or the folder, which is imported when somebody calls it:
`octavo plan` does not wait for what `octavo serve` needs.

A module has the command's flags, and the calls that answer it. In a folder, that is `command`; `view` shows the answer,
and `run` does what takes long.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from octavo.cli.flags import FlagsOnceCommand, ManyFlagsCommand

COMMANDS: Mapping[str, tuple[type[TyperCommand] | type[TyperGroup], str]] = {
    "plan": (ManyFlagsCommand, "Say what a hybrid model's cache needs, wastes and holds."),
    "demo": (
        FlagsOnceCommand,
        "Compare how soon a chat goes on with and without what was computed before. Downloads nothing.",
    ),
    "serve": (ManyFlagsCommand, "Serve a model by OpenAI's API, and never compute the same prefix twice."),
    "route": (ManyFlagsCommand, "Send each request to the engine that can resume most of it soonest."),
    "route drain": (
        FlagsOnceCommand,
        "Keep new requests from an engine, so that it can be stopped when those that it has are answered.",
    ),
    "epp": (
        ManyFlagsCommand,
        "Tell a Gateway (Envoy's ext_proc) which engine can resume most of each request soonest.",
    ),
    "select": (
        ManyFlagsCommand,
        "Say which engine can resume most of a prompt, to routers that send requests themselves.",
    ),
    "chat": (FlagsOnceCommand, "Talk to a served model."),
    "simulate": (
        ManyFlagsCommand,
        "Replay a trace of requests through Octavo's own rules, over time and bytes that are models.",
    ),
    "why": (FlagsOnceCommand, "Say why a request resumed where it did, and what that cost."),
    "warm": (FlagsOnceCommand, "Have a server compute and keep the prompts of a file; exit with 1 if any was refused."),
    "vllm-check": (
        ManyFlagsCommand,
        "Run a model in vLLM without and with Octavo's plug-in: same answers, and what was loaded instead of computed.",
    ),
    "bench": (TyperGroup, "Measure a server."),
    "cache": (TyperGroup, "Look into the directory of a disk tier, check it, clear it."),
    "config": (
        TyperGroup,
        "Check the settings of a server, a router or another command, or show them and where each comes from.",
    ),
    "events": (TyperGroup, "Read, keep and replay the KV events of a vLLM or Octavo engine."),
    "store": (TyperGroup, "Look into a store that engines share, check it, collect what is old."),
}
"""Each command's kind and its line in `octavo --help`, in the order of that page."""


class Commands(TyperGroup):
    """The group of all `COMMANDS`. Its help shows their lines and imports none.

    A name may have two words: `route` takes engines, and `route drain` is a command beside it.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=line) for name, (_, line) in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        two_words = " ".join(args[:2])
        name, found, rest = super().resolve_command(ctx, [two_words, *args[2:]] if two_words in self.commands else args)
        return name, None if found is None else load_command(str(name)), rest


def load_command(name: str) -> Any:
    """The command itself: the function with the name of its module or folder, or its `app` of several."""
    kind, line = COMMANDS[name]
    place = name.replace(" ", "_").replace("-", "_")
    module = import_module(f"{__name__}.{place}")
    parent = typer.Typer()
    if issubclass(kind, TyperGroup):
        parent.add_typer(module.app, name=name, help=line)
    else:
        parent.command(name, cls=kind)(getattr(module, place))
    return typer.main.get_group(parent).commands[name]
