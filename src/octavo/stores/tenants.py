"""The tenant of a chunk, as the chunk's name in a store tells it."""

from octavo.chunks import NO_TENANT

NOBODY = "shared"
"""The word for no tenant."""
TENANT_WORD = rf"[0-9a-f]+|{NOBODY}"
"""A pattern of these words."""


def tenant_word(tenant: bytes) -> str:
    return tenant.hex() or NOBODY


def tenant_of(word: str) -> bytes:
    return NO_TENANT if word == NOBODY else bytes.fromhex(word)
