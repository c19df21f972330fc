"""`RedisSpec`: the Redis tier as an engine's configuration names it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qs, urlsplit

from octavo.errors import MALFORMED, InputError
from octavo.extras import load_package
from octavo.stores import RemoteClient, RemoteSpec, Renewed, StoreKeeper
from octavo.stores.redis.client import MOST_CONNECTIONS, RedisClient
from octavo.stores.redis.config import RedisConfig
from octavo.stores.redis.keeper import RedisKeeper
from octavo.stores.redis.one_server import read_from_all
from octavo.stores.redis.tls import tls_files, try_tls
from octavo.stores.redis.troubles import PASSWORD_VARIABLE, explain, other_answer
from octavo.tiers import TierContext

_CONNECT_S = 2.0
_PROBE_MS = 10_000
_PROBED_NAMES = 32
"""So many names at random lie on all the servers of a cluster."""
_URL_OPTIONS = frozenset(
    {"db", "username", "password", "client_name", "health_check_interval", "socket_connect_timeout", "socket_keepalive"}
)
"""What the url may say after a question mark. The tier sets all else itself, as its client must get bytes, say."""
_TLS_OPTION = "ssl_"


@dataclass(frozen=True, slots=True)
class RedisSpec(RemoteSpec):
    """Builds a Redis tier."""

    name = "redis"
    config_class = RedisConfig

    config: RedisConfig

    def open_client(self, context: TierContext, namespace: bytes) -> RemoteClient:
        opened = Renewed(tls_files(self.config.url, self.config.ca_file), self._open)
        return RedisClient(
            opened.current,
            namespace=namespace,
            family=context.family,
            most_chunk_bytes=context.max_chunk_bytes,
            keep_s=self.config.keep_s,
            description=self.describe(context),
            renew=opened.renew,
        )

    async def try_store(self) -> None:
        redis = self._open()
        from redis.exceptions import RedisError

        probe = f"octavo-probe-{token_hex(8)}"  # not another engine's, which deletes its own
        try:
            await redis.set(probe, b"octavo", px=_PROBE_MS)
            if [await redis.get(probe), await redis.getrange(probe, 0, -1)] != [b"octavo"] * 2:
                raise other_answer()
            await redis.pexpire(probe, _PROBE_MS)
            await read_from_all(redis, probe)
            await redis.delete(probe)
            async with redis.pipeline(transaction=False) as pipeline:
                for number in range(_PROBED_NAMES):
                    pipeline.get(f"{probe}-{number}")
                await pipeline.execute()
        except (RedisError, OSError, *MALFORMED) as error:
            raise explain(error, self.config.url) from error
        finally:
            await redis.aclose()

    def open_keeper(self) -> StoreKeeper:
        _needs_redis()
        from redis import Redis

        with self._explaining():
            redis = Redis.from_url(self.config.url, **self._options())
            _try_options(redis.connection_pool)
        return RedisKeeper(redis, self.config.shown_url, self.find_cipher_of_names())

    def _open(self) -> Any:
        _needs_redis()
        from redis.asyncio import BlockingConnectionPool, Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        with self._explaining():
            pool = BlockingConnectionPool.from_url(
                self.config.url,
                max_connections=MOST_CONNECTIONS,
                timeout=None,  # the tier limits the time of each call, and redis-py would make it anew after 5 s
                socket_timeout=None,
                retry=Retry(NoBackoff(), 1),  # a connection that the server has closed is opened again
                **self._options(),
            )
            _try_options(pool)
        return Redis.from_pool(pool)

    def _options(self) -> dict[str, Any]:
        # With RESP3 redis-py takes what a server sends unasked for a message, and does not look whether a connection
        # still holds the answers to other questions before it uses it again.
        options: dict[str, Any] = {"protocol": 2}
        self._check_url_options()
        if not self.config.url.startswith("unix://"):
            options["socket_connect_timeout"] = _CONNECT_S
        if self.config.ca_file is not None:
            if not self.config.url.startswith("rediss://"):
                raise InputError("Redis tier: ca_file is for TLS: give rediss://host:port/db, or leave ca_file out")
            try:
                self.config.ca_file.read_bytes()
            except OSError as error:
                problem = f"ca_file {self.config.ca_file} cannot be read: {error.strerror}"
                raise InputError(f"Redis tier: {problem}") from error
            options["ssl_ca_certs"] = str(self.config.ca_file)
        if (password := os.environ.get(PASSWORD_VARIABLE)) is not None:
            options["password"] = password
        return options

    def _check_url_options(self) -> None:
        url = urlsplit(self.config.url)
        has_tls = url.scheme == "rediss"
        for name in parse_qs(url.query, keep_blank_values=True):
            if name not in _URL_OPTIONS and not (has_tls and name.startswith(_TLS_OPTION)):
                known = ", ".join([*sorted(_URL_OPTIONS), *[f"{_TLS_OPTION}..."] * has_tls])
                raise ValueError(f"{name!r:.60} is not one of its options {known}")

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise InputError(f"Redis tier: url {self.config.shown_url}: {error}") from error


def _try_options(pool: Any) -> None:
    """Makes a connection and opens nothing: ValueError for an option or a value that the package redis does not
    know."""
    from redis.exceptions import RedisError

    try:
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, RedisError) as error:
        raise ValueError(f"the package redis refuses its options: {error}") from None
    try_tls(pool.connection_kwargs)


def _needs_redis() -> None:
    load_package("redis", "a Redis tier")
