"""What one step computes: sequences with their new tokens, and the logits that come back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledSequence:
    """One sequence's part of a step: the tokens to compute, and where its cache lies.

    The caller guarantees that the sequence's allocations up to the last of these tokens have been executed, and that
    a chunk of a prompt ends where `KVCacheManager.cut_prefill` says.
    """

    token_ids: Sequence[int]
    """The tokens to compute, at positions `num_computed_tokens` and after."""
    num_computed_tokens: int
    block_tables: Sequence[Sequence[int]]
    """By group of the plan, the rows of the request's table. They are read during the step and not kept."""
    num_draft_tokens: int = 0
    """The last so many of `token_ids` are drafts. Recurrent state after token i goes to the i-th running page, so
    that the accepted one can be picked; otherwise only the state after the last token is kept, in the first."""
    wants_all_logits: bool = False
    """Logits of every token: for a prompt's log-probabilities, and to verify drafts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """The sequences of one step, in any order: the runner packs them as it needs."""

    sequences: Sequence[ScheduledSequence]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLogits:
    """What a step computed."""

    last: torch.Tensor
    """(num_sequences, vocab): after each sequence's last token, in the batch's order."""
    all_positions: Mapping[int, torch.Tensor]
    """(number of its tokens, vocab) of each sequence that wants all, by its place in the batch."""
