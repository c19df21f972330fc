"""A device in host memory, for tests of `StagedWorker`."""

import ctypes
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from octavo.transfer import Addresses, Lane


class HostLane(Lane):
    """A device that is done when it is asked."""

    def mark(self) -> Any:
        return None

    def after(self, mark: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def copy_all(self, targets: Addresses, sources: Addresses, sizes: Addresses, *, is_pinned: bool) -> None:
        for copy in zip(targets.tolist(), sources.tolist(), sizes.tolist(), strict=True):
            ctypes.memmove(*copy)

    def wait(self, mark: Any) -> None:
        pass
