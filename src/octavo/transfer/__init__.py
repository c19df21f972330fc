"""Bytes between device pages and host memory: canonical caches, and the workers. The only torch below the engine.

Inside, where an arrow leads to what a module calls:

    register -> layer_layout, rows             from an engine's tensors to `canonical` caches, without a copy
    shares, page_kinds                         one rank's part of a page
    copy_plan                                  from chunks to copies
    worker, worker_choice                      the contract, and which worker serves which caches
    cpu_worker -> host_copier -> slot_hasher   caches in host memory
    cuda_worker -> staged_worker -> link       caches on a device, over `staging` and `copy_engine`
    jobs, helper                               the threads that copy
"""

from octavo.door import attach_door

__getattr__, __dir__, __all__ = attach_door(__name__, __file__)
