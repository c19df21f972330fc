"""`WhyReport`: why one request resumed where it did. `GET /why/{id}` answers with it."""

import msgspec

from octavo.why.causes import Cause


class Left(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a block left one medium."""

    medium: str
    how: str
    seconds_before: float
    """Seconds between the departure and the request's start."""
    rule: str = ""
    """The rule that chose the block."""
    by: str = ""
    """The request that needed the room, if it is known."""


class Missing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The block that a later resume lacked."""

    group: int
    kind: str
    block: int
    tokens: tuple[int, int]
    """The block's first token, and the one after its last."""
    num_missing: int
    """Blocks of this group that the resume lacked."""
    left: list[Left] = []
    """Where the block left, the newest departure last."""
    may_have_left_earlier: bool = False
    """Nothing is known of the block, but the log of departures has forgotten some."""


class Differs(msgspec.Struct, frozen=True, kw_only=True):
    """The recent request with the most similar prompt, and the first block in which they differ."""

    request_id: str
    block: int
    tokens: tuple[int, int]
    parts: list[str]
    """What differs: `tokens`, `image`, `cache_salt`, `lora`, ..."""
    num_equal_blocks: int


class WhyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one request's start."""

    request_id: str
    started_at: float
    """Seconds since 1970."""
    waited_seconds: float
    """Seconds from its arrival to its start, in the queue and for its load."""
    prompt_tokens: int
    resumed_tokens: int
    resumed_by_medium: dict[str, int]
    most_resumable_tokens: int
    """The last boundary below the prompt's end."""
    computed_before_tokens: int
    """The last boundary up to which others had computed the same tokens."""
    computed_before_by: str = ""
    """The id of one of them; empty if it is not known, as of an aborted one or of another engine's."""
    lost_tokens: int = 0
    """Tokens that were computed again, though others had computed them."""
    lost_seconds: float | None = None
    """Seconds that this took, as far as measured; null before any prompt was."""
    cause: Cause | None = None
    load: str = ""
    """What became of its load, if all was there."""
    missing: Missing | None = None
    differs: Differs | None = None
    was_reset_after: str = ""
    """A request with the same prompt, whose blocks a reset has forgotten."""
    cold_start: str = ""
    """If nothing was found of the prompt: how the identity differs from the one that used a tier before."""
    bypassed: bool = False
    """The request may resume nothing: it asks for the log-probabilities of its prompt."""
    story: list[str] = []
    """The report in sentences."""
