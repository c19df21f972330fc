"""KV events: what changed in a cache, on which medium and for which group, from publishers to those who route."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
