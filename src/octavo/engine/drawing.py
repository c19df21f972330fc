"""Random tokens by temperature, min-p, top-k and top-p, without sorting a vocabulary.

    rows with a top-k           their k largest logits; the rules judge those
    rows with a top-p alone     the largest logits, as many as turn out to be needed; their share is of all tokens
    all others                  the whole row

A draw takes one number of the sequence's own generator and finds it in the running sum of its row's weights, in the
order of the vocabulary. A row's candidates depend on its own parameters alone. So a seeded request's tokens do not
depend on its neighbours in the batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt

import torch

from octavo.engine.sampling_params import SamplingParams
from octavo.engine.sampling_state import SamplingState

_NUCLEUS_CANDIDATES = 128
_MORE_CANDIDATES = 8
"""A nucleus is first looked for among this many tokens, then among this many times more, and so on."""
_NONE = -1
"""No token."""
_MIN_BLOCK = 4
"""The least logits of a block. Smaller blocks do not make the search for the largest faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The tokens that some rows draw from, with their weights."""

    rows: Sequence[int]
    ids: torch.Tensor | None
    """(rows, candidates), ascending; None for the whole vocabulary."""
    weights: torch.Tensor
    """(rows, candidates): probabilities up to a factor per row; 0 for tokens that are left out."""


def draw_tokens(logits: torch.Tensor, states: Sequence[SamplingState]) -> list[int]:
    """One random token for each row. Of a row that has no weights, as it holds NaN or infinity, the largest."""
    draws = torch.tensor([[state.draw()] for state in states], dtype=torch.float64, device=logits.device)
    token_ids = [0] * len(states)
    for found in find_candidates(logits, [state.params for state in states]):
        sums = found.weights.cumsum(-1, dtype=torch.float64)
        # The first running sum above the draw: never a token of weight 0, which does not raise the sum.
        indices = torch.searchsorted(sums, draws[found.rows] * sums[:, -1:], right=True)
        indices.clamp_(max=sums.shape[-1] - 1)
        drawn = indices if found.ids is None else found.ids.gather(1, indices)
        drawn.masked_fill_(~sums[:, -1:].isfinite(), _NONE)
        for row, token_id in zip(found.rows, drawn[:, 0].tolist(), strict=True):
            token_ids[row] = int(logits[row].argmax()) if token_id == _NONE else token_id
    return token_ids


def find_candidates(logits: torch.Tensor, params: Sequence[SamplingParams]) -> Iterator[Candidates]:
    """The candidates of all rows, each row once, in groups that are treated alike."""
    vocab_size = logits.shape[-1]
    alike: dict[tuple[int, bool], list[int]] = {}
    for row, wishes in enumerate(params):
        top_k = min(wishes.top_k, vocab_size) if wishes.top_k > 0 else 0
        alike.setdefault((top_k, not top_k and wishes.top_p < 1), []).append(row)
    for (top_k, is_nucleus), rows in alike.items():
        own = logits if len(rows) == len(params) else logits[rows]
        own_params = [params[row] for row in rows]
        if top_k:
            largest, ids = find_largest(own, top_k)
            weights = _weights(largest, own_params)
            yield _in_order(rows, ids, _cut_to_nucleus(weights, weights.sum(-1, dtype=torch.float64), own_params))
        elif is_nucleus:
            yield from _find_nuclei(own, rows, own_params)
        else:
            yield Candidates(rows=rows, ids=None, weights=_weights(own, own_params))


def find_largest(numbers: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`numbers.topk(count)` of each row, several times as fast where that is few of many.

    The `count` largest lie in the `count` blocks with the largest maxima, so only those are searched.
    """
    size = numbers.shape[-1]
    block = isqrt(size // count) if count else 0
    if block < _MIN_BLOCK:
        values, ids = numbers.topk(count)
        return values, ids
    num_blocks = size // block
    blocks = numbers[:, : num_blocks * block].reshape(-1, num_blocks, block)
    chosen = blocks.amax(-1).topk(count).indices[..., None]
    values = blocks.gather(1, chosen.expand(-1, -1, block)).flatten(1)
    ids = (chosen * block + torch.arange(block, device=numbers.device)).flatten(1)
    if rest := size - num_blocks * block:
        values = torch.cat((values, numbers[:, -rest:]), -1)
        ids = torch.cat((ids, torch.arange(size - rest, size, device=numbers.device).expand(len(ids), -1)), -1)
    values, indices = values.topk(count)
    return values, ids.gather(1, indices)


def _find_nuclei(logits: torch.Tensor, rows: Sequence[int], params: Sequence[SamplingParams]) -> Iterator[Candidates]:
    """The candidates of rows with a top-p and no top-k."""
    totals = _weights(logits, params).sum(-1, dtype=torch.float64)
    count = min(_NUCLEUS_CANDIDATES, logits.shape[-1])
    while rows:
        largest, ids = find_largest(logits, count)
        kept = _cut_to_nucleus(_weights(largest, params), totals, params)
        is_whole = (kept[:, -1] == 0).tolist() if count < logits.shape[-1] else [True] * len(rows)
        done = [index for index, whole in enumerate(is_whole) if whole]
        if done:
            yield _in_order([rows[index] for index in done], ids[done], kept[done])
        wider = [index for index, whole in enumerate(is_whole) if not whole]
        logits, totals = logits[wider], totals[wider]
        rows, params = [rows[index] for index in wider], [params[index] for index in wider]
        count = min(count * _MORE_CANDIDATES, logits.shape[-1])


def _weights(logits: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Each token's probability over that of the most likely one, which must be among them, by temperature and min-p."""
    weights = logits - logits.amax(-1, keepdim=True)
    weights = weights.div_(_column([p.temperature for p in params], logits)).exp_()
    if any(p.min_p for p in params):
        weights = weights.masked_fill_(weights < _column([p.min_p for p in params], logits), 0)
    return weights


def _cut_to_nucleus(weights: torch.Tensor, totals: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Keeps the first of the descending weights that make up `top_p` of `total`; the others become 0."""
    if all(p.top_p == 1 for p in params):
        return weights
    before = weights.cumsum(-1, dtype=torch.float64) - weights
    wanted = totals[:, None] * _column([p.top_p for p in params], totals)
    return weights.masked_fill(before >= wanted, 0)


def _in_order(rows: Sequence[int], ids: torch.Tensor, weights: torch.Tensor) -> Candidates:
    ids, indices = ids.sort(-1)
    return Candidates(rows=rows, ids=ids, weights=weights.gather(1, indices))


def _column(numbers: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(numbers, dtype=like.dtype, device=like.device)[:, None]
