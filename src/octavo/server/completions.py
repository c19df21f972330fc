"""`/v1/completions`: prompts as text or token ids, answered by what follows them."""

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from octavo.engine import FastTokenizer, RequestOutput, TokenLogprobs, find_text_before
from octavo.server.answer_bodies import Completion, CompletionChoice, CompletionLogprobs, Usage, encode
from octavo.server.answers import end_told, new_request_id, now_s
from octavo.server.generation import Gathered, Piece
from octavo.server.logprobs import TokenNamer, completion_logprobs, prompt_logprobs
from octavo.server.prompts import PreparedPrompt
from octavo.server.requests import CompletionRequest
from octavo.server.sampling import completion_params
from octavo.server.structure import Structure
from octavo.server.text_offsets import TextOffsets, prompt_offsets


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
        self._offsets: dict[int, TextOffsets] = {}
        """Per choice: where a stream's next token begins in its text."""

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
        yield self._chunk([self._piece_choice(piece.prompt_index, output)])

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
        tokens: list[TokenLogprobs | int] = []
        begins: list[int] = []
        text = self._prompt_text(prompt) if self._request.echo else ""
        if self._request.echo:
            known = choice.prompt_logprobs or ()
            tokens = [token or prompt.token_ids[index] for index, token in enumerate(known)]
            begins = prompt_offsets(self._tokenizer, prompt.token_ids[: len(known)], text)
        offsets = self._offsets_of(prompt, start=len(text))
        begins += [offsets.add(token.token_id) for token in choice.logprobs]
        return completion_logprobs([*tokens, *choice.logprobs], self._name, begins)

    def _offsets_of(self, prompt: PreparedPrompt, *, start: int = 0) -> TextOffsets:
        return TextOffsets(
            self._tokenizer,
            before=find_text_before(prompt.token_ids, self.params),
            skip_special_tokens=self.params.skip_special_tokens,
            start=start,
        )

    def _piece_choice(self, prompt_index: int, output: RequestOutput) -> CompletionChoice:
        number = self._number(prompt_index, output.index)
        reason, stop_reason = end_told(output)
        told = CompletionChoice(
            index=number,
            text=output.text,
            logprobs=None,
            finish_reason=reason,
            stop_reason=stop_reason,
        )
        if self._request.logprobs is not None:
            if number not in self._offsets:
                self._offsets[number] = self._offsets_of(self.prompts[prompt_index])
            begins = [self._offsets[number].add(token.token_id) for token in output.logprobs or ()]
            told.logprobs = completion_logprobs(output.logprobs or (), self._name, begins)
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
