"""A server that is asked to end."""

import asyncio
import errno
import logging
import socket

import pytest

from octavo.http import HttpConfig, SignalledServer
from octavo.http.accepting import tell_full


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
        server = SignalledServer(HttpConfig(), lambda _: app)
        server.config.timeout_graceful_shutdown = 0
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


class Full(socket.socket):
    """Listens in a process that may open no more files."""

    def listen_until(self, most_tries):
        self.bind(("127.0.0.1", 0))
        self.listen()
        self.is_full, self._tries_left, self.was_tried = True, most_tries, asyncio.Event()

    def accept(self):
        self._tries_left -= 1
        if not self._tries_left:
            self.was_tried.set()
        if self.is_full:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def serve_while_full(*, ends_full):
    """Serves a client that comes while there is no file for it."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"there"})

    with Full(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.listen_until(1000)
        server = SignalledServer(HttpConfig(), lambda _: app)
        serving = asyncio.create_task(server.serve([listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        await listener.was_tried.wait()
        if not ends_full:
            listener.is_full = False
            assert (await reader.read()).endswith(b"there")
        server.should_exit = True
        await serving
        writer.close()


@pytest.mark.parametrize("ends_full", [False, True])
def test_a_process_that_may_open_no_more_files_says_so_once(caplog, monkeypatch, ends_full):
    monkeypatch.setattr("asyncio.constants.ACCEPT_RETRY_DELAY", 0)
    asyncio.run(serve_while_full(ends_full=ends_full))
    (told,) = caplog.messages
    assert "(Too many open files): raise the limit of open files" in told


@pytest.mark.parametrize("is_ending", [False, True])
def test_what_else_goes_wrong_in_a_server_is_told_as_before(lost_errors, is_ending):
    async def fail(*, with_handler):
        loop, told = asyncio.get_running_loop(), []
        if with_handler:
            loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        tell_full(loop, lambda: is_ending)
        loop.call_soon(int, "none")
        await asyncio.sleep(0)
        return told

    (error,) = asyncio.run(fail(with_handler=True))
    assert isinstance(error, ValueError)
    assert not lost_errors
    assert not asyncio.run(fail(with_handler=False))
    assert "invalid literal" in lost_errors.pop()
