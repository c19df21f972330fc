"""`RecordCipher`: a chunk's bytes under AES-256-GCM, each record with a key and a nonce of its own.

    24 random bytes:   [ 12: with the tier's key, they give the record's key ][ 12: the nonce under that key ]

So a pair of key and nonce would repeat only if 192 random bits did. Bound to the bytes (as associated data): the
namespace, the chunk's key, its mask of held blocks and its length. Wherever a record lies, it cannot be taken for
another chunk's.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Any

from octavo.chunks import OffloadKey
from octavo.errors import InputError
from octavo.extras import load_package
from octavo.tiers.disk.layout import KEY_ID_BYTES, NONCE_BYTES

KEY_VARIABLE = "OCTAVO_DISK_KEY"
_KEY_BYTES = 32
_MOST_KEY_TEXT = 4096
_SALT_BYTES = 12
_BOUND = Struct("<16sqQ")
_RECORD_KEY, _KEY_ID, _NAMESPACE = b"octavo record", b"octavo key id", b"octavo encrypted"


class RecordCipher:
    """One key, which threads may share."""

    def __init__(self, key: bytes) -> None:
        load_package("cryptography", "encryption")
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._key = key
        self._make_aead: Any = AESGCM
        self._invalid = InvalidTag
        self.key_id = blake2b(key=key, digest_size=KEY_ID_BYTES, person=_KEY_ID).digest()
        """The key's name in records. It does not reveal the key."""

    def namespace(self, namespace: bytes) -> bytes:
        """The namespace of chunks that this key encrypts. An engine with another key, or with none, has a different
        one."""
        return blake2b(namespace + self.key_id, digest_size=len(namespace), person=_NAMESPACE).digest()

    def encrypt(self, data: memoryview, into: memoryview, identity: tuple[OffloadKey, bytes, int]) -> bytes:
        """Encrypts into `into`, the tag last. Returns the nonce. `identity` is key, namespace and held blocks."""
        nonce = os.urandom(NONCE_BYTES)
        self._aead(nonce).encrypt_into(nonce[_SALT_BYTES:], data, _bound(identity, len(data)), into)
        return nonce

    def decrypt(
        self, data: memoryview, into: memoryview, nonce: bytes, identity: tuple[OffloadKey, bytes, int]
    ) -> bool:
        """False if the bytes were not encrypted under this key and identity: then `into` holds nothing that may be
        used."""
        try:
            self._aead(nonce).decrypt_into(nonce[_SALT_BYTES:], data, _bound(identity, len(into)), into)
        except self._invalid:
            return False
        return True

    def _aead(self, nonce: bytes) -> Any:
        return self._make_aead(
            blake2b(nonce[:_SALT_BYTES], key=self._key, digest_size=_KEY_BYTES, person=_RECORD_KEY).digest()
        )


def _bound(identity: tuple[OffloadKey, bytes, int], length: int) -> bytes:
    key, namespace, held_blocks = identity
    return _BOUND.pack(namespace, held_blocks, length) + key


def find_cipher(
    key_file: Path | None,
    environment: Mapping[str, str],
    *,
    variable: str = KEY_VARIABLE,
    what: str = "disk tier",
) -> RecordCipher | None:
    """The cipher of the key in a file or in the environment's `variable`; None for no encryption."""
    if key_file is not None:
        return RecordCipher(_parse_key(_read_key(key_file, what), f"{what}: key_file {key_file}"))
    if variable in environment:
        return RecordCipher(_parse_key(environment[variable], f"{what}: {variable}"))
    return None


def _read_key(key_file: Path, what: str) -> str:
    """The text of a file, which may be any: a device without end, or a key's bytes themselves, which are refused as
    text is that is no key."""
    try:
        with key_file.open("rb") as file:
            return file.read(_MOST_KEY_TEXT).decode(errors="replace")
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        problem = getattr(error, "strerror", None) or error
        raise InputError(f"{what}: key_file {key_file} cannot be read: {problem}") from error


def _parse_key(text: str, source: str) -> bytes:
    """32 bytes, from hex or base64. The text itself is never told."""
    text = text.strip()
    for decode in (bytes.fromhex, lambda value: base64.b64decode(value, validate=True)):
        try:
            key = decode(text)
        except (ValueError, binascii.Error):
            continue
        if len(key) == _KEY_BYTES:
            return key
    raise InputError(f"{source} must hold {_KEY_BYTES} bytes in hex or base64: `openssl rand -hex 32`")
