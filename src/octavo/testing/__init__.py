"""Conformance suites that every implementation of a contract subclasses, and strategies for their values.

The only part of Octavo that needs Hypothesis and pytest: `pip install octavo[testing]`.
"""

from octavo.testing.manager_suite import KVCacheManagerSuite, SingleTypeKVCacheManagerSuite
from octavo.testing.spec_suite import KVCacheSpecSuite

__all__ = ["KVCacheManagerSuite", "KVCacheSpecSuite", "SingleTypeKVCacheManagerSuite"]
