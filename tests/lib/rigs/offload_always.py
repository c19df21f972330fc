"""Offloading for tests that ask how many tokens came from where."""

from collections.abc import Mapping

from octavo.offload import OffloadConfig


def offload_always(settings: Mapping[str, object]) -> OffloadConfig:
    """Loads whatever can be loaded: on a busy machine computing may be measured as quicker."""
    return OffloadConfig.from_mapping({"loads": "always", **settings})
