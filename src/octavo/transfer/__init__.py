"""Bytes between device pages and host memory: canonical caches, and the workers. The only torch below the engine."""

from octavo.transfer.canonical import CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor
from octavo.transfer.cpu_worker import CpuWorker
from octavo.transfer.cuda_worker import CudaWorker
from octavo.transfer.make_worker import make_worker
from octavo.transfer.register import CacheRegistration, RegisteredGroup, register_kv_caches, register_sheets

__all__ = [
    "CacheRegistration",
    "CanonicalKVCacheRef",
    "CanonicalKVCacheTensor",
    "CanonicalKVCaches",
    "CpuWorker",
    "CudaWorker",
    "RegisteredGroup",
    "make_worker",
    "register_kv_caches",
    "register_sheets",
]
