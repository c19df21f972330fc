"""The hook by which a platform brings specs of its own."""

from abc import ABC


class Platform(ABC):  # noqa: B024 - every hook has a default
    """A device family that an out-of-tree package supports. Subclass it, and name the subclass in the entry-point
    group `octavo.kv_cache_specs`."""

    @classmethod  # noqa: B027 - a platform need not bring any
    def register_custom_kv_cache_specs(cls) -> None:
        """Register this platform's specs. Called once per process; registering the same again is fine."""
