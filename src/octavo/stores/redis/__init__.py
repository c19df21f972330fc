"""Redis and Valkey as a tier: a pool of memory on a network, one value for each chunk.

client     finds, puts and gets values, in few round trips
keeper     a server without an engine
config, spec
"""

from octavo.stores.redis.client import RedisClient
from octavo.stores.redis.config import RedisConfig
from octavo.stores.redis.keeper import RedisKeeper
from octavo.stores.redis.spec import RedisSpec

__all__ = ["RedisClient", "RedisConfig", "RedisKeeper", "RedisSpec"]
