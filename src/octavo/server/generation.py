"""`Generation`: the engine's streams for one HTTP request, one for each of its prompts."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

from octavo.chunks import Hint
from octavo.engine import AsyncEngine, FinishReason, RequestOutput, RequestStream, SamplingParams, TokenLogprobs
from octavo.http import OpenLoad, bad_request
from octavo.server.open_requests import OpenRequest, OpenRequests
from octavo.server.prompts import PreparedPrompt
from octavo.units import counted

_MOST_LOGPROBS = 1 << 23
"""The most alternatives of tokens in one answer, which takes half a gigabyte or more."""


class Piece(NamedTuple):
    """New text of one choice of one prompt."""

    prompt_index: int
    output: RequestOutput


@dataclass(slots=True)
class Gathered:
    """The text of one choice so far."""

    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: Sequence[TokenLogprobs | None] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    error: str | None = None

    def add(self, output: RequestOutput) -> None:
        self.text.append(output.text)
        self.token_ids.extend(output.token_ids)
        self.logprobs.extend(output.logprobs or ())
        self.prompt_logprobs = output.prompt_logprobs if self.prompt_logprobs is None else self.prompt_logprobs
        self.finish_reason = output.finish_reason
        self.stop_reason = output.stop_reason
        self.error = output.error


class Generation:
    """An asynchronous context: leaving it aborts what has not finished."""

    def __init__(
        self,
        engine: AsyncEngine,
        live: OpenRequests,
        load: OpenLoad,
        *,
        request_id: str,
        prompts: Sequence[PreparedPrompt],
        params: SamplingParams,
        length_name: str,
        cache_salt: str | None,
        tenant: str | None,
        hints: Sequence[Hint],
    ) -> None:
        """`hints` apply to all prompts."""
        self._engine = engine
        self._live = live
        self._load = load
        self._request_id = request_id
        self._prompts = prompts
        self._params = params
        self._length_name = length_name
        self._cache_salt = cache_salt
        self._tenant = tenant
        self._hints = hints
        self._streams: list[RequestStream] = []
        self._watched: list[OpenRequest] = []

    async def __aenter__(self) -> Self:
        """Puts all prompts into the engine's queue, or none."""
        self._check_lengths()
        self._check_logprobs()
        self._load.read(self.num_prompt_tokens)
        self._watched = [
            self._live.begin(f"{self._request_id}-{index}" if index else self._request_id, len(prompt.token_ids))
            for index, prompt in enumerate(self._prompts)
        ]
        submitting = [
            asyncio.ensure_future(
                self._engine.submit(
                    prompt.token_ids,
                    self._params,
                    cache_salt=self._cache_salt,
                    tenant=self._tenant,
                    request_id=watched.request_id,
                    hints=(*prompt.hints, *self._hints),
                )
            )
            for prompt, watched in zip(self._prompts, self._watched, strict=True)
        ]
        try:
            await asyncio.wait(submitting)
            self._streams = [task.result() for task in submitting]
        except BaseException:
            await _undo(submitting)
            self._end_watching()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in self._streams:
            stream.close()
        self._end_watching()

    async def pieces(self) -> AsyncIterator[Piece]:
        """New pieces of all prompts, as they come."""
        if len(self._streams) == 1:
            async for output in self._streams[0]:
                yield self._piece(0, output)
            return
        waiting = {asyncio.ensure_future(stream.__anext__()): index for index, stream in enumerate(self._streams)}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    index = waiting.pop(task)
                    if isinstance(task.exception(), StopAsyncIteration):
                        continue
                    output = task.result()
                    waiting[asyncio.ensure_future(self._streams[index].__anext__())] = index
                    yield self._piece(index, output)
        finally:
            for task in waiting:
                task.cancel()

    async def gather(self) -> list[list[Gathered]]:
        """All choices of all prompts, once they have finished."""
        gathered = [[Gathered() for _ in range(self._params.n)] for _ in self._prompts]
        async for index, output in self.pieces():
            gathered[index][output.index].add(output)
        return gathered

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(prompt.token_ids) for prompt in self._prompts)

    @property
    def num_output_tokens(self) -> int:
        return sum(watched.num_output_tokens for watched in self._watched)

    @property
    def cached_tokens(self) -> Mapping[str, int]:
        """Prompt tokens that were resumed, by medium."""
        by_medium: dict[str, int] = {}
        for watched in self._watched:
            for medium, tokens in watched.cached_tokens.items():
                by_medium[medium] = by_medium.get(medium, 0) + tokens
        return by_medium

    def _check_lengths(self) -> None:
        """A length that was asked for must be possible; the engine would only cut it short."""
        longest = self._engine.engine.max_model_len
        wanted = self._params.max_tokens
        for prompt in self._prompts:
            length = len(prompt.token_ids)
            if wanted is not None and length + wanted > longest:
                raise bad_request(
                    f"a prompt of {counted(length, 'token')} and {self._length_name} = {wanted:,} are more than the "
                    f"longest context of {counted(longest, 'token')}",
                    param=self._length_name if length < longest else "prompt",
                    code="context_length_exceeded",
                )

    def _check_logprobs(self) -> None:
        """The alternatives that an answer may have to name must not take all memory."""
        params, longest = self._params, self._engine.engine.max_model_len
        num_logprobs = 0
        for prompt in self._prompts:
            length = len(prompt.token_ids)
            room = max(0, longest - length)
            num_output = room if params.max_tokens is None else min(room, params.max_tokens)
            num_logprobs += params.n * (num_output * (params.logprobs or 0) + length * (params.prompt_logprobs or 0))
        if num_logprobs > _MOST_LOGPROBS:
            raise bad_request(
                f"the answer might name {num_logprobs:,} alternatives of tokens, and {_MOST_LOGPROBS:,} are the most: "
                "ask for fewer logprobs, tokens or choices",
                param="logprobs",
            )

    def _piece(self, index: int, output: RequestOutput) -> Piece:
        self._load.begun()
        self._watched[index].note(output)
        return Piece(index, output)

    def _end_watching(self) -> None:
        for watched in self._watched:
            self._live.end(watched)


async def _undo(submitting: Sequence["asyncio.Task[RequestStream]"]) -> None:
    """Takes back what came into the queue, and what was on its way there."""
    for task in submitting:
        task.cancel()
    for result in await asyncio.gather(*submitting, return_exceptions=True):
        if isinstance(result, RequestStream):
            result.close()
