"""The input of one step, sequences with their new tokens, and its output, logits."""

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
    """Per group of the plan, the rows of the request's block table. They are read during the step only."""
    known_token_ids: Sequence[int] = ()
    """All tokens of the sequence, at least up to the first to compute. They are read during the step only, and only by
    models that look at the last ones before it."""
    num_draft_tokens: int = 0
    """The number of drafts at the end of `token_ids`. The recurrent state after the i-th token goes to the i-th running
    page, so that the one after the last accepted token can be picked. Without drafts only the last state is kept."""
    wants_all_logits: bool = False
    """Logits of every token are wanted: for a prompt's log-probabilities, or to verify drafts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """The sequences of one step, in any order: the runner packs them as it needs."""

    sequences: Sequence[ScheduledSequence]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLogits:
    """The logits of one step."""

    last: torch.Tensor
    """(num_sequences, vocab): the logits after each sequence's last token, in the batch's order."""
    all_positions: Mapping[int, torch.Tensor]
    """By index in the batch, the logits (tokens, vocab) of each sequence that wants all."""
