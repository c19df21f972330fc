"""Specs and managers that a registry is asked about, and threads that ask at once."""

import threading
from dataclasses import dataclass

from octavo.specs import FullAttentionSpec, KVCacheSpec, MLAAttentionSpec, SingleTypeKVCacheManager

FULL = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64)


class SomeManager(SingleTypeKVCacheManager):
    """The registry makes no managers, so it may stay abstract."""


class OtherManager(SomeManager):
    pass


class UnknownSpec(KVCacheSpec):
    """Derives from no registered spec."""

    @property
    def unpadded_page_size_bytes(self):
        return self.block_size

    def needed_blocks(self, point):
        return ()

    def max_blocks_per_request(self, limits):
        return 0


@dataclass(frozen=True, kw_only=True)
class InheritedSpec(MLAAttentionSpec):
    """Derives from a registered spec, and is not registered."""


def run_at_once(functions):
    barrier = threading.Barrier(len(functions))
    results = [None] * len(functions)

    def run(index):
        barrier.wait(timeout=300)
        try:
            results[index] = functions[index]()
        except Exception as error:  # noqa: BLE001 - the assertion shows it
            results[index] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert not any(thread.is_alive() for thread in threads)
    return results
