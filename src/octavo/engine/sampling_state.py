"""`SamplingState`: one choice's state in sampling: random numbers, token counts for penalties, position in a
grammar."""

from collections.abc import Sequence
from copy import deepcopy
from random import Random

import numpy as np
import numpy.typing as npt

from octavo.engine.sampling_params import SamplingParams

_DRAW_BITS = 32


class SamplingState:
    """One choice's part of the sampler. It counts tokens only if there are penalties."""

    def __init__(self, params: SamplingParams, stop_ids: Sequence[int]) -> None:
        self.params = params
        self.stop_ids = tuple(stop_ids)
        """Tokens that end the choice; forbidden until it has `min_tokens`."""
        self.num_output_tokens = 0
        self.is_plain = (
            params.is_greedy and not params.has_penalties and not params.min_tokens and params.grammar is None
        )
        """Whether sampling just takes the most likely token."""
        self.grammar = None if params.grammar is None else params.grammar.begin()
        self.token_counts: TokenCounts | None = None
        self._random = Random(params.seed)  # noqa: S311 - nothing secret hangs on it

    def fork(self, params: SamplingParams) -> "SamplingState":
        """The state of another choice of the same request, before any token is sampled."""
        twin = SamplingState(params, self.stop_ids)
        twin.num_output_tokens = self.num_output_tokens
        twin.token_counts = deepcopy(self.token_counts)
        return twin

    @property
    def must_not_stop(self) -> bool:
        return self.num_output_tokens < self.params.min_tokens and bool(self.stop_ids)

    def draw(self) -> float:
        """A random number from 0 up, not so near 1 that rounding could make it 1."""
        return self._random.getrandbits(_DRAW_BITS) / (1 << _DRAW_BITS)

    def counts(self, tokens: Sequence[int]) -> "TokenCounts":
        """The counts for penalties, made with the first output token, when only the prompt is known."""
        if self.token_counts is None:
            self.token_counts = TokenCounts(tokens)
        return self.token_counts

    def record(self, token_id: int) -> None:
        """Notes the chosen token."""
        self.num_output_tokens += 1
        if self.token_counts is not None:
            self.token_counts.record(token_id)
        if self.grammar is not None:
            self.grammar.accept(token_id)


class TokenCounts:
    """The distinct tokens that a choice has had, and how often each was put out."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._ids = np.unique(np.asarray(prompt, dtype=np.int64))
        self._in_output = np.zeros(len(self._ids), dtype=np.float32)
        self._num_ids = len(self._ids)
        """The used length of both arrays; the rest is room to grow."""
        self._indices = {token_id: index for index, token_id in enumerate(self._ids.tolist())}

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """The tokens in the prompt or the output."""
        return self._ids[: self._num_ids]

    @property
    def in_output(self) -> npt.NDArray[np.float32]:
        """The number of times that each of `ids` was put out."""
        return self._in_output[: self._num_ids]

    def record(self, token_id: int) -> None:
        index = self._indices.setdefault(token_id, self._num_ids)
        if index == self._num_ids:
            if index == len(self._ids):
                self._ids = np.resize(self._ids, 2 * index)
                self._in_output = np.resize(self._in_output, 2 * index)
            self._ids[index], self._in_output[index] = token_id, 0
            self._num_ids += 1
        self._in_output[index] += 1
