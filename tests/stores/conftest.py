"""Real servers of stores, where their packages are installed."""

from rigs.real_stores import redis, server

__all__ = ["redis", "server"]
