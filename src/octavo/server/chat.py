"""`/v1/chat/completions`: a conversation, answered by its next message."""

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import UNSET

from octavo.engine import FinishReason, RequestOutput, TokenLogprobs
from octavo.server.answer_bodies import (
    ChatChoice,
    ChatCompletion,
    ChatLogprobs,
    ChatText,
    FunctionCall,
    ToolCallPiece,
    Usage,
    encode,
)
from octavo.server.answers import end_told, how_ended, new_request_id, now_s
from octavo.server.generation import Gathered, Piece
from octavo.server.logprobs import TokenNamer, chat_logprobs, prompt_logprobs
from octavo.server.prompts import PreparedPrompt
from octavo.server.requests import ChatRequest
from octavo.server.sampling import chat_params
from octavo.server.structure import Structure
from octavo.server.tools import AnswerReader, CallPiece, whole_calls

_ROLE = "assistant"


class ChatWriter:
    """Answers one conversation."""

    def __init__(
        self,
        request: ChatRequest,
        prompts: Sequence[PreparedPrompt],
        structure: Structure,
        *,
        model: str,
        name_token: TokenNamer,
    ) -> None:
        self.request_id = new_request_id("chatcmpl")
        self.params = chat_params(request, structure)
        self.length_name = request.length_name
        self.prompts = prompts
        self._request = request
        self._model = model
        self._created = now_s()
        self._name = name_token
        self._readers: list[AnswerReader] = []
        """Per choice, if an answer may hold thoughts or calls."""
        goes_on = self.params.continues_prompt or self.params.grammar is not None
        self._fresh = set[int]() if goes_on else set(range(self.params.n))
        """Choices whose next token is the first of a text of its own."""
        if structure.make_reader is not None:
            waits = not request.stream or bool(self.params.stop)  # what a stream has told cannot be taken back
            self._readers = [structure.make_reader(waits) for _ in range(self.params.n)]

    def whole(self, choices: Sequence[Sequence[Gathered]], usage: Usage) -> bytes:
        """The answer, by prompt and choice."""
        (of_prompt,) = choices
        message = self._message("chat.completion", [self._choice(i, choice) for i, choice in enumerate(of_prompt)])
        message.usage = usage
        if self._request.return_token_ids:
            message.prompt_token_ids = self.prompts[0].token_ids
        if self.params.prompt_logprobs is not None and of_prompt[0].prompt_logprobs is not None:
            message.prompt_logprobs = prompt_logprobs(of_prompt[0].prompt_logprobs, self._name)
        return encode(message)

    def opening(self) -> Iterator[bytes]:
        """The speaker's role."""
        for index in range(self.params.n):
            delta = ChatText(role=_ROLE, content="")
            choice = ChatChoice(index=index, delta=delta, logprobs=None, finish_reason=None, stop_reason=None)
            message = self._message("chat.completion.chunk", [choice])
            if self._request.return_token_ids:
                message.prompt_token_ids = self.prompts[0].token_ids
            yield encode(message)

    def piece(self, piece: Piece) -> Iterator[bytes]:
        """The events that a stream sends for a piece; none if the piece brings nothing to see."""
        output, request = piece.output, self._request
        delta = self._delta(output)
        wants_tokens = request.return_token_ids or request.logprobs
        has_news = any(part is not UNSET for part in (delta.content, delta.reasoning_content, delta.tool_calls))
        if not (has_news or output.is_finished or (wants_tokens and output.token_ids)):
            return
        reason, stop_reason = end_told(output)
        choice = ChatChoice(
            index=output.index,
            delta=delta,
            logprobs=self._logprobs(output.index, output.logprobs or ()),
            finish_reason=self._finish_reason(output.index, reason),
            stop_reason=stop_reason,
        )
        if request.return_token_ids:
            choice.token_ids = output.token_ids
        yield encode(self._message("chat.completion.chunk", [choice]))

    def closing(self, usage: Usage) -> bytes:
        """The numbers at the end of a stream."""
        message = self._message("chat.completion.chunk", [])
        message.usage = usage
        return encode(message)

    def _choice(self, index: int, choice: Gathered) -> ChatChoice:
        reason, stop_reason = end_told(choice)
        told = ChatChoice(
            index=index,
            message=self._text(index, choice),
            logprobs=self._logprobs(index, choice.logprobs),
            finish_reason=self._finish_reason(index, reason),
            stop_reason=stop_reason,
        )
        if self._request.return_token_ids:
            told.token_ids = choice.token_ids
        return told

    def _logprobs(self, index: int, tokens: Sequence[TokenLogprobs]) -> ChatLogprobs | None:
        if not self._request.logprobs:
            return None
        is_first = index in self._fresh
        if tokens:
            self._fresh.discard(index)
        return chat_logprobs(tokens, self._name, is_first=is_first)

    def _delta(self, output: RequestOutput) -> ChatText:
        if not self._readers:
            return ChatText(content=output.text or UNSET)
        reader = self._readers[output.index]
        reads = [reader.push(output.text), *([reader.flush(how_ended(output))] if output.is_finished else [])]
        calls = [_as_tool_call(call, in_stream=True) for read in reads for call in read.calls]
        return ChatText(
            content="".join(read.said for read in reads) or UNSET,
            reasoning_content="".join(read.thought for read in reads) or UNSET,
            tool_calls=calls or UNSET,
        )

    def _text(self, index: int, choice: Gathered) -> ChatText:
        text = "".join(choice.text)
        if not self._readers:
            return ChatText(role=_ROLE, content=text)
        reader = self._readers[index]
        reads = [reader.push(text), reader.flush(how_ended(choice))]
        said = "".join(read.said for read in reads)
        calls = [_as_tool_call(call, in_stream=False) for call in whole_calls(reads)]
        return ChatText(
            role=_ROLE,
            content=said or (None if calls else ""),
            reasoning_content="".join(read.thought for read in reads) or UNSET,
            tool_calls=calls or UNSET,
        )

    def _finish_reason(self, index: int, reason: str | None) -> str | None:
        if not self._readers or reason is not FinishReason.STOP:
            return reason
        reader = self._readers[index]
        return "tool_calls" if reader.num_calls and not reader.ends_within_call else reason

    def _message(
        self, kind: Literal["chat.completion", "chat.completion.chunk"], choices: list[ChatChoice]
    ) -> ChatCompletion:
        return ChatCompletion(
            id=self.request_id,
            object=kind,
            created=self._created,
            model=self._model,
            choices=choices,
            usage=None if self._request.includes_usage else UNSET,
        )


def _as_tool_call(call: CallPiece, *, in_stream: bool) -> ToolCallPiece:
    """A call, or a piece of one."""
    return ToolCallPiece(
        index=call.index if in_stream else UNSET,
        id=call.call_id or UNSET,
        type="function" if call.call_id else UNSET,
        function=FunctionCall(name=call.name or UNSET, arguments=call.arguments),
    )
