"""One request, as the block side sees it: its tokens, their hashes, and a table for each group."""

from array import array
from collections.abc import Sequence
from copy import copy

import numpy as np

from octavo.errors import InputError
from octavo.hashing import RequestIdentity
from octavo.ids import BlockHash, GroupIdx
from octavo.specs import BlockTable, PromisePlan, ResumePoint


class RequestBlocks:
    """The state that belongs to one request. Only `KVCacheManager` changes it; engines read `tables`."""

    __slots__ = (
        "commit_at",
        "extend_at",
        "generation",
        "group_hashes",
        "hashed",
        "identity",
        "is_started",
        "num_computed_tokens",
        "num_encoder_tokens",
        "num_prompt_tokens",
        "num_scheduled_tokens",
        "promises",
        "quiet_until",
        "request_id",
        "tables",
        "tokens",
    )

    def __init__(
        self,
        request_id: str,
        tokens: "array[int]",
        identity: RequestIdentity,
        *,
        num_encoder_tokens: int,
        promises: PromisePlan,
    ) -> None:
        self.request_id = request_id
        self.tokens = tokens
        self.identity = identity
        self.num_prompt_tokens = len(tokens)
        self.num_encoder_tokens = num_encoder_tokens
        self.num_computed_tokens = 0
        """Tokens that are computed and final."""
        self.num_scheduled_tokens = 0
        """Tokens that are computed once all steps that have been allocated for are done."""
        self.extend_at = 0
        """Up to this number of tokens there is room, and nothing to do for it."""
        self.commit_at = 0
        """Below this number of computed tokens there is nothing to publish and nothing to let go."""
        self.quiet_until = 0
        """The smaller of the two: a decode step that ends here or before does nothing but count."""
        self.is_started = False
        self.generation = 0
        """The pool's when it started, or when its load began: under a later one nothing of it is published."""
        self.tables: list[BlockTable] = []
        """By group; a group that keeps nothing has an empty one."""
        self.hashed: list[BlockHash] = []
        """Of all full hash blocks."""
        self.group_hashes: list[list[BlockHash]] = []
        """By group, of its full blocks; empty where nothing is cached."""
        self.promises = promises
        """Where others will want to resume."""

    def copy(self, request_id: str) -> "RequestBlocks":
        """The same request under another id, with no tables of its own yet."""
        twin: RequestBlocks = copy(self)
        twin.request_id = request_id
        twin.tokens = self.tokens[:]
        twin.tables = []
        twin.hashed = list(self.hashed)
        twin.group_hashes = [twin.hashed if hashes is self.hashed else list(hashes) for hashes in self.group_hashes]
        return twin

    @property
    def num_tokens(self) -> int:
        """Tokens that are known."""
        return len(self.tokens)

    def resume_point(self, num_tokens: int) -> ResumePoint:
        return ResumePoint(num_tokens, self.num_prompt_tokens, self.num_encoder_tokens)

    def hashes(self, group_idx: GroupIdx) -> Sequence[BlockHash]:
        return self.group_hashes[group_idx]

    def is_worth_a_checkpoint(self, num_tokens: int) -> bool:
        return self.promises.is_promised(num_tokens)


def as_token_array(tokens: Sequence[int] | np.ndarray) -> "array[int]":
    """A growing int32 array, the fastest way from whatever is given."""
    packed = array("i")
    if isinstance(tokens, np.ndarray) and tokens.dtype == np.int32:
        packed.frombytes(np.ascontiguousarray(tokens).tobytes())
        return packed
    try:
        packed.extend(tokens)
    except (TypeError, OverflowError) as error:
        raise InputError(f"tokens must be whole numbers from 0 to 2**31 - 1: {error}") from None
    return packed
