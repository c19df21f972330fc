"""`LoadStory`: what became of one request's load, for who asks why it resumed where it did."""

from dataclasses import dataclass

from octavo.offload.load_choice import Outlook


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStory:
    """As far as it has come when the request starts."""

    outlook: Outlook | None
    """What was chosen; None: there was nothing to choose."""
    is_late: bool
    """Whether the request went on without what it had waited for."""
