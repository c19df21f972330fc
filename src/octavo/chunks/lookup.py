"""What a lookup of a chunk answers."""

from enum import Enum


class LookupResult(Enum):
    """Where a chunk stands. Only HIT may be loaded."""

    MISS = "miss"
    HIT = "hit"
    """Its verified bytes are in host memory."""
    HIT_PENDING = "hit_pending"
    """On its way to host memory; ask again, until your deadline."""
    RETRY = "retry"
    """On a slower tier; ask for it (`promote`), then again, until your deadline."""
