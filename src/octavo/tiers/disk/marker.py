"""The marker of a reset: "segments of this namespace below this number are dead".

A reset deletes many files, which takes long and can fail half way. The marker is one small durable write that comes
first; it goes when the last file has gone.
"""

from struct import Struct

from octavo.tiers.disk.io import DiskIO, read_block, replace_file
from octavo.tiers.disk.layout import ALIGNMENT, VERSION, has_checksum, with_checksum

_MARKER = Struct("<16s8sH6x16sQ")
_MAGIC = b"OctavoRs"
MARKER_BYTES = ALIGNMENT
MARKER_PREFIX = "reset-"


def marker_name(namespace: bytes) -> str:
    return f"{MARKER_PREFIX}{namespace.hex()}"


def write_marker(io: DiskIO, namespace: bytes, floor: int) -> None:
    block = with_checksum(_MARKER.pack(bytes(16), _MAGIC, VERSION, namespace, floor))
    replace_file(io, marker_name(namespace), block)


def read_marker(io: DiskIO, namespace: bytes) -> int:
    """The floor; 0 where there was no reset. OSError if there was one and nobody knows which."""
    try:
        block = read_block(io, marker_name(namespace))
    except FileNotFoundError:
        return 0
    if len(block) < MARKER_BYTES or not has_checksum(block):
        return _ALL
    _, magic, version, marked, floor = _MARKER.unpack_from(block)
    return int(floor) if (magic, version, marked) == (_MAGIC, VERSION, namespace) else _ALL


_ALL = 1 << 62
"""A damaged marker: something was reset, so everything is."""
