"""`PickerServer`: the endpoint picker on a socket, with its fleet beside it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc
from grpc_health.v1 import health_pb2_grpc

from octavo.errors import InputError
from octavo.gateway.certificate import Certificate
from octavo.gateway.config import PickerConfig
from octavo.gateway.health import Health
from octavo.gateway.picker import Picker
from octavo.gateway.processor import Processor
from octavo.gateway.status import StatusServer
from octavo.http import Admission, HttpConfig, open_socket, tenants_of, url_of
from octavo.router import EngineAddress, Fleet, FleetRoutes, RouterMetrics, open_engine_client

_PING_EVERY_MS = 30_000
_PING_TIMEOUT_MS = 10_000
"""A Gateway that is gone without a word is noticed in 40 s. By default that takes hours, and its requests count."""
_PINGED_EVERY_MS = 1_000
"""A Gateway may ask so often whether the picker is there. By default, its third question in 15 minutes in which nothing
else is said ends the connection, and all that is open on it."""
_SPARE_STREAMS = 1024
"""Streams beyond the requests that may be open: those that are being refused or say nothing yet, and those that ask
after the picker's health. More are refused without a word."""


_GRPC = "grpc._cython.cygrpc"
"""The name of gRPC's own log."""
_MOST_STREAMS = (1 << 31) - 1
"""gRPC's own bound of this number."""


class PickerServer:
    """A picker that serves until `end`. It lives in one event loop."""

    def __init__(self, config: PickerConfig) -> None:
        self._config = config
        self._client = open_engine_client()
        self.fleet = Fleet(
            _addresses(config),
            self._client,
            engine_api_key=config.engine_api_key,
            most_per_engine=config.most_open_per_engine,
        )
        self.metrics = RouterMetrics()
        self._tenants = tenants_of(config.tenants, config)
        self.picker = Picker(self.fleet, self.metrics.first_token.observe, fallbacks=config.fallbacks)
        self.admission = Admission(
            most_requests=config.most_open, most_bytes=config.max_buffered_bytes, is_shared=bool(self._tenants)
        )
        self._ending = asyncio.Event()
        self._status = config.status
        self.status_url: str | None = None
        """The page's URL, once the server is open."""

    def end(self) -> None:
        """Takes no new requests; the open ones may go on for a while."""
        self._ending.set()

    async def serve(self, on_open: Callable[[str], None]) -> None:
        """Serves until `end`. `on_open` gets the address. Raises InputError if the address cannot be used."""
        most_streams = min(self._config.most_open + _SPARE_STREAMS, _MOST_STREAMS)
        logging.getLogger(_GRPC).addFilter(_is_news)
        server = grpc.aio.server(options=_options(), maximum_concurrent_rpcs=most_streams)
        external_processor_pb2_grpc.add_ExternalProcessorServicer_to_server(
            Processor(self.picker, self.admission, self._config, tenants=self._tenants), server
        )
        health = Health(lambda: bool(self.fleet.ready), self._ending)
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        async with self._telling():
            on_open(self._listen(server))
            await server.start()
            following = asyncio.create_task(self.fleet.run())
            try:
                await self._ending.wait()
            finally:
                self.admission.close()
                await server.stop(self._config.shutdown_timeout_s)
                following.cancel()
                with suppress(asyncio.CancelledError):
                    await following
                await self._client.aclose()

    @asynccontextmanager
    async def _telling(self) -> AsyncIterator[None]:
        """Serves the status over HTTP while it is open, if that is configured."""
        if self._status is None:
            yield
            return
        listener = open_socket(self._status)
        self.status_url = url_of(listener)
        routes = FleetRoutes(self.fleet, self.picker.decisions, self.metrics)
        status = StatusServer(routes, self._status)
        telling = asyncio.create_task(status.serve([listener]))
        try:
            yield
        finally:
            status.should_exit = True
            await telling
            listener.close()

    def _listen(self, server: grpc.aio.Server) -> str:
        config = self._config
        open_socket(HttpConfig(host=config.host, port=config.port)).close()  # gRPC does not say why it cannot
        host = f"[{config.host}]" if ":" in config.host else config.host
        try:
            if config.tls_certificate is None or config.tls_key is None:
                port = server.add_insecure_port(f"{host}:{config.port}")
            else:
                certificate = Certificate(config.tls_certificate, config.tls_key)
                port = server.add_secure_port(f"{host}:{config.port}", certificate.credentials())
        except RuntimeError as error:
            raise InputError(f"cannot listen on {config.host} port {config.port}: {error}") from error
        return f"{host}:{port}"


def _is_news(record: logging.LogRecord) -> bool:
    """gRPC tells with a traceback that what it was sending could not be sent any more. That a Gateway goes away in the
    middle of an answer is no error: its request has ended."""
    return record.exc_info is None or not isinstance(record.exc_info[1], grpc.aio.InternalError)


def _options() -> list[tuple[str, int]]:
    return [
        ("grpc.keepalive_time_ms", _PING_EVERY_MS),
        ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT_MS),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", _PINGED_EVERY_MS),
        ("grpc.so_reuseport", 0),  # by default a second picker takes the port too, and half of the connections
    ]


def _addresses(config: PickerConfig) -> list[EngineAddress]:
    addresses = EngineAddress.parse_all(config.engines)
    if not addresses:
        raise InputError("an endpoint picker needs an engine: give its URL with --engine")
    if ranked := [address.name for address in addresses if address.rank is not None]:
        raise InputError(f"engine {ranked[0]!r}: a Gateway does not choose a data-parallel rank; use octavo route")
    return addresses
