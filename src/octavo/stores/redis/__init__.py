"""Redis and Valkey as a tier: a pool of memory on a network, one value for each chunk.

Inside:

    client         finds, puts and gets values, in few round trips
    keeper         a server without an engine
    config, spec   what a person configures, and the tier that is made of it
"""

from octavo.stores.redis.client import RedisClient
from octavo.stores.redis.config import RedisConfig
from octavo.stores.redis.keeper import RedisKeeper
from octavo.stores.redis.spec import RedisSpec

__all__ = ["RedisClient", "RedisConfig", "RedisKeeper", "RedisSpec"]
