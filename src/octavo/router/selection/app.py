"""`SelectionServer`: a `SelectionService` on a socket, with the paths that others of its kind have."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from octavo.errors import MALFORMED, why_not_read
from octavo.events import check_subscriber
from octavo.http import (
    CONTENT_TYPE,
    Access,
    Admission,
    ApiError,
    BodyRoute,
    Exchange,
    SignalledServer,
    Ticket,
    as_json,
    bad_request,
    gated_app,
)
from octavo.router.selection.config import SelectionConfig
from octavo.router.selection.metrics import SelectionMetrics
from octavo.router.selection.requests import WorkerId
from octavo.router.selection.service import SelectionService

_Method: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[object]]
_JSON_HEADER = (b"content-type", b"application/json")


class SelectionServer(SignalledServer):
    """Serves until it is asked to end."""

    def __init__(self, config: SelectionConfig) -> None:
        if config.kv_events_keys is not None:  # which are read when the first worker comes
            check_subscriber(config.kv_events_keys)
        self.service = SelectionService(keys=config.kv_events_keys, reservation_timeout_s=config.reservation_timeout_s)
        self.metrics = SelectionMetrics()
        self.admission = Admission(most_requests=config.most_open, most_bytes=config.max_buffered_bytes)
        self._patience_s = config.shutdown_timeout_s
        super().__init__(config, partial(self._app, config))

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """With the workers' events beside it."""
        async with self.service:
            await super().serve(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """No new requests."""
        self.admission.close()
        self.tell_end(self.admission.num_open, self._patience_s)
        await super().shutdown(sockets)

    def _app(self, config: SelectionConfig, is_crowded: Callable[[], bool]) -> Starlette:
        service = self.service
        asked: dict[str, _Method] = {
            "/register": service.register,
            "/unregister": service.unregister,
            "/workers": service.upsert_worker,
            "/query": service.query,
            "/query_by_hash": service.query,
            "/overlap_scores": service.overlap_scores,
            "/potential_loads": service.potential_loads,
            "/select": service.select,
            "/select_and_reserve": service.select_and_reserve,
            "/reservations": service.create_reservation,
        }
        told: dict[str, Callable[[], object]] = {
            "/workers": service.workers,
            "/loads": service.loads,
        }
        routes = {
            Access.OPEN: [Route("/health", self._health, methods=["GET"])],
            Access.OWN: [  # there are no tenants: the owner of the key sends all requests
                *(Route(path, _Question(self, config, method), methods=["POST"]) for path, method in asked.items()),
                *(Route(path, _teller(method), methods=["GET"]) for path, method in told.items()),
                Route("/dump", _Dump(self, config), methods=["GET"]),
                Route("/workers/{worker_id:path}", self._delete_worker, methods=["DELETE"]),
                Route("/reservations/{selection_id:path}", self._free, methods=["DELETE"]),
                Route("/reservations/{selection_id:path}/prefill_complete", self._prefill_complete, methods=["POST"]),
                Route("/reservations/{selection_id:path}/output_block", self._output_block, methods=["POST"]),
                Route("/ready", self._ready, methods=["GET"]),
                Route("/metrics", self._tell_metrics, methods=["GET"]),
            ],
        }
        return gated_app(routes, config, is_crowded=is_crowded)

    async def _delete_worker(self, request: Request) -> Response:
        return as_json(await self.service.delete_worker(self._id_of(request.path_params["worker_id"])))

    def _id_of(self, text: str) -> WorkerId:
        """A path does not say whether an id is a number."""
        ids: dict[str, WorkerId] = {str(one["worker_id"]): one["worker_id"] for one in self.service.workers()}
        return ids.get(text, text)

    async def _free(self, request: Request) -> Response:
        await self.service.free_reservation(request.path_params["selection_id"])
        return as_json({"status": "ok"})

    async def _prefill_complete(self, request: Request) -> Response:
        await self.service.prefill_complete(request.path_params["selection_id"])
        return as_json({"status": "ok"})

    async def _output_block(self, request: Request) -> Response:
        await self.service.add_output_block(request.path_params["selection_id"])
        return as_json({"status": "ok"})

    async def _health(self, request: Request) -> Response:
        """Tells that the service runs."""
        return as_json({"status": "ok"})

    async def _ready(self, request: Request) -> Response:
        """Whether a request could be sent somewhere."""
        if not self.service.ready():
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "no worker is registered yet")
        return as_json({"status": "ok"})

    async def _tell_metrics(self, request: Request) -> Response:
        """For Prometheus."""
        return Response(self.metrics.render(self.service), media_type=CONTENT_TYPE)


class _Question(BodyRoute):
    """The route of one method."""

    def __init__(self, server: SelectionServer, config: SelectionConfig, method: _Method) -> None:
        super().__init__(server.admission, server.metrics, config)
        self._method = method

    async def _serve(self, exchange: Exchange, ticket: Ticket) -> None:
        body = await exchange.read_body(ticket)
        await exchange.run(self._answer(exchange, body))

    async def _answer(self, exchange: Exchange, body: bytearray) -> None:
        try:
            request = msgspec.json.decode(body)
        except MALFORMED as error:
            raise bad_request(f"the body {why_not_read(error, body)}") from None
        if not isinstance(request, dict):
            raise bad_request("the body is no JSON object")
        await exchange.answer(msgspec.json.encode(await self._method(request)))


class _Dump(BodyRoute):
    """All that is known, while others are answered."""

    def __init__(self, server: SelectionServer, config: SelectionConfig) -> None:
        super().__init__(server.admission, server.metrics, config)
        self._service = server.service

    async def _serve(self, exchange: Exchange, ticket: Ticket) -> None:
        await exchange.read_body(ticket)
        await exchange.run(exchange.relay(HTTPStatus.OK, [_JSON_HEADER], self._pieces()))

    async def _pieces(self) -> AsyncIterator[bytes]:
        for piece in self._service.dump_as_json():
            if piece:
                yield piece
            await asyncio.sleep(0)


def _teller(method: Callable[[], object]) -> Callable[[Request], Awaitable[Response]]:
    async def tell(_: Request) -> Response:
        return as_json(method())

    return tell
