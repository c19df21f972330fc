"""The object store tier: S3 and its kin, Google's and Azure's, or a folder that machines share.

    client     finds, puts and gets objects, in few round trips
    charts     where an object is filed: which engine finds it without a directory
    layout     the bytes of an object; `octavo.stores` has those of a chunk
    epochs     resets: objects of a former epoch are found by nobody
    store      opens the store, and says what is wrong with it in one sentence
    troubles   what obstore's errors mean
    keeper     a store without an engine, `folder` a folder; `warming` copies from it into a disk tier's folder
    config, spec

The layout by byte and by name: docs/stores.md.
"""

from octavo.stores.objects import layout
from octavo.stores.objects.client import ObjectsClient
from octavo.stores.objects.config import ObjectsConfig
from octavo.stores.objects.keeper import ObjectsKeeper
from octavo.stores.objects.spec import ObjectsSpec
from octavo.stores.objects.store import open_store
from octavo.stores.objects.warming import Outcome, choose_newest, envelopes_of, warm_disk

__all__ = [
    "ObjectsClient",
    "ObjectsConfig",
    "ObjectsKeeper",
    "ObjectsSpec",
    "Outcome",
    "choose_newest",
    "envelopes_of",
    "layout",
    "open_store",
    "warm_disk",
]
