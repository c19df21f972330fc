"""Stores on a network that engines share, each as a tier: everything but the store's own client.

objects    object stores: their client, and the layout of objects
redis      Redis and Valkey: their client
tier       the contract of a tier; all bookkeeping, on the engine's thread
client     what a store's client does, on the tier's own thread
known      what the tier knows of the store: chunks that were found or stored
health     a store that is down, and the way back
loop       the thread with an asyncio loop
envelope   the bytes of one chunk: verified, and perhaps encrypted
config     what all of them let a person configure; `spec` builds a tier of it
"""

from octavo.stores.client import HeldChunk, OutgoingChunk, RemoteClient, StoreBusyError, StoreDownError
from octavo.stores.config import RemoteConfig, RemoteLimits
from octavo.stores.envelope import KEY_VARIABLE, MOST_ENVELOPE_BYTES, Envelopes
from octavo.stores.spec import RemoteSpec
from octavo.stores.tier import RemoteTier

__all__ = [
    "KEY_VARIABLE",
    "MOST_ENVELOPE_BYTES",
    "Envelopes",
    "HeldChunk",
    "OutgoingChunk",
    "RemoteClient",
    "RemoteConfig",
    "RemoteLimits",
    "RemoteSpec",
    "RemoteTier",
    "StoreBusyError",
    "StoreDownError",
]
