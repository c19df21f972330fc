"""Where publishers listen: vLLM's rules for endpoints, so that one configuration serves either."""

import re

from octavo.errors import InputError

_MOST_PORT = 65535
_TCP = re.compile(r"tcp://(?P<host>.+):(?P<port>\d{1,5}|\*)")
_LOCAL = re.compile(r"(ipc|inproc)://.+")


def check_endpoint(endpoint: str) -> str:
    """Returns the endpoint. InputError if its form is not that of a ZMQ endpoint."""
    tcp = _TCP.fullmatch(endpoint)
    is_good = tcp is not None and (tcp["port"] == "*" or int(tcp["port"]) <= _MOST_PORT)
    if "\0" in endpoint or not (is_good or _LOCAL.fullmatch(endpoint)):
        raise InputError(f"{endpoint!r} is no endpoint; write tcp://HOST:PORT, tcp://*:PORT or ipc://PATH")
    return endpoint


def is_bound_by_publisher(endpoint: str) -> bool:
    """Whether a publisher binds the endpoint: wildcards, local ones, and ports that the system chooses."""
    is_local = endpoint.startswith(("ipc://", "inproc://"))
    return is_local or "*" in endpoint or "::" in endpoint or endpoint.endswith(":0")


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
