"""Bytes between device pages and host memory: canonical caches, and the workers. The only torch below the engine."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
