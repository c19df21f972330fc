"""`Sampler`: the next token of every sequence of a step, from the logits.

    logits  ->  penalties, forbidden tokens, grammars  ->  greedy: the largest
                                                       ->  random: see `octavo.engine.drawing`

Log-probabilities are those of the model's logits, before any of this.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import NamedTuple

import numpy as np
import torch

from octavo.engine.drawing import draw_tokens, find_largest
from octavo.engine.outputs import Alternatives, TokenLogprobs
from octavo.engine.sampling_state import SamplingState


class SampledSequence(NamedTuple):
    """The sequence that a row of logits belongs to."""

    state: SamplingState
    tokens: Sequence[int]
    """All known tokens, those of the prompt included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTokens:
    """The sampled tokens, row by row."""

    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprobs | None]
    nan_rows: Sequence[int]
    """The rows whose logits are no numbers: their tokens are noise."""


class Sampler:
    """Chooses tokens. It has no state: each sequence has its own `SamplingState`."""

    def sample(self, logits: torch.Tensor, sequences: Sequence[SampledSequence]) -> SampledTokens:
        """One token for each row of `logits` (len(sequences), vocab)."""
        if all(sequence.state.is_plain for sequence in sequences):
            token_ids = _most_likely(logits)
        else:
            token_ids = self._choose(logits.float(), sequences)
        logprobs = self._logprobs(logits, sequences, token_ids)
        for sequence, token_id in zip(sequences, token_ids, strict=True):
            sequence.state.record(token_id)
        return SampledTokens(token_ids=token_ids, logprobs=logprobs, nan_rows=_find_nan(logits, token_ids))

    def _choose(self, logits: torch.Tensor, sequences: Sequence[SampledSequence]) -> list[int]:
        penalized = [row for row, sequence in enumerate(sequences) if sequence.state.params.has_penalties]
        going_on = [row for row, sequence in enumerate(sequences) if sequence.state.must_not_stop]
        guided = [
            (row, grammar.allowed)
            for row, sequence in enumerate(sequences)
            if (grammar := sequence.state.grammar) is not None and grammar.allowed is not None
        ]
        if penalized or going_on or guided:
            logits = logits.clone()
        if penalized:
            _penalize(logits, penalized, [sequences[row] for row in penalized])
        for row in going_on:
            logits[row, list(sequences[row].state.stop_ids)] = -torch.inf
        for row, allowed in guided:
            logits[row].masked_fill_(torch.from_numpy(~allowed).to(logits.device), -torch.inf)
        drawn = [row for row, sequence in enumerate(sequences) if not sequence.state.params.is_greedy]
        token_ids = _most_likely(logits) if len(drawn) < len(sequences) else [0] * len(sequences)
        if drawn:
            rows = logits if len(drawn) == len(sequences) else logits[drawn]
            for row, token_id in zip(drawn, draw_tokens(rows, [sequences[row].state for row in drawn]), strict=True):
                token_ids[row] = token_id
        return token_ids

    def _logprobs(
        self, logits: torch.Tensor, sequences: Sequence[SampledSequence], token_ids: Sequence[int]
    ) -> list[TokenLogprobs | None]:
        answers: list[TokenLogprobs | None] = [None] * len(sequences)
        asked = [row for row, sequence in enumerate(sequences) if sequence.state.params.logprobs is not None]
        if asked:
            most = max(sequences[row].state.params.logprobs or 0 for row in asked)
            found = find_logprobs(logits[asked], [token_ids[row] for row in asked], most)
            for row, of_token in zip(asked, found, strict=True):
                wanted = sequences[row].state.params.logprobs or 0
                answers[row] = of_token._replace(top=of_token.top[:wanted])
        return answers


def find_logprobs(logits: torch.Tensor, token_ids: Sequence[int], num_top: int) -> list[TokenLogprobs]:
    """Each row's log-probability and rank of its token, and the most likely tokens."""
    logprobs = logits.float().log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(token_ids, device=logits.device)[:, None])
    ranks = (logprobs > chosen).count_nonzero(-1) + 1
    values, ids = find_largest(logprobs, min(num_top, logits.shape[-1]))
    return [
        TokenLogprobs(token_id=token_id, logprob=logprob, rank=rank, top=Alternatives(top_ids, top_values))
        for token_id, logprob, rank, top_ids, top_values in zip(
            token_ids, chosen[:, 0].tolist(), ranks.tolist(), ids.tolist(), values.tolist(), strict=True
        )
    ]


def _most_likely(logits: torch.Tensor) -> list[int]:
    """The most likely token of each row."""
    if logits.device.type == "cpu" and logits.dtype == torch.float32:
        return list(logits.numpy().argmax(-1).tolist())  # several times as fast as torch's argmax
    return list(logits.argmax(-1).tolist())


def _find_nan(logits: torch.Tensor, token_ids: Sequence[int]) -> list[int]:
    """The rows where the logit of the token is NaN, as the largest of a row with a NaN is."""
    chosen = logits.gather(1, torch.tensor(token_ids, device=logits.device)[:, None])
    return [row for row, value in enumerate(chosen[:, 0].tolist()) if isnan(value)]


def _penalize(logits: torch.Tensor, rows: Sequence[int], sequences: Sequence[SampledSequence]) -> None:
    """Applies penalties to these rows in place; only tokens that a sequence has had change."""
    counts = [sequence.state.counts(sequence.tokens) for sequence in sequences]
    num_ids = [len(of_one.ids) for of_one in counts]
    params = [sequence.state.params for sequence in sequences]

    def by_token(*of_each: float) -> torch.Tensor:
        return torch.from_numpy(np.repeat(np.array(of_each, np.float32), num_ids)).to(logits.device)

    indices = (
        torch.from_numpy(np.repeat(np.array(rows), num_ids)).to(logits.device),
        torch.from_numpy(np.concatenate([of_one.ids for of_one in counts])).to(logits.device),
    )
    in_output = torch.from_numpy(np.concatenate([of_one.in_output for of_one in counts])).to(logits.device)
    repetition = by_token(*(p.repetition_penalty for p in params))
    values = logits[indices]
    values = torch.where(values > 0, values / repetition, values * repetition)
    values -= by_token(*(p.frequency_penalty for p in params)) * in_output
    values -= by_token(*(p.presence_penalty for p in params)) * (in_output > 0)
    logits[indices] = values
