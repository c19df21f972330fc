"""`POST /tokenize`: the tokens of a completion's prompt, of a conversation or of a response's input.
`POST /detokenize`: the text of tokens. Both as vLLM's server tells them.
"""

from abc import abstractmethod

import msgspec

from octavo.http import BodyRoute, Exchange, Ticket, bad_request
from octavo.server.requests import decode
from octavo.server.service import Service


class _Form(msgspec.Struct):
    """Which of the bodies it is."""

    messages: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()


class Tokenized(msgspec.Struct, kw_only=True):
    """The answer."""

    count: int
    max_model_len: int
    tokens: list[int]


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """The body of `/detokenize`."""

    tokens: list[int]
    model: str | None = None


class Detokenized(msgspec.Struct, kw_only=True):
    """The answer."""

    prompt: str


_DETOKENIZE = msgspec.json.Decoder(DetokenizeRequest)
_FORM = msgspec.json.Decoder(_Form)


class _TokenRoute(BodyRoute):
    """Reads a body, and answers without the engine."""

    def __init__(self, service: Service) -> None:
        super().__init__(service.admission, service.metrics, service.config)
        self._service = service

    async def _serve(self, exchange: Exchange, ticket: Ticket) -> None:
        with self._admission.droppable():
            body = await exchange.read_body(ticket)
            await exchange.run(self._answer(exchange, body))

    @abstractmethod
    async def _answer(self, exchange: Exchange, body: bytearray) -> None: ...


class TokenizeRoute(_TokenRoute):
    """It takes the bodies of the routes that generate, and reads them in the same way."""

    async def _answer(self, exchange: Exchange, body: bytearray) -> None:
        service = self._service
        form = decode(body, _FORM)
        if form.messages:
            _, writer = await service.read_chat(body)
        elif form.input:
            _, writer = await service.read_turn(body)
        else:
            _, writer = await service.read_completion(body)
        if len(writer.prompts) != 1:
            raise bad_request("prompt must be one text, or the token ids of one", param="prompt")
        tokens = writer.prompts[0].token_ids
        answer = Tokenized(count=len(tokens), max_model_len=service.engine.engine.max_model_len, tokens=tokens)
        await exchange.answer(msgspec.json.encode(answer))


class DetokenizeRoute(_TokenRoute):
    """The way back."""

    async def _answer(self, exchange: Exchange, body: bytearray) -> None:
        request = decode(body, _DETOKENIZE)
        self._service.check_model(request.model)
        answer = Detokenized(prompt=await self._service.detokenize(request.tokens))
        await exchange.answer(msgspec.json.encode(answer))
