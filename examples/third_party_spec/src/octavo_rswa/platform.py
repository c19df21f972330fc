"""The hook by which Octavo finds this package."""

from octavo.specs import KVCacheSpecRegistry, Platform
from octavo_rswa.manager import ReferenceWindowManager
from octavo_rswa.spec import ReferenceWindowSpec


class ReferenceWindowPlatform(Platform):
    """A platform with one kind of cache of its own."""

    @classmethod
    def register_custom_kv_cache_specs(cls) -> None:
        KVCacheSpecRegistry.register(ReferenceWindowSpec, ReferenceWindowManager)
