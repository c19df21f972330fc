"""`Indexes`: the indexes of several engines' blocks, each with the hasher that its engines use."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from octavo.errors import BlockSizeError, InputError
from octavo.events import ExternalHash, PublishedPlan, external_hashes
from octavo.hashing import BlockHasher, RequestIdentity
from octavo.router.index import FleetIndex, Points
from octavo.router.member import Member
from octavo.router.placement import Prompt

_MOST_BLOCKS_PER_TOKEN = 16
"""Of all groups of a plan together: each block of a prompt is looked up, while nobody else is answered. 256 groups in
blocks of 16 tokens have as many."""


class ReadPrompt(NamedTuple):
    """A prompt, and the hashes by which each index knows it."""

    prompt: Prompt
    hashes: Mapping[FleetIndex, Sequence[ExternalHash]]


class Indexes:
    """The indexes of a fleet, each with the hasher of its prompts."""

    def __init__(self) -> None:
        self._indexes: dict[tuple[bytes, str, str, int], FleetIndex] = {}
        """By plan, hash algorithm, seed and lookahead."""
        self.hashers: dict[FleetIndex, BlockHasher] = {}

    def find(self, plan: PublishedPlan, *, algorithm: str, seed: str, lookahead_tokens: int = 0) -> FleetIndex:
        """The index of a plan; a new one for a new plan. InputError if the plan cannot be followed."""
        key = msgspec.json.encode(plan.at_rest), algorithm, seed, lookahead_tokens
        if key not in self._indexes:
            _check_work(plan)
            hasher = BlockHasher(
                hash_block_size=plan.hash_block_size, algorithm=algorithm, seed=seed, lookahead_tokens=lookahead_tokens
            )
            try:
                index = FleetIndex.of_plan(plan)
            except BlockSizeError as error:
                raise InputError(str(error)) from None
            self._indexes[key] = index
            self.hashers[index] = hasher
        return self._indexes[key]

    def drop_empty(self) -> None:
        """Forgets the indexes that no engine uses."""
        for key, index in list(self._indexes.items()):
            if not index.engines:
                del self._indexes[key], self.hashers[index]

    @property
    def num_blocks(self) -> int:
        """The number of known blocks. A block that several engines hold counts once."""
        return sum(index.num_blocks for index in self.hashers)

    def read(self, tokens: Sequence[int], identity: RequestIdentity) -> ReadPrompt:
        """How much of a prompt each engine could resume."""
        hashes = {i: external_hashes(hasher.hash_tokens(tokens, identity)) for i, hasher in self.hashers.items()}
        return self.read_hashed(hashes, len(tokens))

    def read_hashed(self, hashes: Mapping[FleetIndex, Sequence[ExternalHash]], num_tokens: int) -> ReadPrompt:
        """The same for a prompt that is hashed already."""
        resumes: dict[str, int] = {}
        branches: dict[str, int] = {}
        loads: dict[str, Points] = {}
        for index, own in hashes.items():
            found = index.read(own, num_tokens)
            resumes |= found.resumes
            branches |= found.branches
            loads |= found.loads
        return ReadPrompt(Prompt(num_tokens=num_tokens, resumes=resumes, branches=branches, loads=loads), hashes)

    @contextmanager
    def expecting(self, member: Member, read: ReadPrompt) -> Iterator[None]:
        """Inside the block, the engine counts as having a prompt that was sent to it: its events come later, and
        requests that begin alike should follow it."""
        index = member.index
        if index is None or index not in read.hashes:
            yield
            return
        expectation = index.expect(member.name, read.hashes[index], read.prompt.num_tokens)
        try:
            yield
        finally:
            index.expect_no_more(member.name, expectation)

    def forget(self, member: Member) -> None:
        """Forgets the engine's blocks."""
        if member.index is not None:
            member.index.remove_engine(member.name)
            member.index = None
            self.drop_empty()


def _check_work(plan: PublishedPlan) -> None:
    """An engine may tell any plan, and every request of all engines would wait for it."""
    per_token = sum(1 / group.block_size for group in plan.groups)
    if per_token > _MOST_BLOCKS_PER_TOKEN:
        raise InputError(
            f"its {len(plan.groups):,} groups have {per_token:,.1f} blocks for each token of a prompt, of which "
            f"{_MOST_BLOCKS_PER_TOKEN} are looked up at the most: give it larger blocks"
        )
