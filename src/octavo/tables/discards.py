"""`Discards`: frees unused tables a few items at a time. A million keys at once would take tens of milliseconds."""

from collections import deque
from collections.abc import Iterable
from typing import Any

Part = dict[Any, Any] | deque[Any] | list[Any]
"""A container that was given up, with all that is in it. No other code looks into it."""

_COST_OF_A_PART = 8
"""The cost of freeing a part, in items."""


class Discards:
    """Containers that were given up. They are emptied in any order."""

    def __init__(self) -> None:
        self._parts: list[Part] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, parts: Iterable[Part]) -> None:
        self._parts += filter(None, parts)

    def free(self, num_items: int) -> None:
        """Frees about this many items."""
        while self._parts and num_items > 0:
            part = self._parts[-1]
            if len(part) <= num_items:
                num_items -= len(part) + _COST_OF_A_PART
                self._parts.pop()
                continue
            take = part.popitem if isinstance(part, dict) else part.pop
            for _ in range(num_items):
                take()
            return

    def take_keys(self, num_keys: int) -> list[Any]:
        """Frees up to this many items of dictionaries, and returns their keys."""
        keys: list[Any] = []
        while self._parts and len(keys) < num_keys:
            part = self._parts[-1]
            assert isinstance(part, dict), "only dictionaries have keys"
            keys += [part.popitem()[0] for _ in range(min(num_keys - len(keys), len(part)))]
            if not part:
                self._parts.pop()
        return keys
