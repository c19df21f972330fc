"""Offloading for tests that ask how many tokens came from where."""

from collections.abc import Mapping

from octavo.offload import OffloadConfig


def offload_always(settings: Mapping[str, object]) -> OffloadConfig:
    """Loads whatever can be loaded, however long it takes: on a busy machine computing may be measured as quicker, and
    seconds may pass before a load ends."""
    return OffloadConfig.from_mapping({"loads": "always", "load_timeout_s": 60, **settings})
