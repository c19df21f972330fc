"""A request as a naive engine sees it, its steps in flight, and what an engine plans for its next one."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from octavo.blocks import RequestBlocks, ResumePlan
from octavo.testing.naive_device import Prefixes

_WRONG_TOKEN = 1 << 20
"""A rejected draft; no prompt has this token."""


@dataclass(slots=True, kw_only=True)
class Step:
    """One step of one request: tokens `[start, end)` are computed, the last `num_rejected` of them in vain."""

    start: int
    end: int
    num_rejected: int
    sampled: list[int]
    """What the commit will append to the known tokens."""


@dataclass(slots=True, kw_only=True, eq=False)
class NaiveRequest:
    """A request as the engine sees it."""

    blocks: RequestBlocks
    numbering: Prefixes
    """The prefixes, shared by all requests."""
    root: int
    encoder_root: int
    tokens: list[int]
    """The known tokens, and those that steps in flight will sample."""
    prefixes: list[int] = field(default_factory=list)
    in_flight: deque[Step] = field(default_factory=deque)
    num_hashed: int = -1
    """The number of known hashes."""
    first_weights: int = 0
    """The weights under which it started; what it reads is no older."""
    plan: ResumePlan | None = None
    within_plan: bool = True
    """Whether its steps stay within the limits of the memory plan."""

    @property
    def num_known(self) -> int:
        return self.blocks.num_tokens

    @property
    def scheduled(self) -> int:
        return self.in_flight[-1].end - self.in_flight[-1].num_rejected if self.in_flight else self.computed

    @property
    def computed(self) -> int:
        return self.blocks.num_computed_tokens

    def grow(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            parent = self.prefixes[-1] if self.prefixes else self.root
            self.tokens.append(token)
            self.prefixes.append(self.numbering.child(parent, token))

    def truncate(self, num_tokens: int) -> None:
        del self.tokens[num_tokens:], self.prefixes[num_tokens:]

    def prefixes_written(self, end: int) -> list[int]:
        """The prefixes that the newest step reads and writes; after a rejected draft, no request has them."""
        is_right = end - self.in_flight[-1].num_rejected
        written = list(self.prefixes[:is_right])
        for _ in range(is_right, end):
            written.append(self.numbering.child(written[-1], _WRONG_TOKEN))
        return written

    def encoder_block(self, block: int) -> int:
        """The prefix that stands for a block of the encoder's output."""
        return self.numbering.child(self.encoder_root, block)


@dataclass(slots=True, kw_only=True)
class StepPlan:
    """An engine's plan for the next step of one request."""

    request: NaiveRequest
    num_tokens: int
    """The token up to which to compute, drafts included."""
    num_accepted: int = 0
    num_drafts: int = 0
    num_lookahead_tokens: int = 0
    must_fit_tokens: int = 0
    sampled: Sequence[int] = (0,)
    """Accepted drafts, and the token after them; used if the step reaches the end of the known tokens."""
