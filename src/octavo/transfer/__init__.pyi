from .canonical import (
    CanonicalKVCacheRef as CanonicalKVCacheRef,
    CanonicalKVCaches as CanonicalKVCaches,
    CanonicalKVCacheTensor as CanonicalKVCacheTensor,
)
from .cpu_worker import CpuWorker as CpuWorker
from .cuda_worker import CudaWorker as CudaWorker
from .host_copier import HostCopier as HostCopier
from .register import (
    CacheRegistration as CacheRegistration,
    RegisteredGroup as RegisteredGroup,
    register_kv_caches as register_kv_caches,
    register_sheets as register_sheets,
)
from .worker import OffloadingWorker as OffloadingWorker
from .worker_choice import make_worker as make_worker
