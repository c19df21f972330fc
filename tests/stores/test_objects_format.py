"""The bytes of an object are those of version 1, which stores out there are full of."""

from pathlib import Path

import pytest
from xxhash import xxh3_128_digest

from octavo.chunks import ALL_BLOCKS
from octavo.stores import Envelopes, Finding, examine
from octavo.stores.objects import layout
from octavo.testing import tier_driver
from octavo.tiers.disk import RecordCipher

GOLDEN = Path(__file__).parent / "golden" / "object-v1.octavo"
CHUNKS = [(tier_driver.key(1), ALL_BLOCKS, b"a chunk"), (tier_driver.key(2), 0b0101, b"two of its blocks")]


def seal(envelopes, key, mask, data):
    draft = envelopes.draft(len(data))
    draft.payload[:] = data
    return envelopes.seal(draft, key, mask)


def test_an_object_is_written_as_ever():
    envelopes = Envelopes(tier_driver.NAMESPACE)
    sealed = [(key, mask, len(data), seal(envelopes, key, mask, data)) for key, mask, data in CHUNKS]
    assert b"".join(layout.pack_object(tier_driver.NAMESPACE, 1_700_000_000, sealed)) == GOLDEN.read_bytes()


def test_an_object_is_read_as_ever():
    packed = memoryview(GOLDEN.read_bytes())
    index = layout.parse_tail(packed, len(packed), tier_driver.NAMESPACE)
    assert [(chunk.key, chunk.held_blocks) for chunk in index.chunks] == [chunk[:2] for chunk in CHUNKS]
    envelopes = Envelopes(tier_driver.NAMESPACE)
    for entry, (key, mask, data) in zip(index.chunks, CHUNKS, strict=True):
        envelope = packed[entry.offset : entry.offset + entry.length]
        assert envelopes.open(envelope, key, mask, len(data)) == data
        assert Envelopes(tier_driver.OTHER_NAMESPACE).open(envelope, key, mask, len(data)) is None
    assert layout.parse_tail(packed, len(packed), tier_driver.OTHER_NAMESPACE) is None


def test_an_index_cannot_ask_for_more_than_its_chunks():
    """A forged one could have a reader fetch gigabytes before it verifies them."""
    key, mask, data = CHUNKS[0]
    envelope = memoryview(bytes(10_000))
    forged = memoryview(b"".join(layout.pack_object(tier_driver.NAMESPACE, 0, [(key, mask, len(data), envelope)])))
    assert layout.parse_tail(forged, len(forged), tier_driver.NAMESPACE) is None


@pytest.mark.parametrize("key", [b"", bytes(65)])
def test_an_index_cannot_name_what_is_no_chunk(key):
    _, mask, data = CHUNKS[0]
    sealed = seal(Envelopes(tier_driver.NAMESPACE), key, mask, data)
    forged = memoryview(b"".join(layout.pack_object(tier_driver.NAMESPACE, 0, [(key, mask, len(data), sealed)])))
    assert layout.parse_tail(forged, len(forged), tier_driver.NAMESPACE) is None


def test_what_was_made_without_the_key_is_told_from_damage():
    """Its checksum is right, as anybody can make one."""
    key, mask, data = CHUNKS[0]
    cipher = RecordCipher(bytes(32))
    envelopes = Envelopes(tier_driver.NAMESPACE, cipher)
    envelope = seal(envelopes, key, mask, data)
    identity = (key, envelopes.namespace, mask)

    def found(cipher):
        return examine(envelope, identity, len(data), cipher)

    assert (found(cipher), found(None), found(RecordCipher(bytes(31) + b"1"))) == (
        Finding.AUTHENTIC,
        Finding.WHOLE,
        Finding.WHOLE,
    )
    envelope[176] ^= 1
    assert found(cipher) is found(None) is Finding.DAMAGED
    envelope[160:176] = xxh3_128_digest(xxh3_128_digest(envelope[:160]) + xxh3_128_digest(envelope[176:]))
    assert (found(cipher), found(None)) == (Finding.FORGED, Finding.WHOLE)
    assert envelopes.open(envelope, key, mask, len(data)) is None
