"""Octavo: the KV-cache system for hybrid language models."""

from octavo.door import open_door


def __getattr__(name: str) -> object:
    return open_door(globals(), name)


def __dir__() -> object:
    return open_door(globals(), "__all__")
