"""`/v1/completions`: prompts as text or token ids, answered by what follows them."""

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from octavo.engine import FastTokenizer, RequestOutput, TokenLogprobs
from octavo.server.answer_bodies import Completion, CompletionChoice, CompletionLogprobs, Usage, encode
from octavo.server.answers import end_told, new_request_id, now_s
from octavo.server.generation import Gathered, Piece
from octavo.server.logprobs import TokenNamer, completion_logprobs, prompt_logprobs
from octavo.server.prompts import PreparedPrompt
from octavo.server.requests import CompletionRequest
from octavo.server.sampling import completion_params
from octavo.server.structure import Structure


class CompletionWriter:
    """Answers one completion. Choices are numbered through, prompt by prompt."""

    length_name = "max_tokens"

    def __init__(
        self,
        request: CompletionRequest,
        prompts: Sequence[PreparedPrompt],
        structure: Structure,
        *,
        model: str,
        tokenizer: FastTokenizer | None,
        name_token: TokenNamer,
    ) -> None:
        self.request_id = new_request_id("cmpl")
        self.params = completion_params(request, structure)
        self.prompts = prompts
        self._request = request
        self._model = model
        self._created = now_s()
        self._tokenizer = tokenizer
        self._name = name_token
        self._offsets: dict[int, int] = {}
        """Per choice: the offset in its text of the stream's next token, for log-probabilities."""

    def whole(self, choices: Sequence[Sequence[Gathered]], usage: Usage) -> bytes:
        """The answer, by prompt and choice."""
        told = [
            self._choice(prompt_index, index, choice)
            for prompt_index, of_prompt in enumerate(choices)
            for index, choice in enumerate(of_prompt)
        ]
        return encode(self._message(told, usage))

    def opening(self) -> Iterator[bytes]:
        """The prompts, if they are wanted."""
        wants_ids = self._request.return_token_ids
        if not self._request.echo and not wants_ids:
            return
        for prompt_index, prompt in enumerate(self.prompts):
            text = self._prompt_text(prompt) if self._request.echo else ""
            for index in range(self.params.n):
                number = self._number(prompt_index, index)
                choice = CompletionChoice(index=number, text=text, logprobs=None, finish_reason=None, stop_reason=None)
                if wants_ids:
                    choice.prompt_token_ids, choice.token_ids = prompt.token_ids, []
                yield self._chunk([choice])

    def piece(self, piece: Piece) -> Iterator[bytes]:
        """The events that a stream sends for a piece; none if the piece brings nothing to see."""
        output = piece.output
        wants_tokens = self._request.return_token_ids or self._request.logprobs is not None
        if not (output.text or output.is_finished or (wants_tokens and output.token_ids)):
            return
        yield self._chunk([self._piece_choice(self._number(piece.prompt_index, output.index), output)])

    def closing(self, usage: Usage) -> bytes:
        """The numbers at the end of a stream."""
        return encode(self._message([], usage))

    def _choice(self, prompt_index: int, index: int, choice: Gathered) -> CompletionChoice:
        prompt, request = self.prompts[prompt_index], self._request
        text = "".join(choice.text)
        reason, stop_reason = end_told(choice)
        told = CompletionChoice(
            index=self._number(prompt_index, index),
            text=self._prompt_text(prompt) + text if request.echo else text,
            logprobs=self._logprobs(prompt, choice),
            finish_reason=reason,
            stop_reason=stop_reason,
        )
        if request.return_token_ids:
            told.prompt_token_ids, told.token_ids = prompt.token_ids, choice.token_ids
        if request.prompt_logprobs is not None and choice.prompt_logprobs is not None:
            told.prompt_logprobs = prompt_logprobs(choice.prompt_logprobs, self._name)
        return told

    def _logprobs(self, prompt: PreparedPrompt, choice: Gathered) -> CompletionLogprobs | None:
        if self._request.logprobs is None:
            return None
        tokens: list[TokenLogprobs | int] = [*choice.logprobs]
        if self._request.echo:
            known = choice.prompt_logprobs or ()
            of_prompt = [token or prompt.token_ids[index] for index, token in enumerate(known)]
            tokens = [*of_prompt, *tokens]
        return completion_logprobs(tokens, self._name)

    def _piece_choice(self, number: int, output: RequestOutput) -> CompletionChoice:
        reason, stop_reason = end_told(output)
        told = CompletionChoice(
            index=number,
            text=output.text,
            logprobs=None,
            finish_reason=reason,
            stop_reason=stop_reason,
        )
        if self._request.logprobs is not None:
            offset = self._offsets.get(number, 0)
            told.logprobs = completion_logprobs(output.logprobs or (), self._name, offset=offset)
            self._offsets[number] = offset + sum(map(len, told.logprobs.tokens))
        if self._request.return_token_ids:
            told.token_ids = output.token_ids
        return told

    def _prompt_text(self, prompt: PreparedPrompt) -> str:
        if prompt.text is not None or self._tokenizer is None:
            return prompt.text or ""
        return self._tokenizer.decode(prompt.token_ids)

    def _number(self, prompt_index: int, index: int) -> int:
        return prompt_index * self.params.n + index

    def _chunk(self, choices: list[CompletionChoice]) -> bytes:
        message = self._message(choices)
        message.usage = None if self._request.includes_usage else UNSET
        return encode(message)

    def _message(self, choices: list[CompletionChoice], usage: Usage | None = None) -> Completion:
        return Completion(id=self.request_id, created=self._created, model=self._model, choices=choices, usage=usage)
