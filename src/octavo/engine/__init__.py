"""The embedded engine: Hugging Face models over Octavo's pool. This is its lower half, which computes steps."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
