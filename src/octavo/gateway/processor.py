"""`Processor`: answers a Gateway's messages about each HTTP request (ext_proc, full duplex).

    head, pieces of the body     kept until the body has ended, since the prompt decides
    end of the body              the destination, then the body as it came
    head and pieces of the answer   handed on as they come; the Gateway says who answers, and a stream's first piece
                                    how fast that engine is

One gRPC stream carries one HTTP request; when it ends, the request has. It counts as open from its head on, which says
whose it is.
"""

from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus

from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc, external_processor_pb2_grpc

from octavo.gateway.config import PickerConfig
from octavo.gateway.messages import (
    REQUEST_TRAILERS,
    RESPONSE_HEADERS,
    RESPONSE_TRAILERS,
    destination,
    is_streamed,
    read_headers,
    read_served,
    read_subset,
    refusal,
    request_pieces,
    response_piece,
)
from octavo.gateway.picker import Picked, Picker
from octavo.http import Admission, ApiError, Tenant, Ticket, check_parts, tenant_of
from octavo.router import SESSION

_ASKED_WITH = frozenset({"authorization", "x-request-id", SESSION})


class Processor(external_processor_pb2_grpc.ExternalProcessorServicer):
    """The gRPC service."""

    def __init__(
        self, picker: Picker, admission: Admission, config: PickerConfig, *, tenants: Sequence[Tenant] = ()
    ) -> None:
        self._picker = picker
        self._admission = admission
        self._config = config
        self._tenants = tenants

    async def Process(  # noqa: N802 - the protocol's name
        self, messages: AsyncIterator[ext_proc.ProcessingRequest], context: object
    ) -> AsyncIterator[ext_proc.ProcessingResponse]:
        """One HTTP request, from its head to the end of its answer."""
        try:
            head = await anext(messages, None)
            if head is None:
                return
            shown = read_headers(head.request_headers).get("authorization", "")
            tenant = tenant_of(self._tenants, shown.encode("latin-1"))
            with self._admission.enter(tenant) as ticket:
                exchange = _Exchange(self._picker, ticket, self._config, tenant)
                try:
                    async for message in _all(head, messages):
                        for answer in await exchange.take(message):
                            yield answer
                finally:
                    exchange.close()
        except ApiError as error:
            yield refusal(error)


class _Exchange:
    """One HTTP request of the Gateway, and its answer."""

    def __init__(self, picker: Picker, ticket: Ticket, config: PickerConfig, tenant: str | None) -> None:
        self._picker = picker
        self._ticket = ticket
        self._config = config
        self._tenant = tenant
        self._headers: dict[str, str] = {}
        self._allowed: frozenset[str] | None = None
        self._pieces: list[bytes] = []
        self._num_bytes = 0
        self._picked: Picked | None = None
        self._is_stream = False

    async def take(self, message: ext_proc.ProcessingRequest) -> list[ext_proc.ProcessingResponse]:
        """The answers to one message. Raises ApiError to refuse the request."""
        answers: list[ext_proc.ProcessingResponse] = []
        match message.WhichOneof("request"):
            case "request_headers":
                self._headers = read_headers(message.request_headers)
                self._allowed = read_subset(message)
                if message.request_headers.end_of_stream and self._picked is None:
                    answers = [await self._pick(None)]
            case "request_body":
                self._add_piece(message.request_body.body)
                if message.request_body.end_of_stream:
                    answers = await self._send_on(is_last=True)
            case "request_trailers":
                answers = [*await self._send_on(is_last=False), REQUEST_TRAILERS]
            case "response_headers":
                self._is_stream = is_streamed(message.response_headers)
                if self._picked is not None:
                    self._picked.answered_by(read_served(message))
                answers = [RESPONSE_HEADERS]
            case "response_body":
                self._note_piece(message.response_body)
                answers = [response_piece(message.response_body)]
            case "response_trailers":
                self.close()
                answers = [RESPONSE_TRAILERS]
        return answers

    def close(self) -> None:
        """Ends the exchange: no message follows."""
        if self._picked is not None:
            self._picked.end()

    async def _send_on(self, *, is_last: bool) -> list[ext_proc.ProcessingResponse]:
        """A request is sent on once, though a Gateway may tell its end twice: with its body, and with trailers."""
        if self._picked is not None:
            return []
        body = b"".join(self._pieces)
        check_parts(body, most_bytes=self._config.max_body_bytes)
        head = await self._pick(body)
        pieces, self._pieces = self._pieces, []
        return [head, *request_pieces(pieces, is_last=is_last)]

    async def _pick(self, body: bytes | None) -> ext_proc.ProcessingResponse:
        asked_with = {name: value for name, value in self._headers.items() if name in _ASKED_WITH} | self._own_key()
        path = self._headers.get(":path", "")
        self._picked = await self._picker.pick(body, asked_with, self._tenant, path=path, allowed=self._allowed)
        return destination(self._picked.endpoints, self._picked.marks | self._own_key())

    def _own_key(self) -> dict[str, str]:
        """The header with the engines' key; none with tenants, as engines know a tenant by its own key."""
        key = self._config.engine_api_key
        return {} if key is None or self._config.tenants is not None else {"authorization": f"Bearer {key}"}

    def _add_piece(self, piece: bytes) -> None:
        self._num_bytes += len(piece)
        if self._num_bytes > self._config.max_body_bytes:
            most = f"the body may be {self._config.max_body_bytes:,} bytes long and no longer"
            raise ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, most)
        self._ticket.add_bytes(len(piece))
        self._pieces.append(piece)

    def _note_piece(self, body: ext_proc.HttpBody) -> None:
        if self._picked is not None and self._is_stream and body.body:
            self._picked.begun()  # of other answers, nobody can tell when their first token came
        if body.end_of_stream:
            self.close()


async def _all(
    head: ext_proc.ProcessingRequest, others: AsyncIterator[ext_proc.ProcessingRequest]
) -> AsyncIterator[ext_proc.ProcessingRequest]:
    yield head
    async for message in others:
        yield message
