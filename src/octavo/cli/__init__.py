"""The `octavo` command: it shows what the packages below compute."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
