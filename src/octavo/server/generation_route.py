"""The routes that generate: read, submit, answer whole or piece by piece, and let go of everything in the end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from octavo.engine import FinishReason
from octavo.http import BodyRoute, Exchange, OpenLoad, Ticket, bad_request, event
from octavo.server.answers import AnswerWriter, check_finished, failed, usage_of
from octavo.server.generation import Generation, Piece
from octavo.server.hints import hints_on_prompts
from octavo.server.requests import ChatRequest, CompletionRequest
from octavo.server.responses_request import TurnRequest
from octavo.server.service import Service

AnyRequest = CompletionRequest | ChatRequest | TurnRequest

_MOST_LOGPROBS = 64
"""Tokens with log-probabilities that are written in the event loop; more take milliseconds."""

ReadBody = Callable[[bytearray], Awaitable[tuple[AnyRequest, AnswerWriter]]]


class GenerationRoute(BodyRoute):
    """A route whose requests generate tokens."""

    def __init__(self, service: Service, read: ReadBody) -> None:
        super().__init__(service.admission, service.metrics, service.config)
        self._service = service
        self._read = read

    async def _serve(self, exchange: Exchange, ticket: Ticket) -> None:
        load = self._service.load.begin(exchange.headers)
        try:
            await self._generate(exchange, ticket, load)
        finally:
            load.end()

    async def _generate(self, exchange: Exchange, ticket: Ticket, load: OpenLoad) -> None:
        with self._admission.droppable():
            body = await exchange.read_body(ticket)
            request, writer = await exchange.run(self._read(body))
        ticket.add_prompts(len(writer.prompts) - 1)
        exchange.ignored_fields = self._service.find_ignored(body, request)
        self._service.ignored_fields.log(exchange.ignored_fields)
        del body
        await exchange.run(self._answer(exchange, request, writer, load))

    async def _answer(self, exchange: Exchange, request: AnyRequest, writer: AnswerWriter, load: OpenLoad) -> None:
        service = self._service
        async with Generation(
            service.engine,
            service.live,
            load,
            request_id=writer.request_id,
            prompts=writer.prompts,
            params=writer.params,
            length_name=writer.length_name,
            cache_salt=_salt_of(request, exchange.tenant),
            tenant=exchange.tenant,
            hints=hints_on_prompts(request.prompt_cache_retention, exchange.headers),
        ) as generation:
            if request.stream:
                await exchange.stream(_events(generation, writer, with_usage=request.includes_usage))
                return
            choices = await generation.gather()
            check_finished(choices)
            # Of many tokens with log-probabilities this takes seconds: not for the event loop.
            await exchange.answer(await asyncio.to_thread(writer.whole, choices, usage_of(generation)))


def _salt_of(request: AnyRequest, tenant: str | None) -> str | None:
    """The salt under which the request shares what is cached."""
    if tenant is not None and request.cache_salt not in (None, tenant):
        raise bad_request("the API key decides cache_salt; leave it out", param="cache_salt")
    return request.cache_salt if tenant is None else tenant


async def _events(generation: Generation, writer: AnswerWriter, *, with_usage: bool) -> AsyncIterator[bytes]:
    for message in writer.opening():
        yield event(message)
    async for piece in generation.pieces():
        if piece.output.finish_reason is FinishReason.ERROR:
            raise failed(piece.output.error)
        for message in await written(writer, piece):
            yield event(message)
    if with_usage:
        yield event(writer.closing(usage_of(generation)))


async def written(writer: AnswerWriter, piece: Piece) -> Iterable[bytes]:
    """The events of a piece. That of a client who reads late is long, and is written by a thread."""
    if len(piece.output.logprobs or ()) <= _MOST_LOGPROBS:
        return writer.piece(piece)
    return await asyncio.to_thread(lambda: list(writer.piece(piece)))
