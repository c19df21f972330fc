"""The embedded engine: it computes Hugging Face models over Octavo's pool of pages. Its server is `octavo.server`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
