"""`RedisSuite`: the contract of a tier, for Redis and Valkey; and what lies on their servers."""

from contextlib import contextmanager
from hashlib import sha256

from redis import Redis

from octavo.testing import tier_driver
from octavo.tiers import TierContext, spec_from_config
from rigs.objects_suite import PATIENT, ObjectsSuite


class RedisSuite(ObjectsSuite):
    """Each folder is a family of its own on the one server."""

    def config(self, folder):
        return {"url": self.url}

    def open_tier(self, folder, namespace):
        spec = spec_from_config({"type": "redis", **PATIENT, **self.config(folder)})
        family = sha256(str(folder).encode() + namespace).digest()[:16]
        return spec.build(
            TierContext(
                namespace=namespace,
                family=family,
                max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES,
                identity={"model": "org/kiel"},
            )
        )


@contextmanager
def emptied(redis):
    """The server itself, without values."""
    with Redis.from_url(redis["URL"]) as server:
        server.flushdb()
        yield server


def values(server):
    """The names of all chunks."""
    return list(server.scan_iter("octavo:*:*:*:*:*"))


def descriptions(server):
    return list(server.scan_iter("octavo:*:names:*"))
