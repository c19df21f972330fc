"""Mooncake Store as a tier: a pool of the memory of many machines, one object for each chunk.

Inside:

    client         finds, puts and gets objects, in few round trips
    process        the process that has Mooncake's library, and the memory between; `worker` is what it runs
    config, spec   what a person configures, and the tier that is made of it
"""

from octavo.stores.mooncake.client import MooncakeClient
from octavo.stores.mooncake.config import MooncakeConfig
from octavo.stores.mooncake.spec import MooncakeSpec

__all__ = ["MooncakeClient", "MooncakeConfig", "MooncakeSpec"]
