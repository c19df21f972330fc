"""`PrefixLeaders`: which choice is computing which prefix, so that equal prompts that arrive together compute it once.

Blocks can be found only once they are committed. So a request whose prefix is being computed waits until then:

    leader     [ computed      | being computed              ]
    follower   [ shared with the leader .......... ] its own
                                  ^ until: the last boundary in it at which it will be possible to resume

A choice follows one leader in its life, and only while that one runs. So no choice waits for ever.
"""

from bisect import bisect_left
from collections.abc import Container

from octavo.blocks import KVCacheManager, RequestBlocks
from octavo.engine.request import Choice, Leader
from octavo.ids import BlockHash


class PrefixLeaders:
    """The choices of one step that compute a prompt, by their first block."""

    def __init__(self, manager: KVCacheManager) -> None:
        self._manager = manager
        self._config = manager.config
        self._has_checkpoints = any(group.spec.holds_checkpoints for group in manager.config.groups)
        self._by_first_block: dict[BlockHash, Choice] = {}

    def clear(self) -> None:
        self._by_first_block.clear()

    def add(self, choice: Choice) -> None:
        """Notes that the choice computes a part of its prompt in this step."""
        if choice.blocks.hashed and choice.blocks.generation == self._manager.pool.generation:
            self._by_first_block[choice.blocks.hashed[0]] = choice

    def is_following(self, choice: Choice, running: Container[Choice]) -> bool:
        """Whether a waiting choice waits for a leader, which computes its prefix."""
        if choice.leader is None and not choice.has_followed and not choice.request.wants_prompt_logprobs:
            choice.leader = self._find(choice)
            choice.has_followed = choice.leader is not None
        leader = choice.leader
        if leader is None:
            return False
        if leader.choice in running and leader.choice.blocks.num_computed_tokens < leader.until:
            return True
        choice.leader = None
        return False

    def _find(self, choice: Choice) -> Leader | None:
        """The leader that a waiting choice should follow, if there is one."""
        hashed = choice.blocks.hashed
        leader = self._by_first_block.get(hashed[0]) if hashed else None
        if leader is None:
            return None
        shared = _num_shared_blocks(leader.blocks, choice.blocks) * self._config.hash_block_size
        until = self._last_resumable(leader.blocks, min(shared, self._config.last_boundary(choice.blocks.num_tokens)))
        return None if until is None else Leader(choice=leader, until=until)

    def _last_resumable(self, leader: RequestBlocks, shared: int) -> int | None:
        """The last boundary of the shared tokens at which the leader will keep a resume point, and has not yet."""
        computed = leader.num_computed_tokens
        if not self._has_checkpoints:
            last = shared // self._config.resume_granularity * self._config.resume_granularity
            return last if last > computed else None
        return max(leader.promises.between(computed, shared), default=None)


def _num_shared_blocks(first: RequestBlocks, second: RequestBlocks) -> int:
    """The number of equal leading hashes. As hashes are chained, all after the first difference differ too."""
    most = min(len(first.hashed), len(second.hashed))
    return bisect_left(range(most), x=True, key=lambda block: first.hashed[block] != second.hashed[block])
