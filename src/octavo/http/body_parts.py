"""`check_parts`: refuses a body that is all lists, objects and names.

To decode one holds up everybody: Python makes an object of each part, and looks through all of them for garbage again
and again. A body of 30 MB with 7,864,318 lists stopped a server for seven seconds, in which it did not answer for its
health, so that a router gave it up. The same number of bytes as one text, or as numbers, takes less than half a second.
"""

from octavo.http.errors import bad_request

_FEWEST = 1 << 19
_BYTES_PER_PART = 64
"""Text may hold these characters too. JSON has one in 15 or fewer, so such a text of 7 MB passes."""


def check_parts(body: bytes | bytearray, *, most_bytes: int) -> None:
    """Raises ApiError. `most_bytes`: the longest body that is taken; where long ones are, they may have more parts."""
    most = max(_FEWEST, most_bytes // _BYTES_PER_PART)
    if len(body) > most and (count := sum(map(body.count, (b"[", b"{", b":")))) > most:
        raise bad_request(
            f"the body has {count:,} brackets, braces and colons, and may have {most:,}: split it into several requests"
        )
