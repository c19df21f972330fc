"""Opening and polling of ZMQ sockets, for publishers and subscribers."""

from typing import TypeAlias, cast

import zmq

from octavo.errors import InputError
from octavo.events.endpoints import is_ipv6

Context: TypeAlias = zmq.Context[zmq.Socket[bytes]]
Socket: TypeAlias = zmq.Socket[bytes]


def open_endpoint(socket: Socket, endpoint: str, *, bind: bool, max_frame_bytes: int) -> str:
    """Binds or connects, and returns the endpoint with its real port. InputError if that fails."""
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


def can_read(socket: Socket) -> bool:
    """Whether a message can be read without waiting."""
    return bool(cast("int", socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)
