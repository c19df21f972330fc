"""`Settling`: the end of a step. What the model computed is committed, and each choice gets its token, goes on or ends.

a chunk inside a prompt          commit
a chunk that ends a prompt       fork into the choices of its request
a choice                         sample -> go on, or end: by its token, by a grammar's dead end, without any token
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from octavo.engine.live_requests import LiveRequests
from octavo.engine.outputs import FinishReason, RequestOutput
from octavo.engine.request import Choice
from octavo.engine.sampler import SampledSequence, SampledTokens, Sampler
from octavo.engine.scheduler import Chunk, Scheduler
from octavo.engine.statistics import EngineCounters
from octavo.units import counted

_logger = logging.getLogger(__name__)

_NO_NUMBERS = "the model computed NaN: its weights are damaged, or its numbers too large for their format (--dtype)"


class _Awaiting(NamedTuple):
    """A choice that gets a token at the end of a chunk."""

    choice: Choice
    chunk: Chunk
    row: int
    """Of the logits."""


class Settling:
    """Makes outputs of logits. The requests of a step are those of the scheduler, which hears what becomes of them."""

    def __init__(
        self,
        scheduler: Scheduler,
        requests: LiveRequests,
        counters: EngineCounters,
        *,
        new_blocks_id: Callable[[], str],
    ) -> None:
        self._scheduler = scheduler
        self._requests = requests
        self._counters = counters
        self._new_blocks_id = new_blocks_id
        self._sampler = Sampler()

    def settle(self, chunks: Sequence[Chunk], logits: torch.Tensor, now: float) -> list[RequestOutput]:
        """The outputs of a step. `logits`: those after the last token of each chunk."""
        self._scheduler.commit([chunk for chunk in chunks if not chunk.is_last], now)
        outputs: list[RequestOutput] = []
        awaiting: list[_Awaiting] = []
        for row, chunk in enumerate(chunks):
            if not chunk.is_last:
                continue
            for choice in self._fork(chunk, now):
                if not choice.request.max_output_tokens:
                    outputs.append(self._end_without_token(choice, chunk, now, FinishReason.LENGTH))
                elif (reason := choice.find_dead_end()) is not None:
                    outputs.append(self._end_without_token(choice, chunk, now, FinishReason.DEAD_END, reason))
                else:
                    awaiting.append(_Awaiting(choice, chunk, row))
        return outputs + self._sample(awaiting, logits, now) if awaiting else outputs

    def _fork(self, chunk: Chunk, now: float) -> list[Choice]:
        """The choices that continue from the end of a chunk: all of a request if the chunk ends its prompt."""
        choice = chunk.choice
        if choice.num_seats == 1:
            return [choice]
        self._scheduler.commit([chunk], now)
        return self._scheduler.fork(choice, self._new_blocks_id)

    def _sample(self, awaiting: Sequence[_Awaiting], logits: torch.Tensor, now: float) -> list[RequestOutput]:
        rows = [row for _, _, row in awaiting]
        try:
            with torch.inference_mode():
                tokens = self._sampler.sample(
                    logits if rows == list(range(len(logits))) else logits[rows],
                    [SampledSequence(choice.sampling, choice.blocks.tokens) for choice, _, _ in awaiting],
                )
        except Exception as error:
            _logger.exception("sampling for %s failed", counted(len(awaiting), "sequence"))
            return self._requests.fail((choice.request for choice, _, _ in awaiting), error)
        return self._end_without_numbers(awaiting, tokens) + self._take(awaiting, tokens, now)

    def _end_without_numbers(self, awaiting: Sequence[_Awaiting], tokens: SampledTokens) -> list[RequestOutput]:
        """Ends the requests for which the model computed NaN. What such a step wrote is not published."""
        if not tokens.nan_rows:
            return []
        _logger.error("%s: %d of %s", _NO_NUMBERS, len(tokens.nan_rows), counted(len(awaiting), "sequence"))
        return self._requests.fail((awaiting[row].choice.request for row in tokens.nan_rows), ValueError(_NO_NUMBERS))

    def _take(self, awaiting: Sequence[_Awaiting], tokens: SampledTokens, now: float) -> list[RequestOutput]:
        """Gives each choice its token, unless its request has just ended."""
        outputs: list[RequestOutput] = []
        going_on: list[tuple[Chunk, int]] = []
        for (choice, chunk, _), token_id, logprobs in zip(awaiting, tokens.token_ids, tokens.logprobs, strict=True):
            if choice.finish_reason is not None:
                continue
            outputs.append(choice.take(token_id, logprobs))
            if choice.finish_reason is not None:
                self._finish(choice, chunk, now)
            elif choice.blocks.num_computed_tokens == chunk.end:  # committed, as it was forked
                self._scheduler.append(choice, token_id)
            else:
                going_on.append((chunk, token_id))
        self._counters.output_tokens += len(outputs)
        self._scheduler.continue_with([chunk for chunk, _ in going_on], [token for _, token in going_on], now)
        return outputs

    def _end_without_token(
        self, choice: Choice, chunk: Chunk, now: float, reason: FinishReason, error: str | None = None
    ) -> RequestOutput:
        output = choice.end(reason, error)
        self._finish(choice, chunk, now)
        return output

    def _finish(self, choice: Choice, chunk: Chunk, now: float) -> None:
        """Ends a choice at the last token of a chunk."""
        if choice.blocks.num_computed_tokens < chunk.end:
            self._scheduler.commit([Chunk(choice, chunk.start, chunk.end)], now)
        self._scheduler.finish(choice, now)
        self._requests.note_end(choice)
