"""Stores on a network that engines share, each as a tier: everything but the store's own client.

Inside:

    objects    object stores: their client, and the layout of objects
    redis      Redis and Valkey: their client
    mooncake   Mooncake Store: its client, in a process of its own
    tier       the contract of a tier; all bookkeeping, on the engine's thread
    client     what a store's client does, on the tier's own thread
    batches    many values in few round trips
    known      what the tier knows of the store: chunks that were found or stored
    health     when a store is left alone; the way back is the `Health` of all tiers
    loop       the thread with an asyncio loop
    envelope   the bytes of one chunk: verified, and perhaps encrypted; `descriptions`: of the words on a namespace
    config     what all of them let a person configure; `spec` builds a tier of it
    apart      calls that Ctrl-C does not wait for
    keeper     a store without an engine; `inventory` counts it, `verifying` reads it, `collecting` deletes
"""

from octavo.stores.apart import Apart
from octavo.stores.client import (
    HeldChunk,
    OutgoingChunk,
    RemoteClient,
    SeveralStoresError,
    StoreBusyError,
    StoreDownError,
)
from octavo.stores.collecting import delete_items, expire
from octavo.stores.config import RemoteConfig, RemoteLimits
from octavo.stores.descriptions import MOST_DESCRIPTION_BYTES, Description, open_description, seal_description
from octavo.stores.envelope import (
    MOST_ENVELOPE_BYTES,
    Envelopes,
    Finding,
    examine,
    name_unread,
    says_later,
    summarize,
)
from octavo.stores.inventory import Inventory, Share, is_ahead
from octavo.stores.keeper import StoredItem, StoreKeeper
from octavo.stores.renewed import Renewed
from octavo.stores.spec import RemoteSpec
from octavo.stores.tenants import NOBODY
from octavo.stores.tier import RemoteTier
from octavo.stores.verifying import find_all, read_all

__all__ = [
    "MOST_DESCRIPTION_BYTES",
    "MOST_ENVELOPE_BYTES",
    "NOBODY",
    "Apart",
    "Description",
    "Envelopes",
    "Finding",
    "HeldChunk",
    "Inventory",
    "OutgoingChunk",
    "RemoteClient",
    "RemoteConfig",
    "RemoteLimits",
    "RemoteSpec",
    "RemoteTier",
    "Renewed",
    "SeveralStoresError",
    "Share",
    "StoreBusyError",
    "StoreDownError",
    "StoreKeeper",
    "StoredItem",
    "delete_items",
    "examine",
    "expire",
    "find_all",
    "is_ahead",
    "name_unread",
    "open_description",
    "read_all",
    "says_later",
    "seal_description",
    "summarize",
]
