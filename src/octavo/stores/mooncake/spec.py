"""`MooncakeSpec`: the Mooncake tier as an engine's configuration names it."""

from dataclasses import dataclass

import msgspec

from octavo.errors import InputError, MissingPackageError
from octavo.extras import is_installed
from octavo.host import tell_of_lack
from octavo.stores import MOST_ENVELOPE_BYTES, RemoteClient, RemoteSpec, StoreKeeper
from octavo.stores.mooncake.client import MooncakeClient
from octavo.stores.mooncake.config import MooncakeConfig
from octavo.stores.mooncake.process import LibraryProcess
from octavo.tiers import TierContext


@dataclass(frozen=True, slots=True)
class MooncakeSpec(RemoteSpec):
    """Builds a Mooncake tier."""

    name = "mooncake"
    config_class = MooncakeConfig

    config: MooncakeConfig

    def open_client(self, context: TierContext, namespace: bytes) -> RemoteClient:
        tell_of_lack(self.config.segment_bytes or 0, "Mooncake's pool", "segment_size (--shared-segment-size)")
        return MooncakeClient(
            self._open(self.config, context.max_chunk_bytes + MOST_ENVELOPE_BYTES),
            namespace=namespace,
            family=context.family,
            most_chunk_bytes=context.max_chunk_bytes,
        )

    def open_keeper(self) -> StoreKeeper:
        host = self.config.master.rpartition(":")[0]
        raise InputError(
            "Mooncake's master keeps its pool: it gives up what was used longest ago by itself, and "
            f"http://{host}:9003/metrics/summary (its --metrics_port) tells how full the pool is; "
            "`octavo store` is for object stores, Redis and Valkey"
        )

    async def try_store(self) -> None:
        """Joins the pool, and gives it no memory."""
        library = self._open(msgspec.structs.replace(self.config, segment_bytes=None), 1)
        try:
            await library.start()
        finally:
            await library.close()

    def _open(self, config: MooncakeConfig, most_value_bytes: int) -> LibraryProcess:
        """Starts no process."""
        if not is_installed("mooncake"):
            raise MissingPackageError(
                "a Mooncake tier needs the package mooncake-transfer-engine: pip install 'octavo[mooncake]', or "
                "mooncake-transfer-engine-non-cuda on a machine without CUDA"
            )
        if config.ca_file is not None:
            raise InputError("Mooncake tier: Mooncake has no TLS: leave ca_file out")
        settings = {
            "master": config.master,
            "host": config.host,
            "metadata_server": config.metadata_server,
            "segment_bytes": config.segment_bytes or 0,
            "protocol": config.protocol,
            "device": config.device,
        }
        return LibraryProcess(settings, buffer_bytes=config.buffer_bytes, most_value_bytes=most_value_bytes)
