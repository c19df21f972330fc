"""`Health`: gRPC's health service, which Gateways and Kubernetes ask."""

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from octavo.settings import shown

_INTERVAL_S = 1.0
_READY = frozenset({"", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"})
_ALIVE = "liveness"


class Health(health_pb2_grpc.HealthServicer):
    """Alive while it answers; ready while an engine takes requests."""

    def __init__(self, is_ready: Callable[[], bool]) -> None:
        self._is_ready = is_ready

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
        """The state now, and whenever it changes."""
        told = None
        while True:
            if (status := self._status(request.service)) != told:
                told = status
                yield health_pb2.HealthCheckResponse(status=status)
            await asyncio.sleep(_INTERVAL_S)

    def _status(self, service: str) -> int:
        if service == _ALIVE or (service in _READY and self._is_ready()):
            return int(health_pb2.HealthCheckResponse.SERVING)
        if service in _READY:
            return int(health_pb2.HealthCheckResponse.NOT_SERVING)
        return int(health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
