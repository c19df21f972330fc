"""Whose a chunk is: the digest of the salt under which requests share what is cached."""

from hashlib import blake2b

NO_TENANT = b""
"""Of requests without a salt."""
TENANT_BYTES = 8


def name_tenant(cache_salt: str | None) -> bytes:
    """How a chunk names its tenant. Keys are told apart by their block hashes, which contain the salt itself; this only
    says whose chunks are to be counted or cleared."""
    if cache_salt is None:
        return NO_TENANT
    salt = cache_salt.encode("utf-8", "surrogatepass")
    return blake2b(salt, digest_size=TENANT_BYTES, person=b"octavo tenant").digest()
