"""`Forward`: the model's part of a step, from scheduled chunks to logits."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from octavo.blocks import Allocation
from octavo.engine.batch import ScheduledSequence, StepBatch, StepLogits
from octavo.engine.sampler import find_logprobs
from octavo.engine.scheduler import Chunk
from octavo.engine.statistics import EngineCounters


class StepRunner(Protocol):
    """What `Forward` needs of a `ModelRunner`."""

    def execute(self, allocations: Iterable[Allocation]) -> None:
        """Makes the copies of allocations, in order."""

    def run(self, batch: StepBatch) -> StepLogits:
        """Computes a step. If it raises, the pages that its sequences were writing may hold anything."""


class Forward:
    """Runs chunks through a runner, and measures the time."""

    def __init__(
        self,
        runner: StepRunner,
        counters: EngineCounters,
        *,
        clock: Callable[[], float],
        note_prefill: Sequence[Callable[[int, float], None]],
    ) -> None:
        self._runner = runner
        self._counters = counters
        self._clock = clock
        self._note_prefill = note_prefill

    def run(self, chunks: Sequence[Chunk]) -> StepLogits:
        """The logits of a step, in the order of its chunks; prompts' log-probabilities are noted on the way."""
        sequences = [
            ScheduledSequence(
                token_ids=chunk.choice.blocks.tokens[chunk.start : chunk.end],
                num_computed_tokens=chunk.start,
                block_tables=[table.rows for table in chunk.choice.blocks.tables],
                known_token_ids=chunk.choice.blocks.tokens,
                wants_all_logits=chunk.choice.request.wants_prompt_logprobs,
            )
            for chunk in chunks
        ]
        began = self._clock()
        logits = self._runner.run(StepBatch(sequences=sequences))
        self._count(chunks, self._clock() - began)
        for row in logits.all_positions:
            _note_prompt_logprobs(chunks[row], logits, row)
        return logits

    def _count(self, chunks: Sequence[Chunk], seconds: float) -> None:
        sizes = [chunk.end - chunk.start for chunk in chunks]
        computed, prefilled = sum(sizes), sum(size for size in sizes if size > 1)
        last_tokens = sum(
            chunk.start < chunk.choice.request.num_prompt_tokens
            for chunk, size in zip(chunks, sizes, strict=True)
            if size == 1
        )
        self._counters.forward_s += seconds
        self._counters.prefill_tokens_computed += prefilled + last_tokens
        if 2 * prefilled > computed:  # in other steps, decodes take most of the time
            for note in self._note_prefill:
                note(prefilled, seconds * prefilled / computed)


def _note_prompt_logprobs(chunk: Chunk, logits: StepLogits, row: int) -> None:
    """Notes the log-probabilities of a chunk's prompt tokens: each position's logits are about the next token."""
    request = chunk.choice.request
    known = request.prompt_logprobs
    first = len(known) - 1  # the position whose logits are wanted next
    last = min(chunk.end, request.num_prompt_tokens - 1)
    if chunk.start <= first < last:
        following = chunk.choice.blocks.tokens[first + 1 : last + 1]
        rows = logits.all_positions[row][first - chunk.start : last - chunk.start]
        known += find_logprobs(rows, following, request.params.prompt_logprobs or 0)
