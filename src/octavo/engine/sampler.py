"""`Sampler`: the next token of every sequence of a step, from the logits.

    logits  ->  penalties, forbidden tokens  ->  greedy: the largest
                                             ->  random: temperature, min-p, top-k, top-p, then one draw per sequence

A draw is one number of the sequence's own generator, looked up in the running sum of its own row: so what a seeded
request gets does not depend on its neighbours in the batch. Log-probabilities are of the logits as they came.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from octavo.engine.outputs import TokenLogprobs
from octavo.engine.sampling_state import SamplingState

_NUCLEUS_CANDIDATES = 128
_MORE_CANDIDATES = 8
"""A nucleus is looked for among so many tokens, then among so many times more, and so on: sorting a whole vocabulary
takes milliseconds."""


class SampledSequence(NamedTuple):
    """Whose a row of logits is."""

    state: SamplingState
    tokens: Sequence[int]
    """All that are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTokens:
    """The answer, row by row."""

    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprobs | None]


class Sampler:
    """Chooses tokens. It keeps nothing: what a sequence needs is in its `SamplingState`."""

    def sample(self, logits: torch.Tensor, sequences: Sequence[SampledSequence]) -> SampledTokens:
        """One token for each row of `logits` (len(sequences), vocab)."""
        if all(sequence.state.is_plain for sequence in sequences):
            token_ids = _most_likely(logits)
        else:
            token_ids = self._choose(logits.float(), sequences)
        logprobs = self._logprobs(logits, sequences, token_ids)
        for sequence, token_id in zip(sequences, token_ids, strict=True):
            sequence.state.record(token_id)
        return SampledTokens(token_ids=token_ids, logprobs=logprobs)

    def _choose(self, logits: torch.Tensor, sequences: Sequence[SampledSequence]) -> list[int]:
        changed = [row for row, sequence in enumerate(sequences) if _changes_logits(sequence.state)]
        if changed:
            logits = logits.clone()
            for row in changed:
                _penalize(logits[row], sequences[row])
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
    """How likely each row's token is, its rank, and the most likely ones."""
    logprobs = logits.float().log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(token_ids, device=logits.device)[:, None])
    ranks = (logprobs > chosen).sum(-1) + 1
    values, ids = logprobs.topk(min(num_top, logits.shape[-1]), dim=-1)
    return [
        TokenLogprobs(token_id=token_id, logprob=logprob, rank=rank, top=tuple(zip(top_ids, top_values, strict=True)))
        for token_id, logprob, rank, top_ids, top_values in zip(
            token_ids, chosen[:, 0].tolist(), ranks.tolist(), ids.tolist(), values.tolist(), strict=True
        )
    ]


def draw_tokens(logits: torch.Tensor, states: Sequence[SamplingState]) -> list[int]:
    """One random token for each row."""
    probabilities = token_probabilities(logits, states)
    sums = probabilities.double().cumsum(-1)
    draws = torch.tensor([[state.draw()] for state in states], dtype=torch.float64, device=logits.device)
    # The first running sum above the draw: never a token of probability 0, which does not raise the sum.
    places = torch.searchsorted(sums, draws * sums[:, -1:], right=True)
    token_ids: list[int] = places[:, 0].clamp_(max=logits.shape[-1] - 1).tolist()
    return token_ids


def token_probabilities(logits: torch.Tensor, states: Sequence[SamplingState]) -> torch.Tensor:
    """(rows, vocab): what each row's token is drawn from, up to a factor; 0 for tokens that are left out."""
    params = [state.params for state in states]
    temperatures = _column([p.temperature for p in params], logits)
    probabilities = ((logits - logits.amax(-1, keepdim=True)) / temperatures).softmax(-1)
    if any(p.min_p for p in params):
        least = probabilities.amax(-1, keepdim=True) * _column([p.min_p for p in params], logits)
        probabilities = probabilities.masked_fill(probabilities < least, 0)
    cut = [row for row, p in enumerate(params) if p.top_k > 0 or p.top_p < 1]
    if cut:
        vocab_size = logits.shape[-1]
        top_k = [min(params[row].top_k, vocab_size) if params[row].top_k > 0 else vocab_size for row in cut]
        probabilities[cut] = _keep_most_likely(probabilities[cut], top_k, [params[row].top_p for row in cut])
    return probabilities


def _keep_most_likely(probabilities: torch.Tensor, top_k: Sequence[int], top_p: Sequence[float]) -> torch.Tensor:
    """Each row's `top_k` most likely tokens, and of them the fewest that make up `top_p` of their sum."""
    vocab_size = probabilities.shape[-1]
    num_candidates = min(vocab_size, max(k if k < vocab_size else _NUCLEUS_CANDIDATES for k in top_k))
    while True:
        values, ids = probabilities.topk(num_candidates, dim=-1)
        ranks = torch.arange(num_candidates, device=values.device)
        values = values.masked_fill(ranks >= _column(top_k, values, torch.int64), 0)
        is_cut_to_k = torch.tensor([k <= num_candidates for k in top_k], device=values.device)
        exact = values.double()
        total = torch.where(is_cut_to_k, exact.sum(-1), probabilities.double().sum(-1))[:, None]
        before = exact.cumsum(-1) - exact
        kept = values.masked_fill(before >= total * _column(top_p, values, torch.float64), 0)
        has_all = (kept[:, -1] == 0) | is_cut_to_k
        if num_candidates == vocab_size or bool(has_all.all()):
            return torch.zeros_like(probabilities).scatter_(-1, ids, kept)
        num_candidates = min(vocab_size, num_candidates * _MORE_CANDIDATES)


def _most_likely(logits: torch.Tensor) -> list[int]:
    """The largest of each row."""
    if logits.device.type == "cpu" and logits.dtype == torch.float32:
        return list(logits.numpy().argmax(-1).tolist())  # several times as fast as torch's
    return list(logits.argmax(-1).tolist())


def _changes_logits(state: SamplingState) -> bool:
    return state.params.has_penalties or state.must_not_stop


def _penalize(logits: torch.Tensor, sequence: SampledSequence) -> None:
    """Penalties and forbidden tokens of one row, in place."""
    state, params = sequence.state, sequence.state.params
    if params.has_penalties:
        counts = state.counts(sequence.tokens, logits.shape[-1], logits.device)
        if params.repetition_penalty != 1:
            penalty = torch.where(logits > 0, 1 / params.repetition_penalty, params.repetition_penalty)
            logits.copy_(torch.where(counts.was_seen, logits * penalty, logits))
        logits -= params.frequency_penalty * counts.output
        logits -= params.presence_penalty * (counts.output > 0)
    if state.must_not_stop:
        logits[list(state.stop_ids)] = -torch.inf


def _column(numbers: Sequence[float], like: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype or like.dtype, device=like.device)[:, None]
