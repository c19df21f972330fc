"""`WhyReport`: why one request resumed where it did. `GET /why/{id}` answers with it."""

import msgspec

from octavo.why.causes import Cause


class Left(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a block left one medium."""

    medium: str
    how: str
    seconds_before: float
    """Before the request started."""
    rule: str = ""
    """What chose it."""
    by: str = ""
    """The request for which room was made, if it is known."""


class Missing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The block that a resume farther on lacked."""

    group: int
    kind: str
    block: int
    tokens: tuple[int, int]
    """The block's first token, and the one after its last."""
    num_missing: int
    """Blocks of this group that the resume lacked."""
    left: list[Left] = []
    """The newest last."""
    may_have_left_earlier: bool = False
    """Nothing is known of the block, and the log of departures has forgotten some."""


class Differs(msgspec.Struct, frozen=True, kw_only=True):
    """The recent request whose prompt is most like this one's, and the first block in which they differ."""

    request_id: str
    block: int
    tokens: tuple[int, int]
    parts: list[str]
    """`tokens`, `image`, `cache_salt`, `lora`, ..."""
    num_equal_blocks: int


class WhyReport(msgspec.Struct, frozen=True, kw_only=True):
    """One request's start."""

    request_id: str
    started_at: float
    """Seconds since 1970."""
    waited_seconds: float
    """From its arrival to its start, in the queue and for its load."""
    prompt_tokens: int
    resumed_tokens: int
    resumed_by_medium: dict[str, int]
    most_resumable_tokens: int
    """The last boundary below the prompt's end."""
    computed_before_tokens: int
    """Up to this boundary others had computed the same."""
    computed_before_by: str = ""
    """A request that had."""
    lost_tokens: int = 0
    """Computed again, though others had computed them."""
    lost_seconds: float | None = None
    """What that took, as far as it was measured; null before any prompt was."""
    cause: Cause | None = None
    load: str = ""
    """What became of its load, where all was there."""
    missing: Missing | None = None
    differs: Differs | None = None
    was_reset_after: str = ""
    """A request with the same prompt, whose blocks a reset has forgotten."""
    cold_start: str = ""
    """What a tier said of another identity when the engine started; where nothing was found of the prompt."""
    bypassed: bool = False
    """The request may resume nothing: it asks for the log-probabilities of its prompt."""
    story: list[str] = []
    """The same in sentences."""
