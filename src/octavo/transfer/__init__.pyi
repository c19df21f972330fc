from .canonical import (
    CanonicalKVCacheRef as CanonicalKVCacheRef,
    CanonicalKVCaches as CanonicalKVCaches,
    CanonicalKVCacheTensor as CanonicalKVCacheTensor,
)
from .copy_engine import Addresses as Addresses
from .cpu_worker import CpuWorker as CpuWorker
from .cuda_worker import CudaWorker as CudaWorker
from .host_copier import HostCopier as HostCopier
from .page_kinds import (
    Page as Page,
    attention_page as attention_page,
    replicated_page as replicated_page,
    state_page as state_page,
)
from .register import (
    CacheRegistration as CacheRegistration,
    RegisteredGroup as RegisteredGroup,
    register_kv_caches as register_kv_caches,
    register_sheets as register_sheets,
)
from .shares import (
    Field as Field,
    PageShare as PageShare,
    Rows as Rows,
    Run as Run,
    share_beside as share_beside,
    share_page as share_page,
)
from .staged_worker import Lane as Lane, StagedWorker as StagedWorker
from .worker import OffloadingWorker as OffloadingWorker
from .worker_choice import make_worker as make_worker
