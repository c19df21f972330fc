"""Descriptions of namespaces: written as ever, read whatever they hold, and never in the way of chunks."""

import asyncio
import json
from pathlib import Path

import obstore
import pytest

from octavo.chunks import ALL_BLOCKS, OffloadKey
from octavo.stores import Description, Envelopes, OutgoingChunk, open_description, seal_description
from octavo.stores.objects import ObjectsClient, ObjectsConfig, open_store
from octavo.testing import tier_driver
from octavo.tiers.disk import RecordCipher

GOLDEN = Path(__file__).parent / "golden" / "description-v1.octavo"
PARTS = {"model": "org/kiel", "plan": "2 full_attention", "dtype": "bfloat16"}
NAMESPACE = tier_driver.NAMESPACE
FAMILY = b"f" * 16


def opened(data, cipher=None, namespace=NAMESPACE):
    return open_description(data, namespace.hex(), cipher)


def sealed(text):
    """Its envelope is right, whoever wrote it."""
    envelopes = Envelopes(NAMESPACE)
    draft = envelopes.draft(len(text))
    draft.payload[:] = text
    return bytes(envelopes.seal(draft, OffloadKey(b"octavo description"), ALL_BLOCKS))


def test_it_is_written_and_read_as_ever():
    assert seal_description(PARTS, Envelopes(NAMESPACE)) == GOLDEN.read_bytes()
    assert opened(GOLDEN.read_bytes()) == PARTS
    assert opened(GOLDEN.read_bytes(), RecordCipher(bytes(32))) == PARTS
    assert opened(GOLDEN.read_bytes(), namespace=tier_driver.OTHER_NAMESPACE) == {}


def test_damage_shows():
    golden = GOLDEN.read_bytes()
    for index in range(len(golden)):
        assert opened(golden[:index] + bytes([golden[index] ^ 1]) + golden[index + 1 :]) == {}
        assert opened(golden[:index]) == {}


def test_with_a_key_it_is_encrypted():
    cipher = RecordCipher(b"k" * 32)
    packed = seal_description(PARTS, Envelopes(NAMESPACE, cipher))
    namespace = cipher.namespace(NAMESPACE)
    assert b"kiel" not in packed
    assert opened(packed, cipher, namespace) == PARTS
    assert opened(packed, None, namespace) == opened(packed, RecordCipher(bytes(32)), namespace) == {}


@pytest.mark.parametrize("text", [b"", b"[", b"[1]", b'"x"', b"null", b"[" * 7000, b"\xff", b'{"model": 1}'])
def test_what_is_not_what_engines_write_is_empty(text):
    assert opened(sealed(text)) == {}


def test_what_others_wrote_is_short_and_printable():
    hostile = {"model": "\x1b[2J\r\n\u202e\ud800" + "x" * 4000, "a b": "x", "dtype": ["x"]}
    (told,) = opened(sealed(json.dumps(hostile).encode())).items()
    assert told == ("model", "?[2J????" + "x" * 192 + "...")


def test_it_has_a_bounded_size():
    parts = PARTS | {"model": "\U0001f600" * 10_000, "plan": "\U0001f600" * 10_000}
    packed = seal_description(parts, Envelopes(NAMESPACE))
    assert len(packed) < 8 << 10
    assert opened(packed)["model"] == "\U0001f600" * 200


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("org/kiel", "org/kiel"),
        ("org/kiel@refs/pr/1", "org/kiel@refs/pr/1"),
        ("/home/alice/kiel/", "kiel"),
        ("~/models/kiel", "kiel"),
        ("../kiel", "kiel"),
        ("s3://bucket/models/kiel", "kiel"),
        ("/home/alice/kiel, org/draft@main", "kiel, org/draft@main"),
    ],
)
def test_no_folder_is_told(model, told):
    assert opened(seal_description({"model": model}, Envelopes(NAMESPACE)))["model"] == told


class Engine:
    """A client over a folder, and its clock."""

    def __init__(self, folder):
        self.now = 0.0
        self.path = folder / FAMILY.hex() / "names" / NAMESPACE.hex()
        self.client = ObjectsClient(
            open_store(ObjectsConfig.from_mapping({"url": f"file://{folder}"})),
            namespace=NAMESPACE,
            family=FAMILY,
            description=Description(b"a description", lambda: self.now),
        )
        self.client.expect(tier_driver.ALL_KEYS)

    def store(self, number):
        envelope = memoryview(bytes(500))
        chunk = OutgoingChunk(tier_driver.key(number), ALL_BLOCKS, 300, envelope, b"", replaces=False)
        (held,) = asyncio.run(self.client.put([chunk], lambda: True))
        return held is not None


def test_it_is_stored_with_the_first_chunks_and_again_once_it_is_gone(tmp_path):
    engine = Engine(tmp_path)
    assert not engine.path.exists()
    assert engine.store(0)
    assert engine.path.read_bytes() == b"a description"
    engine.path.unlink()
    engine.now = 3599.0
    assert engine.store(1)
    assert not engine.path.exists()
    engine.now = 3601.0
    assert engine.store(2)
    assert engine.path.exists()


def test_chunks_are_stored_where_it_cannot_be(tmp_path):
    engine = Engine(tmp_path)
    obstore.put(open_store(ObjectsConfig(url=f"file://{tmp_path}")), f"{FAMILY.hex()}/names", b"a file in its way")
    assert engine.store(0)
    assert not engine.path.exists()
