"""`ObjectsSpec`: the object store tier as an engine's configuration names it."""

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.errors import TierError
from octavo.stores import KEY_VARIABLE, Envelopes, RemoteTier, StoreDownError
from octavo.stores.objects.client import ObjectsClient
from octavo.stores.objects.config import ObjectsConfig
from octavo.stores.objects.store import open_store
from octavo.stores.objects.troubles import explain
from octavo.tiers import OffloadingSpec, Tier, TierContext
from octavo.tiers.disk import RecordCipher, find_cipher

_log = logging.getLogger(__name__)
_PROBE = "octavo-probe"
_PROBE_S = 10.0


@dataclass(frozen=True, slots=True)
class ObjectsSpec(OffloadingSpec):
    """Builds an object store tier."""

    name = "objects"

    config: ObjectsConfig

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "ObjectsSpec":
        return cls(ObjectsConfig.from_mapping(config))

    @property
    def asks_ahead(self) -> bool:
        return True

    def check(self) -> None:
        """Puts, reads, lists and deletes one small object. What does not go away by itself is an error; a store that is
        not reached now is not."""
        self._find_cipher()
        try:
            asyncio.run(asyncio.wait_for(_try_store(open_store(self.config)), _PROBE_S))
        except TimeoutError:
            _log.warning("%s does not answer; it is tried again while the engine runs", self.config.url)
        except StoreDownError as error:
            if error.remedy:
                raise TierError(f"object store tier: {self.config.url}: {error}") from None
            _log.warning("%s does not work; it is tried again while the engine runs: %s", self.config.url, error)

    def build(self, context: TierContext) -> Tier:
        envelopes = Envelopes(context.namespace, self._find_cipher())
        client = ObjectsClient(open_store(self.config), namespace=envelopes.namespace, family=context.family)
        return RemoteTier(client, envelopes, what=f"object store {self.config.url}", limits=self.config.limits)

    def _find_cipher(self) -> RecordCipher | None:
        return find_cipher(self.config.key_file, os.environ, variable=KEY_VARIABLE, what="object store tier")


async def _try_store(store: Any) -> None:
    import obstore

    try:
        await obstore.put_async(store, _PROBE, b"octavo")
        await obstore.get_async(store, _PROBE)
        async for _ in obstore.list(store, prefix="octavo-probes"):
            pass
        await obstore.delete_async(store, _PROBE)
    except Exception as error:
        raise explain(error) from error
