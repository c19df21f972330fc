"""The shell of every route that reads a body, at the end of its server."""

import asyncio

from octavo.http import Admission, BodyRoute, HttpMetrics
from octavo.server import ServerConfig

SCOPE = {"type": "http", "path": "/v1/completions", "headers": []}


class Broken(BodyRoute):
    """Its answers break off after they have begun."""

    def __init__(self, metrics):
        config = ServerConfig(model_name="m", send_timeout_s=1e-3)
        super().__init__(Admission(most_requests=1, most_bytes=1), metrics, config)

    async def _serve(self, exchange, ticket):
        async def pieces():
            raise ValueError
            yield

        await exchange.stream(pieces())


class Endless(BodyRoute):
    def __init__(self, admission):
        config = ServerConfig(model_name="m", send_timeout_s=3600)
        super().__init__(admission, HttpMetrics(), config)
        self.is_open = asyncio.Event()

    async def _serve(self, exchange, ticket):
        self.is_open.set()
        await asyncio.Event().wait()


async def never(*_):
    await asyncio.Event().wait()


async def end_of_a_request(admission):
    route = Endless(admission)
    task = asyncio.create_task(route(SCOPE, never, never))
    await route.is_open.wait()
    admission.close()
    task.cancel()
    await task


def test_a_client_that_does_not_read_holds_up_no_end():
    admission = Admission(most_requests=1, most_bytes=1)
    asyncio.run(end_of_a_request(admission))
    assert admission.num_open == 0


def test_a_client_that_does_not_read_why_its_answer_broke_off_has_gone():
    """It was an exception that no route had caught, whose traceback uvicorn logged."""
    metrics = HttpMetrics()

    async def take_the_head(message):
        if message["type"] == "http.response.body":
            await never()

    asyncio.run(Broken(metrics)(SCOPE, never, take_the_head))
    assert metrics.clients_gone._value.get() == 1
