"""`ObjectsSpec`: the object store tier as an engine's configuration names it."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import InputError
from octavo.stores import RemoteClient, RemoteSpec, StoreKeeper
from octavo.stores.objects.client import ObjectsClient
from octavo.stores.objects.config import ObjectsConfig
from octavo.stores.objects.folder import FolderKeeper, FolderWatch
from octavo.stores.objects.keeper import ObjectsKeeper
from octavo.stores.objects.store import open_store
from octavo.stores.objects.troubles import explain
from octavo.tiers import TierContext

_PROBE = "octavo-probe"


@dataclass(frozen=True, slots=True)
class ObjectsSpec(RemoteSpec):
    """Builds an object store tier."""

    name = "objects"
    config_class = ObjectsConfig

    config: ObjectsConfig

    def open_client(self, context: TierContext, namespace: bytes) -> RemoteClient:
        return ObjectsClient(
            open_store(self.config),
            namespace=namespace,
            family=context.family,
            description=self.describe(context),
            watch=FolderWatch(self._folder) if self._is_folder else None,
            reopen=None if self._is_folder else lambda: open_store(self.config),
        )

    def open_keeper(self) -> StoreKeeper:
        if not self._is_folder:
            return ObjectsKeeper(open_store(self.config), self.config.shown_url, self.find_cipher_of_names())
        folder = self._folder
        if not folder.is_dir():
            raise InputError(f"{folder}: there is no such folder")  # opening it would create it
        return FolderKeeper(open_store(self.config), self.config.shown_url, folder, self.find_cipher_of_names())

    async def try_store(self) -> None:
        store = open_store(self.config)
        import obstore  # an optional dependency
        from obstore.exceptions import AlreadyExistsError

        try:
            await obstore.put_async(store, _PROBE, b"octavo")
            with suppress(AlreadyExistsError):
                await obstore.put_async(store, _PROBE, b"octavo", mode="create")
            with suppress(FileNotFoundError):  # another engine has just deleted its own
                await obstore.get_range_async(store, _PROBE, start=1, end=2)
            async for _ in obstore.list(store, prefix="octavo-probes"):
                pass
            with suppress(FileNotFoundError):
                await obstore.delete_async(store, _PROBE)
            if self._is_folder:  # a link to a name that is there tells nothing
                with suppress(AlreadyExistsError, FileNotFoundError):
                    await obstore.put_async(store, _PROBE, b"octavo", mode="create")
                    await obstore.delete_async(store, _PROBE)
        except Exception as error:
            raise explain(error) from error

    @property
    def _is_folder(self) -> bool:
        return self.config.url.startswith("file://")

    @property
    def _folder(self) -> Path:
        return Path(self.config.url.removeprefix("file://"))
