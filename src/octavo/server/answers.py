"""`AnswerWriter`: how one kind of request is answered, whole and in pieces; and what both kinds share."""

import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from secrets import token_hex
from typing import Protocol

from octavo.engine import FinishReason, RequestOutput, SamplingParams
from octavo.http import ApiError, shutting_down
from octavo.server.answer_bodies import PromptTokensDetails, Usage
from octavo.server.generation import Gathered, Generation, Piece
from octavo.server.prompts import PreparedPrompt
from octavo.server.tools import End


class AnswerWriter(Protocol):
    """Writes one request's answer. Made before the request is submitted."""

    request_id: str
    params: SamplingParams
    length_name: str
    """The field of the body that says how many tokens the answer may have."""
    prompts: Sequence[PreparedPrompt]

    def whole(self, choices: Sequence[Sequence[Gathered]], usage: Usage) -> bytes:
        """The answer, by prompt and choice."""

    def opening(self) -> Iterator[bytes]:
        """The first events of a stream."""

    def piece(self, piece: Piece) -> Iterator[bytes]:
        """The events that a stream sends for a piece; none if the piece brings nothing to see."""

    def closing(self, usage: Usage) -> bytes:
        """The numbers at the end of a stream."""


def new_request_id(kind: str) -> str:
    """A random id of the form of OpenAI's."""
    return f"{kind}-{token_hex(12)}"


def now_s() -> int:
    """The time in the form in which answers are dated."""
    return int(time.time())


def usage_of(generation: Generation) -> Usage:
    """A prompt counts once, however many choices it has."""
    prompt, output, cached = generation.num_prompt_tokens, generation.num_output_tokens, generation.cached_tokens
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=output,
        total_tokens=prompt + output,
        prompt_tokens_details=PromptTokensDetails(
            cached_tokens=sum(cached.values()), cached_tokens_by_medium=dict(cached)
        ),
    )


def check_finished(choices: Sequence[Sequence[Gathered]]) -> None:
    """A whole answer is whole, or none."""
    for choice in (choice for of_prompt in choices for choice in of_prompt):
        if choice.finish_reason is FinishReason.ERROR:
            raise failed(choice.error)
        if choice.finish_reason is FinishReason.ABORT:
            raise shutting_down()


def end_told(choice: Gathered | RequestOutput) -> tuple[str | None, int | str | None]:
    """`finish_reason` and `stop_reason`. Of a choice whose grammar ran into a dead end: `error`, and why."""
    if choice.finish_reason is FinishReason.DEAD_END:
        return "error", choice.error
    return choice.finish_reason, choice.stop_reason


def how_ended(choice: Gathered | RequestOutput) -> End:
    """How a choice ended, for who reads calls in its text."""
    if choice.finish_reason is not FinishReason.STOP:
        return End.CUT
    return End.STOPPED if isinstance(choice.stop_reason, str) else End.OWN


def failed(error: str | None) -> ApiError:
    """The engine could not compute the request."""
    return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, error or "the engine failed", code="engine_error")
