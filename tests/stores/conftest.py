"""Real servers of stores, where their packages are installed."""

from rigs.real_stores import redis, run_mooncake, second_redis, server

__all__ = ["redis", "run_mooncake", "second_redis", "server"]
