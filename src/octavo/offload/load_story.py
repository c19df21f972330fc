"""`LoadStory`: what became of one request's load, told to those who ask why it resumed where it did."""

from dataclasses import dataclass

from octavo.offload.load_choice import Outlook


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStory:
    """The story up to the start of the request."""

    outlook: Outlook | None
    """The choice that was made; None if there was nothing to choose."""
    is_late: bool
    """Whether the request started without what it had waited for."""
