"""The contract of a manager: how one group allocates, frees and caches its blocks."""

from abc import ABC, abstractmethod

from octavo.specs.base import KVCacheSpec


class SingleTypeKVCacheManager(ABC):
    """The decisions of one group about a request's blocks. It owns no blocks and keeps no request: the pool and the
    request's tables belong to the caller, and every answer follows from the arguments."""

    def __init__(self, spec: KVCacheSpec) -> None:
        self.spec = spec

    @abstractmethod
    def blocks_to_hold(self, num_computed_tokens: int, num_tokens: int) -> range:
        """The blocks of a request that need memory while it computes tokens `[num_computed_tokens, num_tokens)`.

        The caller guarantees `0 <= num_computed_tokens <= num_tokens`, and frees what lies before the answer; so
        neither bound of the answer may move back when its argument grows.
        """
