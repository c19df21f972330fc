"""`/v1/responses`: a conversation, answered by messages and calls; whole, or as events that each name themselves."""

from collections.abc import Iterator, Sequence
from typing import Any

from octavo.engine import FinishReason
from octavo.server.answer_bodies import Usage, encode
from octavo.server.answers import how_ended, new_request_id, now_s
from octavo.server.generation import Gathered, Piece
from octavo.server.prompts import PreparedPrompt
from octavo.server.requests import ChatRequest
from octavo.server.responses_items import Event, TurnItems
from octavo.server.responses_request import TurnRequest
from octavo.server.sampling import chat_params
from octavo.server.structure import Structure


class TurnWriter:
    """Answers one request."""

    length_name = "max_output_tokens"

    def __init__(
        self,
        request: TurnRequest,
        chat: ChatRequest,
        prompts: Sequence[PreparedPrompt],
        structure: Structure,
        *,
        model: str,
    ) -> None:
        self.request_id = new_request_id("resp")
        self.params = chat_params(chat, structure)
        self.prompts = prompts
        self._request = request
        self._model = model
        self._created = now_s()
        self._num_events = 0
        self._items = TurnItems(None if structure.make_reader is None else structure.make_reader(not request.stream))
        self._told = Gathered()
        """The text that a stream has told so far."""

    def whole(self, choices: Sequence[Sequence[Gathered]], usage: Usage) -> bytes:
        """The answer."""
        ((choice,),) = choices
        for _ in (*self._items.add("".join(choice.text)), *self._items.end(_status(choice), how_ended(choice))):
            pass  # nobody follows it
        return encode(self._response(choice, usage))

    def opening(self) -> Iterator[bytes]:
        """The events that begin a streamed answer."""
        begun = self._response(None, None)
        yield self._event("created", response=begun)
        yield self._event("in_progress", response=begun)

    def piece(self, piece: Piece) -> Iterator[bytes]:
        """More of the answer; of what is at its end, all of it."""
        output = piece.output
        self._told.add(output)
        yield from self._events(self._items.add(output.text))
        if output.is_finished:
            yield from self._events(self._items.end(_status(self._told), how_ended(self._told)))

    def closing(self, usage: Usage) -> bytes:
        """The whole answer."""
        response = self._response(self._told, usage)
        return self._event(response["status"], response=response)

    def _events(self, events: Iterator[Event]) -> Iterator[bytes]:
        return (self._event(kind, **fields) for kind, fields in events)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._num_events += 1
        return encode({"type": f"response.{kind}", "sequence_number": self._num_events - 1, **fields})

    def _response(self, told: Gathered | None, usage: Usage | None) -> dict[str, Any]:
        request, status = self._request, "in_progress" if told is None else _status(told)
        return {
            "id": self.request_id,
            "object": "response",
            "created_at": self._created,
            "model": self._model,
            "status": status,
            "error": _error(told) if told is not None and status == "failed" else None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "output": self._items.told(),
            "parallel_tool_calls": request.parallel_tool_calls is not False and bool(request.tools),
            "previous_response_id": None,
            "store": False,
            "temperature": self.params.temperature,
            "text": request.text,
            "tool_choice": request.tool_choice or ("auto" if request.tools else "none"),
            "tools": request.tools or [],
            "top_p": self.params.top_p,
            "usage": None if usage is None else _usage(usage),
        }


def _status(told: Gathered) -> str:
    match told.finish_reason:
        case FinishReason.STOP:
            return "completed"
        case FinishReason.LENGTH:
            return "incomplete"
        case _:
            return "failed"


def _error(told: Gathered) -> dict[str, str]:
    return {"code": "server_error", "message": told.error or "the server is shutting down"}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": usage.prompt_tokens_details,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
    }
