"""Conformance suites that every implementation of a contract subclasses, and strategies for their values.

The only part of Octavo that needs Hypothesis and pytest: `pip install octavo[testing]`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
