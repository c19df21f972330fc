"""Ids of the core, as `NewType`s, so that one is never taken for another."""

from typing import NewType

BlockHash = NewType("BlockHash", bytes)
"""Names a block's tokens, all tokens before it, and whose request they are: see `octavo.hashing`."""

BlockId = NewType("BlockId", int)
"""A row of a group's table of pages on the device."""

GroupIdx = NewType("GroupIdx", int)
"""A group's place in the plan. 0 and None differ: None is "no group"."""
