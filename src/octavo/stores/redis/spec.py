"""`RedisSpec`: the Redis tier as an engine's configuration names it."""

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.errors import InputError, TierError
from octavo.stores.client import StoreDownError
from octavo.stores.envelope import KEY_VARIABLE, Envelopes
from octavo.stores.redis.client import RedisClient
from octavo.stores.redis.config import RedisConfig
from octavo.stores.redis.troubles import PASSWORD_VARIABLE, explain
from octavo.stores.tier import RemoteTier
from octavo.tiers import OffloadingSpec, Tier, TierContext
from octavo.tiers.disk import RecordCipher, find_cipher

_log = logging.getLogger(__name__)
_CONNECT_S, _PROBE_S = 2.0, 10.0
_MOST_CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class RedisSpec(OffloadingSpec):
    """Builds a Redis tier."""

    name = "redis"

    config: RedisConfig

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "RedisSpec":
        return cls(RedisConfig.from_mapping(config))

    @property
    def asks_ahead(self) -> bool:
        return True

    def check(self) -> None:
        """Writes, reads and deletes one small value. A server that is not reached now is no error."""
        self._find_cipher()
        url = self.config.shown_url
        try:
            asyncio.run(asyncio.wait_for(self._try_server(), _PROBE_S))
        except TimeoutError:
            _log.warning("%s does not answer; it is tried again while the engine runs", url)
        except StoreDownError as error:
            if error.remedy:
                raise TierError(f"Redis tier: {url}: {error}") from None
            _log.warning("%s does not work; it is tried again while the engine runs: %s", url, error)

    def build(self, context: TierContext) -> Tier:
        envelopes = Envelopes(context.namespace, self._find_cipher())
        client = RedisClient(
            self._open(),
            namespace=envelopes.namespace,
            family=context.family,
            most_chunk_bytes=context.max_chunk_bytes,
            keep_s=self.config.keep_s,
        )
        return RemoteTier(client, envelopes, what=f"Redis {self.config.shown_url}", limits=self.config.limits)

    def _find_cipher(self) -> RecordCipher | None:
        return find_cipher(self.config.key_file, os.environ, variable=KEY_VARIABLE, what="Redis tier")

    def _open(self) -> Any:
        """Opens no connection. InputError, with the remedy, for what is wrong with the URL."""
        try:
            from redis.asyncio import BlockingConnectionPool, Redis  # an optional dependency
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError as error:
            raise InputError("a Redis tier needs the package redis: pip install 'octavo[redis]'") from error
        options: dict[str, Any] = {
            "max_connections": _MOST_CONNECTIONS,
            "timeout": self.config.find_s,
            "retry": Retry(NoBackoff(), 1),  # a connection that the server has closed is opened again
        }
        if not self.config.url.startswith("unix://"):
            options["socket_connect_timeout"] = _CONNECT_S
        if self.config.ca_file is not None:
            options["ssl_ca_certs"] = str(self.config.ca_file)
        if (password := os.environ.get(PASSWORD_VARIABLE)) is not None:
            options["password"] = password
        try:
            return Redis.from_pool(BlockingConnectionPool.from_url(self.config.url, **options))
        except ValueError as error:
            raise InputError(f"Redis tier: url {self.config.shown_url}: {error}") from error

    async def _try_server(self) -> None:
        from redis.exceptions import RedisError

        redis = self._open()
        try:
            await redis.set("octavo-probe", b"octavo", px=round(_PROBE_S * 1000))
            await redis.get("octavo-probe")
            await redis.delete("octavo-probe")
        except (RedisError, OSError) as error:
            raise explain(error) from error
        finally:
            await redis.aclose()
