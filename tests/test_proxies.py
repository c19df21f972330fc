"""The proxies that put faults between: a connection that one leaves behind would fail whichever test runs later."""

import gc
import socket
from contextlib import ExitStack

import pytest

from rigs.fault_proxy import FaultProxy
from rigs.network_link import NetworkLink

ROUNDS = 60


def fault_proxy(server, stack):
    return int(stack.enter_context(FaultProxy(server)).endpoint.rpartition(":")[2])


def network_link(server, stack):
    link = NetworkLink(server)
    stack.callback(link.close)
    return link.port


@pytest.mark.parametrize("proxy", [fault_proxy, network_link])
def test_a_proxy_leaves_no_connection_behind(proxy):
    """Some are just accepted, some are passed on to a server that says nothing; Python's warnings are errors."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(ROUNDS):
            with ExitStack() as clients, ExitStack() as stack:
                port = proxy(f"http://127.0.0.1:{server.getsockname()[1]}", stack)
                for request in (b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET"):
                    client = clients.enter_context(socket.create_connection(("127.0.0.1", port)))
                    client.sendall(request)
    gc.collect()
