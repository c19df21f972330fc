"""Reading an object to its last byte, and checking all that needs no key."""

from typing import Any

from octavo.chunks import OffloadKey
from octavo.stores.envelope import is_sound
from octavo.stores.objects.inventory import StoredObject
from octavo.stores.objects.layout import TAIL_BYTES, parse_tail


def find_damage(store: Any, found: StoredObject) -> str | None:
    """What is wrong with an object; None for one that is whole, and for one that has gone meanwhile."""
    import obstore

    try:
        packed = memoryview(obstore.get(store, found.path).bytes())
    except FileNotFoundError:
        return None
    namespace = bytes.fromhex(found.namespace)
    index = parse_tail(packed[-TAIL_BYTES:], len(packed), namespace)
    if index is None:
        return "its index is damaged"
    for number, entry in enumerate(index.chunks):
        envelope = packed[entry.offset : entry.offset + entry.length]
        if not is_sound(envelope, namespace, OffloadKey(entry.key), entry.held_blocks, entry.num_bytes):
            return f"chunk {number} of {len(index.chunks)} is damaged"
    return None
