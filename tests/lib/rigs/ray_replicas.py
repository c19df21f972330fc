"""Replicas of a Ray Serve deployment that publish what `publishing_engine` says, and a router that can be looked at."""

import os
from importlib import import_module

from ray import serve

from octavo.ray import OctavoRouter
from rigs.publishing_engine import TOKENS, WITH_STATE, WITHOUT_STATE, Publishing, hashes_of, in_store

ROUTERS = []
"""Of this process, the newest last."""
STORED_TOKENS = TOKENS[::-1]
"""What the first replica has put into the store of all."""


class SeenRouter(OctavoRouter):
    """Can be found by a test."""

    def initialize_state(self, **options):
        super().initialize_state(**options)
        import_module(__name__).ROUTERS.append(self)  # Ray makes a copy of the class, and of its globals


class Replica:
    """The first of them has lost its recurrent state, the second one has less, and further ones have nothing."""

    def __init__(self, folder):
        self.name = serve.get_replica_context().replica_id.unique_id
        self.role, events, self._per_token_s = next(role for role in _roles() if _is_first(f"{folder}/{role[0]}"))
        self._publishing = Publishing(events)

    def record_routing_stats(self):
        endpoints = {"kv_events_endpoints": {"0": self._publishing.events}, "replay_endpoint": self._publishing.replay}
        return {"octavo": endpoints | {"stores": {"redis": "pool"}, "load_speeds": {"redis": [0, self._per_token_s]}}}

    async def __call__(self, *, token_ids):
        return self.name, self.role

    async def die(self, name, *, token_ids):
        if self.name == name:  # Ray may try the call at another one
            os._exit(1)


def _roles():
    """Their names, events, and seconds to load a token from the store."""
    yield "without_state", [*WITHOUT_STATE, *in_store(hashes_of(STORED_TOKENS))], 1.0
    yield "with_state", WITH_STATE, 1e-6
    for number in range(100):
        yield f"new_{number}", [], 1.0


def _is_first(file):
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
