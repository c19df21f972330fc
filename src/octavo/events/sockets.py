"""Opening and polling of ZMQ sockets, for publishers and subscribers."""

import os
from math import ceil
from typing import TypeAlias, cast

import zmq

from octavo.errors import InputError
from octavo.events.endpoints import is_ipv6

Context: TypeAlias = zmq.Context[zmq.Socket[bytes]]
Socket: TypeAlias = zmq.Socket[bytes]

_MAX_MS = 2**31 - 1
_FREE_FILES = 32
"""More than a context and its sockets take, so that others find some too."""


def new_context() -> Context:
    """OSError if the process may open too few files."""
    check_files()
    return zmq.Context()


def check_files() -> None:
    """OSError if the process may open too few files for more sockets. libzmq ends the process where it lacks one in its
    own work."""
    taken: list[int] = []
    try:
        for _ in range(_FREE_FILES // 2):
            taken += os.pipe()
    finally:
        for file in taken:
            os.close(file)


def open_endpoint(socket: Socket, endpoint: str, *, bind: bool, max_frame_bytes: int, linger_s: float = 0.0) -> str:
    """Binds or connects, and returns the endpoint with its real port. InputError if that fails.

    Once its context is destroyed, a socket waits at most `linger_s` for messages that are not sent yet. This is set
    before it is bound, since a connection that it accepts keeps what was set then: without it, one that breaks while
    the socket is closed can make `destroy` wait for ever.
    """
    socket.setsockopt(zmq.LINGER, linger_ms(linger_s))
    socket.setsockopt(zmq.MAXMSGSIZE, max_frame_bytes)
    socket.setsockopt(zmq.IPV6, int(is_ipv6(endpoint)))
    try:
        if not bind:
            socket.connect(endpoint)
            return endpoint
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise InputError(f"cannot {'bind' if bind else 'connect to'} {endpoint}: {error.strerror}") from error
    if not endpoint.startswith("tcp://") or not endpoint.endswith((":0", ":*")):
        return endpoint
    chosen = str(socket.getsockopt_string(zmq.LAST_ENDPOINT))
    return endpoint.rpartition(":")[0] + ":" + chosen.rpartition(":")[2]


def linger_ms(seconds: float) -> int:
    return min(ceil(1000 * seconds), _MAX_MS)


def can_read(socket: Socket) -> bool:
    """Whether a message can be read without waiting."""
    return bool(cast("int", socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)
