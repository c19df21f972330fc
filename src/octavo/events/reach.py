"""`Reach`: how far from an engine's device blocks are, by what its events say of them."""

from enum import IntEnum

from octavo.events.messages import MEDIUM_CPU, MEDIUM_GPU, SHARED_MEDIA


class Reach(IntEnum):
    """The nearest come first."""

    DEVICE = 0
    MEMORY = 1
    LOCAL = 2
    """The engine's own storage, and every medium that has no other place here."""
    SHARED = 3
    """A store on a network."""


def reach_of(medium: str | None, ownership: str | None) -> Reach:
    """Of blocks on a medium that this tier owns. A publisher that names no medium means its device."""
    if medium in (MEDIUM_GPU, None):
        return Reach.DEVICE
    if medium == MEDIUM_CPU:
        return Reach.MEMORY
    return Reach.SHARED if (ownership or medium) in SHARED_MEDIA else Reach.LOCAL
