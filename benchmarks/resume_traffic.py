"""Random requests as a chat service sees them: turns that extend conversations, forks, resends, aborts, preemptions.

The steps depend on the seed alone, never on what a cache holds, so every manager is asked the same.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

VOCABULARY = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What happens next, to one request.

    start     it arrives with `tokens`, looks up, and computes a first chunk, up to `num_tokens`
    prefill   its known tokens are computed up to `num_tokens`
    decode    `tokens` are sampled and computed, one after another
    preempt   it loses its blocks, and starts again at once with all its tokens, up to `num_tokens`
    end       it is done or aborted
    """

    action: Literal["start", "prefill", "decode", "preempt", "end"]
    request_id: str
    tokens: tuple[int, ...] = ()
    num_tokens: int = 0


@dataclass(slots=True)
class _Running:
    tokens: list[int]
    num_computed_tokens: int = 0


class Traffic:
    """One seed's steps. At most `most_running` requests hold blocks at a time, none longer than `most_tokens`."""

    def __init__(
        self, seed: int, *, num_requests: int, most_running: int = 4, most_tokens: int = 1000, chunk_unit: int = 1
    ) -> None:
        self.random = random.Random(seed)
        self.num_requests = num_requests
        self.most_running = most_running
        self.most_tokens = most_tokens
        self.chunk_unit = chunk_unit
        """Prefill chunks are multiples of this, and at least as large."""
        self.started = 0
        self.running: dict[str, _Running] = {}
        self.roots = [self._new_tokens(self.random.choice((16, 40, 100, 230))) for _ in range(3)]
        self.known: list[list[int]] = []
        """The tokens of requests that ended, which later ones extend, repeat or leave half way."""

    def steps(self) -> Iterator[Step]:
        while self.started < self.num_requests or self.running:
            may_start = self.started < self.num_requests and len(self.running) < self.most_running
            if may_start and (not self.running or self.random.random() < 0.25):
                yield self._start()
            else:
                yield self._advance(self.random.choice(list(self.running)))

    def _start(self) -> Step:
        request_id = f"r{self.started}"
        self.started += 1
        prompt = self._prompt()[: self.most_tokens - 200]
        request = self.running[request_id] = _Running(list(prompt))
        return Step(
            action="start", request_id=request_id, tokens=tuple(prompt), num_tokens=self._next_chunk_end(request)
        )

    def _prompt(self) -> list[int]:
        kind = self.random.random()
        if not self.known or kind < 0.2:
            return self.random.choice(self.roots) + self._new_tokens(self.random.randint(1, 300))
        past = self.random.choice(self.known[-40:])
        if kind < 0.6:
            return past + self._new_tokens(self.random.randint(1, 120))
        if kind < 0.75:
            return list(past)
        cut = self.random.randint(1, len(past))
        if kind < 0.8:
            return past[: max(16, cut // 16 * 16)]  # whole blocks
        return past[:cut] + self._new_tokens(self.random.randint(1, 120))

    def _advance(self, request_id: str) -> Step:
        request = self.running[request_id]
        chance = self.random.random()
        if chance < 0.02:
            return self._end(request_id)
        if chance < 0.05 and request.num_computed_tokens:
            request.num_computed_tokens = 0
            return Step(action="preempt", request_id=request_id, num_tokens=self._next_chunk_end(request))
        if request.num_computed_tokens < len(request.tokens):
            return Step(action="prefill", request_id=request_id, num_tokens=self._next_chunk_end(request))
        if chance < 0.4 or len(request.tokens) > self.most_tokens - 45:
            return self._end(request_id)
        sampled = self._new_tokens(self.random.choice((1, 3, 15, 40)))
        request.tokens += sampled
        request.num_computed_tokens = len(request.tokens)
        return Step(action="decode", request_id=request_id, tokens=tuple(sampled))

    def _next_chunk_end(self, request: _Running) -> int:
        chunk = self.random.choice((48, 64, 100, 256, 1000))
        chunk = max(1, chunk // self.chunk_unit) * self.chunk_unit
        request.num_computed_tokens = min(len(request.tokens), request.num_computed_tokens + chunk)
        return request.num_computed_tokens

    def _end(self, request_id: str) -> Step:
        self.known.append(self.running.pop(request_id).tokens)
        return Step(action="end", request_id=request_id)

    def _new_tokens(self, count: int) -> list[int]:
        return [self.random.randrange(VOCABULARY) for _ in range(count)]
