"""Encryption at rest: the contract's suite with a key, and that nothing is read without it or under another."""

import base64
import logging
from pathlib import Path

import pytest

from octavo.chunks import ALL_BLOCKS
from octavo.errors import InputError
from octavo.testing import NAMESPACE, tier_driver
from octavo.tiers.disk.cipher import KEY_VARIABLE, RecordCipher, find_cipher
from octavo.tiers.disk.layout import RECORD_HEADER_BYTES, TAG_BYTES, parse_record_header
from rigs.disk_suite import DiskTierSuite

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
WANTED = tier_driver.chunks(range(3))


class TestEncryptedTier(DiskTierSuite):
    @pytest.fixture(autouse=True)
    def key(self, monkeypatch):
        monkeypatch.setenv(KEY_VARIABLE, KEY.hex())

    def test_nothing_of_a_chunk_is_on_the_disk(self, tmp_path):
        with self.driver(tmp_path) as driver:
            driver.store(WANTED)
        (segment,) = (tmp_path / "tier").glob("segment-*")
        written = segment.read_bytes()
        assert all(chunk.content[:24] not in written for chunk in WANTED)


def records_of(disk):
    """Header and bytes of each record."""
    (segment,) = disk.segments()
    data = segment.read_bytes()
    for offset in range(4096, len(data), 4096):
        header = parse_record_header(data[offset : offset + 4096])
        if header is not None:
            yield header, data[offset + RECORD_HEADER_BYTES :][: header.length + TAG_BYTES]


def test_no_nonce_comes_twice(disk):
    driver = disk.open(cipher=RecordCipher(KEY), size=1 << 21, segment_size=1 << 19)
    for _ in range(30):
        driver.store(tier_driver.chunks([0]))
    assert driver.tier.flush(60.0)
    found = list(records_of(disk))
    assert len({header.nonce for header, _ in found}) == len({data for _, data in found}) == len(found) == 30
    assert {header.key_id for header, _ in found} == {RecordCipher(KEY).key_id}


@pytest.mark.parametrize("other", [None, OTHER_KEY])
def test_a_wrong_or_missing_key_is_a_miss_and_is_told_once(disk, caplog, other):
    disk.open(cipher=RecordCipher(KEY)).store(WANTED)
    disk.close()
    cipher = RecordCipher(other) if other else None
    with caplog.at_level(logging.WARNING):
        driver = disk.open(cipher=cipher)
    assert driver.found(range(3)) == [0, 0, 0]
    lines = [record.getMessage() for record in caplog.records]
    given = f"key {cipher.key_id.hex()}" if cipher else "no key"
    assert len(lines) == 1
    assert f"encrypted under key {RecordCipher(KEY).key_id.hex()}, and {given} was given" in lines[0]
    assert driver.store(WANTED) == frozenset(), "it goes on with its own"
    driver.tier.close()
    again = disk.open(cipher=RecordCipher(KEY))
    assert again.found(range(3)) == [ALL_BLOCKS] * 3
    assert again.load(WANTED) == frozenset()


def test_what_is_not_encrypted_is_not_found_with_a_key(disk):
    disk.open().store(WANTED)
    disk.close()
    assert disk.open(cipher=RecordCipher(KEY)).found(range(3)) == [0, 0, 0]


def test_what_moves_to_a_newer_segment_stays_readable(disk):
    driver = disk.open(cipher=RecordCipher(KEY), size=1 << 18, segment_size=1 << 16)
    driver.store(WANTED[:1])
    for number in range(10, 130):
        assert driver.store(tier_driver.chunks([number])) == frozenset()
        driver.tier.touch([WANTED[0].key])
    assert driver.tier.status().counters["reinserted"] > 3
    assert driver.load(WANTED[:1]) == frozenset()


@pytest.mark.parametrize("change", ["key", "namespace", "held_blocks", "length", "nonce", "bit", "tag"])
def test_bytes_are_bound_to_what_they_are_of(change):
    cipher, data = RecordCipher(KEY), bytes(range(100))
    encrypted = bytearray(len(data) + TAG_BYTES)
    nonce = cipher.encrypt(memoryview(data), memoryview(encrypted), (WANTED[0].key, NAMESPACE, 5))
    identity, length = [WANTED[0].key, NAMESPACE, 5], len(data)
    match change:
        case "key":
            identity[0] = WANTED[1].key
        case "namespace":
            identity[1] = bytes(16)
        case "held_blocks":
            identity[2] = 4
        case "length":
            encrypted, length = encrypted[:-1], length - 1
        case "nonce":
            nonce = nonce[:-1] + bytes([nonce[-1] ^ 1])
        case "bit":
            encrypted[7] ^= 1
        case "tag":
            encrypted[-1] ^= 1
    into = memoryview(bytearray(length))
    assert not cipher.decrypt(memoryview(encrypted), into, nonce, tuple(identity))


class TestKey:
    def test_from_a_file_or_the_environment(self, tmp_path):
        file = tmp_path / "key"
        for text in (KEY.hex(), base64.b64encode(KEY).decode(), f"{KEY.hex().upper()}\n"):
            file.write_text(text)
            assert find_cipher(file, {}).key_id == RecordCipher(KEY).key_id
            assert find_cipher(None, {KEY_VARIABLE: text}).key_id == RecordCipher(KEY).key_id
        assert find_cipher(file, {KEY_VARIABLE: OTHER_KEY.hex()}).key_id == RecordCipher(KEY).key_id
        assert find_cipher(None, {}) is None

    @pytest.mark.parametrize("text", ["", "secret", KEY[:31].hex(), base64.b64encode(KEY + b"1").decode()])
    def test_a_wrong_one_is_named_and_not_told(self, text):
        with pytest.raises(InputError, match="OCTAVO_DISK_KEY must hold 32 bytes in hex or base64") as error:
            find_cipher(None, {KEY_VARIABLE: text})
        assert not text or text not in str(error.value)

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(InputError, match=r"key_file .*missing cannot be read: No such file or directory$"):
            find_cipher(tmp_path / "missing", {})

    def test_a_file_of_the_bytes_themselves_or_without_end(self, tmp_path):
        """No byte of a key stands in the message."""
        (tmp_path / "raw").write_bytes(bytes([0xF1]) * 32)
        for file in (tmp_path / "raw", Path("/dev/zero")):
            with pytest.raises(InputError, match=r"key_file \S+ must hold 32 bytes in hex or base64: `openssl"):
                find_cipher(file, {})
