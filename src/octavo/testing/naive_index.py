"""A naive prefix index: the prefix that each hash stands for.

So it knows what the real index promises, and finds the largest resume point by a scan from the last boundary down.
"""

from collections.abc import Iterable, Sequence

from octavo.blocks import KVCacheManager, ResumePlan
from octavo.ids import BlockHash, GroupIdx, enumerate_groups
from octavo.testing.naive_device import STATE_SLOT, NaiveDevice, Prefixes, Slot
from octavo.testing.naive_layers import tokens_read
from octavo.testing.naive_request import NaiveRequest


class NaiveIndex:
    """The prefixes behind a manager's index, and checks of what the manager finds there."""

    def __init__(self, manager: KVCacheManager, prefixes: Prefixes) -> None:
        self.manager = manager
        self.config = manager.config
        self.prefixes = prefixes
        self._prefix_of: list[dict[BlockHash, int]] = [{} for _ in self.config.groups]
        self._lookahead = self.config.resume_granularity if any(g.is_draft for g in self.config.groups) else 0

    def learn_hashes(self, request: NaiveRequest) -> None:
        """Notes the prefix of each hash. A request with unnamed encoder input is not in the cache."""
        if request.blocks.num_encoder_tokens and request.blocks.identity.encoder_digest is None:
            return
        num_hashed = request.num_known // self.config.hash_block_size
        if not self.manager.is_caching or num_hashed == request.num_hashed:
            return
        request.num_hashed = num_hashed
        for group_idx, group in enumerate_groups(self.config.groups):
            prefix_of = self._prefix_of[group_idx]
            ratio = group.block_size // self.config.hash_block_size
            if group.spec.indexes_decoder_tokens:
                hashes = self.manager.hasher.hash_tokens(request.blocks.tokens, request.blocks.identity)
                known = list(enumerate(hashes[ratio - 1 :: ratio]))
                prefixes = [request.prefixes[(block + 1) * group.block_size - 1] for block, _ in known]
            else:
                known = list(enumerate(request.blocks.hashes(group_idx)))
                prefixes = [request.encoder_block(block) for block, _ in known]
            for (_, block_hash), prefix in zip(known, prefixes, strict=True):
                prefix_of.setdefault(block_hash, prefix)

    def check_plan(self, request: NaiveRequest, plan: ResumePlan) -> None:
        """Checks that the plan resumes at the largest point, and gives the right reason for no larger one."""
        best = self.largest_resume(request, [group for group, _ in enumerate_groups(self.config.groups)])
        assert plan.num_tokens == best, f"resumes at {plan.num_tokens}, could at {best}"
        whole = [i for i, group in enumerate_groups(self.config.groups) if group.spec.rule.needs_whole_prefix]
        if any(self.config.groups[i].spec.indexes_decoder_tokens for i in whole):
            known = max(self.largest_resume(request, whole), request.blocks.promises.known_tokens)
            assert plan.branch_point == (known if known > best and len(whole) < len(self.config.groups) else None)
        if plan.limited_by is None:
            assert best == self._largest_boundary(request)
        else:
            published = self._published()
            assert not self._has_all(request, plan.limited_by, best + self.config.resume_granularity, published)
        self._check_found_blocks(request, plan)

    def check_pages(self, device: NaiveDevice, weights: int) -> None:
        """Checks that all pages that can be found have all their bytes, which are no other request's."""
        for group_idx, index in enumerate_groups(self.manager.pool.indexes):
            group = self.config.groups[group_idx]
            for block_hash, row in index.items():
                assert group.page_class is not None
                prefix = self._prefix_of[group_idx][block_hash]
                page = device.pages[group.page_class, row]
                if group.spec.holds_checkpoints:
                    expected = {STATE_SLOT: prefix}
                elif group.spec.indexes_decoder_tokens:
                    expected = dict(enumerate(self.prefixes.last(prefix, group.block_size)))
                else:
                    expected = {0: prefix}
                for slot, known in expected.items():
                    assert page.get(slot) == Slot(group_idx, known, weights), f"group {group_idx}, slot {slot}"

    def largest_resume(self, request: NaiveRequest, groups: Iterable[GroupIdx]) -> int:
        """The largest resume point, found by a scan from the last boundary down."""
        granularity = self.config.resume_granularity
        groups = list(groups)
        top = self._largest_boundary(request)
        published = self._published()
        for n in range(top, 0, -granularity):
            if all(self._has_all(request, group, n, published) for group in groups):
                return n
        return 0

    def _check_found_blocks(self, request: NaiveRequest, plan: ResumePlan) -> None:
        for group_idx, runs in enumerate_groups(plan.found):
            index = self.manager.pool.indexes[group_idx]
            for blocks, rows in runs:
                hashes = request.blocks.hashes(group_idx)[blocks.start : blocks.stop]
                assert [index[block_hash] for block_hash in hashes] == rows

    def _largest_boundary(self, request: NaiveRequest) -> int:
        granularity = self.config.resume_granularity
        known = request.num_known
        return max(
            0, min((known - 1) // granularity * granularity, known // granularity * granularity - self._lookahead)
        )

    def _published(self) -> list[set[int]]:
        """The prefixes that each group's index promises."""
        return [
            {prefix_of[block_hash] for block_hash in index}
            for prefix_of, index in zip(self._prefix_of, self.manager.pool.indexes, strict=True)
        ]

    def _has_all(
        self, request: NaiveRequest, group_idx: GroupIdx, n: int, published_by_group: Sequence[set[int]]
    ) -> bool:
        """Whether the group's index holds all that is needed at n."""
        group = self.config.groups[group_idx]
        published = published_by_group[group_idx]
        size = group.block_size
        point = request.blocks.resume_point(n)
        if not group.spec.indexes_decoder_tokens:
            blocks = {block for r in group.spec.needed_blocks(point) for block in r}
            return all(request.encoder_block(block) in published for block in blocks)
        if group.spec.holds_checkpoints:
            return n % size == 0 and request.prefixes[n - 1] in published
        tokens = tokens_read(group.spec, point)
        if group.is_draft:
            tokens |= set(range(n, n + self.config.resume_granularity))
        ends = {(token // size + 1) * size for token in tokens}
        return all(end <= request.num_known and request.prefixes[end - 1] in published for end in ends)
