"""The marker of a reset: "segments of this family below this number are dead".

A reset deletes many files, which takes long and can fail half way. The marker is one small durable write that comes
first; it goes when the last file has gone. A family is all namespaces of one model: under whatever codec, key or layout
its chunks were written, nobody finds them again.
"""

from struct import Struct

from octavo.tiers.disk.io import DiskIO, read_block, replace_file
from octavo.tiers.disk.layout import ALIGNMENT, VERSION, has_checksum, with_checksum

_MARKER = Struct("<16s8sH6x16sQ")
_MAGIC = b"OctavoRs"
MARKER_BYTES = ALIGNMENT
MARKER_PREFIX = "reset-"


def marker_name(family: bytes) -> str:
    return f"{MARKER_PREFIX}{family.hex()}"


def write_marker(io: DiskIO, family: bytes, floor: int) -> None:
    block = with_checksum(_MARKER.pack(bytes(16), _MAGIC, VERSION, family, floor))
    replace_file(io, marker_name(family), block)


def read_marker(io: DiskIO, family: bytes) -> int:
    """The floor; 0 if there was no reset. OSError if there was one and its floor cannot be read."""
    try:
        block = read_block(io, marker_name(family))
    except FileNotFoundError:
        return 0
    if len(block) < MARKER_BYTES or not has_checksum(block):
        return _ALL
    _, magic, version, marked, floor = _MARKER.unpack_from(block)
    return int(floor) if (magic, version, marked) == (_MAGIC, VERSION, family) else _ALL


_ALL = 1 << 62
"""The floor of a damaged marker: something was reset, so everything is."""
