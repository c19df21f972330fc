"""`RemoteSpec`: a store on a network as an engine's configuration names it."""

import asyncio
import logging
import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, Self

from octavo.errors import MissingPackageError, TierError
from octavo.namespace import NAMESPACE_PART
from octavo.stores.client import RemoteClient, StoreDownError
from octavo.stores.config import RemoteConfig
from octavo.stores.descriptions import Description, seal_description
from octavo.stores.envelope import KEY_VARIABLE, Envelopes
from octavo.stores.keeper import StoreKeeper
from octavo.stores.tier import RemoteTier
from octavo.tiers import OffloadingSpec, Tier, TierContext
from octavo.tiers.disk import RecordCipher, find_cipher

_log = logging.getLogger(__name__)
_PROBE_S = 10.0
_NAME_DIGITS = 32


@dataclass(frozen=True, slots=True)
class RemoteSpec(OffloadingSpec):
    """Builds a tier over one kind of store."""

    config_class: ClassVar[type[RemoteConfig]]

    config: RemoteConfig

    @abstractmethod
    def open_client(self, context: TierContext, namespace: bytes) -> RemoteClient:
        """Opens no connection. Raises InputError, with the remedy, for an error in the URL or an option."""

    @abstractmethod
    def open_keeper(self) -> StoreKeeper:
        """Opens no connection, like `open_client`."""

    @abstractmethod
    async def try_store(self) -> None:
        """Writes, reads and deletes a small value. Raises StoreDownError, with a remedy if the error will stay."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        return cls(cls.config_class.from_mapping(config))

    @property
    def asks_ahead(self) -> bool:
        return True

    def check(self) -> None:
        """Raises TierError for an error that will stay; a store that is not reached now gets a warning."""
        self.find_cipher()
        url = self.config.shown_url
        try:
            asyncio.run(self._probe())
        except TimeoutError:
            _log.warning("%s does not answer; it is tried again while the engine runs", url)
        except StoreDownError as error:
            if error.remedy:
                raise TierError(f"{self.config.what}: {url}: {error}") from None
            _log.warning("%s does not work; it is tried again while the engine runs: %s", url, error)

    async def _probe(self) -> None:
        async with asyncio.timeout(_PROBE_S):
            await self.try_store()

    def build(self, context: TierContext) -> Tier:
        envelopes = Envelopes(context.namespace, self.find_cipher())
        client = self.open_client(context, envelopes.namespace)
        what = f"{self.config.what} {self.config.shown_url}"
        shared_as = sha256(self.config.place.encode() + b"\n" + envelopes.namespace).hexdigest()[:_NAME_DIGITS]
        return RemoteTier(client, envelopes, what=what, shared_as=shared_as, limits=self.config.limits)

    def describe(self, context: TierContext) -> Description | None:
        """None for an engine that says nothing of itself."""
        if not context.identity:
            return None
        cipher, parts = self.find_cipher(), context.identity
        if cipher is not None:  # who has the key may know what is filed under a digest
            parts = {**parts, NAMESPACE_PART: context.namespace.hex()}
        return Description(seal_description(parts, Envelopes(context.namespace, cipher)))

    def find_cipher(self) -> RecordCipher | None:
        """Raises InputError for text that is not a key."""
        return find_cipher(self.config.key_file, os.environ, variable=KEY_VARIABLE, what=self.config.what)

    def find_cipher_of_names(self) -> RecordCipher | None:
        """The cipher for descriptions, without which the models' names stay unknown; None where its package is missing
        too, as all else can be listed and deleted without it."""
        try:
            return self.find_cipher()
        except MissingPackageError as error:
            _log.warning("encrypted names of models stay unknown: %s", error)
            return None
