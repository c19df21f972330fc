"""`/v1/chat/completions`: a conversation, answered by its next message."""

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import UNSET

from octavo.server.answers import new_request_id, now_s
from octavo.server.generation import Gathered, Piece
from octavo.server.logprobs import TokenNamer, chat_logprobs, prompt_logprobs
from octavo.server.prompts import PreparedPrompt
from octavo.server.requests import ChatRequest
from octavo.server.responses import ChatChoice, ChatCompletion, ChatText, Usage, encode
from octavo.server.sampling import chat_params

_ROLE = "assistant"


class ChatWriter:
    """Answers one conversation."""

    def __init__(
        self, request: ChatRequest, prompts: Sequence[PreparedPrompt], *, model: str, name_token: TokenNamer
    ) -> None:
        self.request_id = new_request_id("chatcmpl")
        self.params = chat_params(request)
        self.prompts = prompts
        self._request = request
        self._model = model
        self._created = now_s()
        self._name = name_token

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
        """Who speaks."""
        for index in range(self.params.n):
            delta = ChatText(role=_ROLE, content="")
            choice = ChatChoice(index=index, delta=delta, logprobs=None, finish_reason=None, stop_reason=None)
            message = self._message("chat.completion.chunk", [choice])
            if self._request.return_token_ids:
                message.prompt_token_ids = self.prompts[0].token_ids
            yield encode(message)

    def piece(self, piece: Piece) -> Iterator[bytes]:
        """What a stream tells of a piece; nothing, if it brings nothing to see."""
        output, request = piece.output, self._request
        wants_tokens = request.return_token_ids or request.logprobs
        if not (output.text or output.is_finished or (wants_tokens and output.token_ids)):
            return
        choice = ChatChoice(
            index=output.index,
            delta=ChatText(content=output.text) if output.text else ChatText(),
            logprobs=chat_logprobs(output.logprobs or (), self._name) if request.logprobs else None,
            finish_reason=output.finish_reason,
            stop_reason=output.stop_reason,
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
        told = ChatChoice(
            index=index,
            message=ChatText(role=_ROLE, content="".join(choice.text)),
            logprobs=chat_logprobs(choice.logprobs, self._name) if self._request.logprobs else None,
            finish_reason=choice.finish_reason,
            stop_reason=choice.stop_reason,
        )
        if self._request.return_token_ids:
            told.token_ids = choice.token_ids
        return told

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
