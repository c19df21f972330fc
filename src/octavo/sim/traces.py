"""Traces: the requests' arrival times, their numbers of tokens, and which of their blocks are equal.

Equal ids are equal blocks with equal prefixes; no text is needed. A request's tokens are made of its ids:

    ids [7, 9], blocks of 4, 6 tokens    ->    7 7 7 7 9 9
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """One request of a trace."""

    arrival_s: float
    """When it comes; of one that follows another, the soonest possible."""
    num_prompt_tokens: int
    num_output_tokens: int
    block_ids: Tokens
    """An id for each block of the prompt, and of the output if the trace knows it; the last block may be short."""
    block_tokens: int
    knows_output: bool = True
    """Whether the ids include the output."""
    session: str = ""
    """The same for all requests of one conversation; empty if the trace does not tell."""
    resumed: Mapping[str, int] | None = None
    """In a recording: the resumed tokens, by medium."""
    place: str = ""
    """Where it stands in its file, such as `line 7`."""
    follows: str = ""
    """The place of the request after whose end it comes, if it waits for one."""
    delay_s: float = 0.0
    """How long after that end it comes."""

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens

    def prompt(self) -> Tokens:
        return self._known()[: self.num_prompt_tokens]

    def output(self) -> Tokens:
        """The tokens of the output, as far as the trace knows them."""
        known = self._known() if self.knows_output else self.block_ids[:0]
        return known[self.num_prompt_tokens : self.num_tokens]

    def _known(self) -> Tokens:
        """The tokens of all blocks, though no more than the request has where a block is longer."""
        return np.repeat(self.block_ids, min(self.block_tokens, self.num_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The requests of a file, in the order of their arrival."""

    requests: Sequence[TraceRequest]
    block_tokens: int
    """Tokens per block. The trace tells nothing about shorter prefixes."""
    num_refused: int = 0
    """Requests that were too long."""

    @classmethod
    def of_prompts(cls, prompts: Iterable[Sequence[int]], *, block_tokens: int, interval_s: float) -> Self:
        """A trace of prompts given as blocks, one after the other; each is answered with one token."""
        requests = [
            TraceRequest(
                arrival_s=number * interval_s,
                num_prompt_tokens=len(ids) * block_tokens,
                num_output_tokens=1,
                block_ids=np.array(ids, dtype=np.int32),
                block_tokens=block_tokens,
                knows_output=False,
            )
            for number, ids in enumerate(prompts)
        ]
        return cls(requests=requests, block_tokens=block_tokens)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(request.num_prompt_tokens for request in self.requests)

    @property
    def longest_request(self) -> TraceRequest:
        return max(self.requests, key=lambda request: request.num_tokens)

    @property
    def longest(self) -> int:
        """The tokens of the longest request, output included."""
        return self.longest_request.num_tokens


class BlockIds:
    """Numbers from 1 on, in the order in which names first come."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._last = 0

    def of(self, names: Iterable[int]) -> list[int]:
        """The numbers of blocks with these names."""
        numbers, last = self._numbers, self._last
        found = []
        for name in names:
            number = numbers.get(name)
            if number is None:
                number = numbers[name] = last = last + 1
            found.append(number)
        self._last = last
        return found

    def find_of_prompt(self, names: Sequence[int], num_tokens: int, block_tokens: int) -> list[int] | None:
        """The numbers of a prompt's blocks, of which a short last one may have no name. None if the names are not as
        many as the blocks."""
        num_blocks = -(-num_tokens // block_tokens)
        if len(names) not in (num_tokens // block_tokens, num_blocks):
            return None
        return self.of(names) + [self.of_nobody() for _ in range(num_blocks - len(names))]

    def of_nobody(self) -> int:
        """A number that no other block has."""
        self._last += 1
        return self._last

    def forget_names(self) -> None:
        """The same names are of other blocks from here on."""
        self._numbers.clear()
