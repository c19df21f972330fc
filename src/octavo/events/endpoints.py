"""Endpoints: their form, their rank, and whether only this machine reaches them."""

import re
from ipaddress import ip_address

from octavo.errors import InputError

_MOST_PORT = 65535
_TCP = re.compile(r"tcp://(?P<host>.+):(?P<port>\d{1,5}|\*)")
_LOCAL = re.compile(r"(ipc|inproc)://.+")


def check_endpoint(endpoint: str) -> str:
    """Returns the endpoint. InputError if its form is not that of a ZMQ endpoint."""
    tcp = _TCP.fullmatch(endpoint)
    is_good = tcp is not None and (tcp["port"] == "*" or int(tcp["port"]) <= _MOST_PORT)
    if not endpoint.isprintable() or not (is_good or _LOCAL.fullmatch(endpoint)):
        raise InputError(f"{endpoint!r} is no endpoint; write tcp://HOST:PORT, tcp://*:PORT or ipc://PATH")
    return endpoint


def is_local(endpoint: str) -> bool:
    """Whether only this machine reaches the endpoint: ipc, inproc and loopback addresses."""
    tcp = _TCP.fullmatch(endpoint)
    return tcp is None or is_loopback(tcp["host"].strip("[]"))


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine's own: localhost, 127.0.0.0/8 and ::1."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def endpoint_of_rank(endpoint: str, data_parallel_rank: int) -> str:
    """The endpoint of one data-parallel rank: tcp ports count up by the rank, other names get the suffix `_dpN`."""
    tcp = _TCP.fullmatch(endpoint)
    if data_parallel_rank == 0 or (tcp is not None and tcp["port"] in {"0", "*"}):
        return endpoint
    if tcp is None:
        return f"{endpoint}_dp{data_parallel_rank}"
    port = int(tcp["port"]) + data_parallel_rank
    if port > _MOST_PORT:
        raise InputError(
            f"rank {data_parallel_rank} of {endpoint} would be at port {port}, and {_MOST_PORT} is the last"
        )
    return f"tcp://{tcp['host']}:{port}"


def is_ipv6(endpoint: str) -> bool:
    """Whether the address is an IPv6 one; ZMQ sockets need an option for it."""
    return endpoint.startswith("tcp://[") or "::" in endpoint
