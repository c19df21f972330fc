"""Ray is imported here first: it warns while it is."""

import warnings
from contextlib import suppress

with warnings.catch_warnings(action="ignore"), suppress(ImportError):
    import ray.serve  # noqa: F401
