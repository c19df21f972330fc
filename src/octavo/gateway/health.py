"""`Health`: gRPC's health service, which Gateways and Kubernetes ask."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from octavo.settings import shown

_INTERVAL_S = 1.0
_READY = frozenset({"", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"})
_ALIVE = "liveness"


class Health(health_pb2_grpc.HealthServicer):
    """Alive while it answers; ready while an engine takes requests, until the picker is ending."""

    def __init__(self, is_ready: Callable[[], bool], ending: asyncio.Event) -> None:
        self._is_ready = is_ready
        self._ending = ending

    async def Check(  # noqa: N802 - the protocol's name
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """The state now."""
        status = self._status(request.service)
        if status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {shown(request.service)} here")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(  # noqa: N802 - the protocol's name
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """The state now, and whenever it changes. It ends with the picker, which waits for all that is open."""
        told, is_last = None, False
        while not is_last:
            is_last = self._ending.is_set()
            if (status := self._status(request.service)) != told:
                told = status
                yield health_pb2.HealthCheckResponse(status=status)
            with suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL_S):
                    await self._ending.wait()

    def _status(self, service: str) -> int:
        is_ready = self._is_ready() and not self._ending.is_set()
        if service == _ALIVE or (service in _READY and is_ready):
            return int(health_pb2.HealthCheckResponse.SERVING)
        if service in _READY:
            return int(health_pb2.HealthCheckResponse.NOT_SERVING)
        return int(health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
