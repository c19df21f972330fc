"""The two routes that generate: read, submit, answer whole or piece by piece, and let go of everything in the end."""

from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.types import Receive, Scope, Send

from octavo.engine import FinishReason
from octavo.server.answers import AnswerWriter, check_finished, failed, usage_of
from octavo.server.errors import as_api_error
from octavo.server.exchange import ClientGoneError, Exchange, event
from octavo.server.generation import Generation
from octavo.server.requests import ChatRequest, CompletionRequest
from octavo.server.service import Service

ReadBody = Callable[[bytearray], Awaitable[tuple[CompletionRequest | ChatRequest, AnswerWriter]]]


class GenerationRoute:
    """An ASGI application rather than a function of a request: what it holds lives as long as its answer."""

    def __init__(self, service: Service, read: ReadBody) -> None:
        self._service = service
        self._read = read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        exchange = Exchange(scope, receive, send, service.config)
        try:
            await self._serve(exchange)
        except ClientGoneError:
            service.metrics.clients_gone.inc()
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told something
            await exchange.refuse(as_api_error(error))
        service.metrics.count_answer(scope["path"], exchange.status)

    async def _serve(self, exchange: Exchange) -> None:
        with self._service.admission.enter() as ticket:
            body = await exchange.read_body(ticket)
            request, writer = await self._read(body)
            del body
            await exchange.run(self._answer(exchange, request, writer))

    async def _answer(self, exchange: Exchange, request: CompletionRequest | ChatRequest, writer: AnswerWriter) -> None:
        async with self._service.generation(writer, request.cache_salt) as generation:
            if request.stream:
                await exchange.stream(_events(generation, writer, with_usage=request.includes_usage))
                return
            choices = await generation.gather()
            check_finished(choices)
            await exchange.answer(writer.whole(choices, usage_of(generation)))


async def _events(generation: Generation, writer: AnswerWriter, *, with_usage: bool) -> AsyncIterator[bytes]:
    for message in writer.opening():
        yield event(message)
    async for piece in generation.pieces():
        if piece.output.finish_reason is FinishReason.ERROR:
            raise failed(piece.output.error)
        for message in writer.piece(piece):
            yield event(message)
    if with_usage:
        yield event(writer.closing(usage_of(generation)))
