"""gRPC's health service, without a socket."""

import asyncio

import pytest

pytest.importorskip("grpc_health", reason="needs octavo[epp]: make test-fleet")

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from octavo.gateway.health import Health

pytestmark = pytest.mark.fleet


@pytest.mark.parametrize(
    ("service", "states"),
    [
        ("readiness", [HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING]),
        ("liveness", [HealthCheckResponse.SERVING]),
    ],
)
def test_who_watches_is_told_the_end_and_does_not_hold_it_up(service, states):
    async def watch():
        ending = asyncio.Event()
        told = Health(lambda: True, ending).Watch(HealthCheckRequest(service=service), None)
        first = await anext(told)
        ending.set()
        return [first.status, *[answer.status async for answer in told]]

    assert asyncio.run(watch()) == states
