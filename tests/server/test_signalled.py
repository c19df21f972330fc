"""A server that is asked to end."""

import asyncio
import logging
import socket

import uvicorn

from octavo.server import SignalledServer


async def end_while_open(most_open):
    """Ends a server with so many requests open that it gives up at once."""
    open_ones = asyncio.Semaphore(0)

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        open_ones.release()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=0)
        server = SignalledServer(config)
        serving = asyncio.create_task(server.serve([listener]))
        clients = []
        for _ in range(most_open):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await open_ones.acquire()
            clients.append((reader, writer))
        server.should_exit = True
        await serving
        for reader, writer in clients:
            assert b"begun" in await reader.read()
            writer.close()


def test_requests_that_are_given_up_at_the_end_are_no_errors(caplog):
    logger = logging.getLogger("uvicorn.error")
    filters = list(logger.filters)
    with caplog.at_level(logging.ERROR):
        asyncio.run(end_while_open(3))
    logger.filters = filters
    assert caplog.messages == []
