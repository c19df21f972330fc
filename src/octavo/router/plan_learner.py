"""`PlanLearner`: the plan of an engine that does not tell it, as vLLM's server does not, learned from its events.

An event names its group, the group's kind, block size and window. A group that no event has named yet is not known to
be there, so what such a plan says is "at most", and the plan may grow. How prompts are hashed is tried out: the first
blocks of a sequence come with their tokens, and their hashes must be those of the algorithm and one of the seeds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import gcd
from types import MappingProxyType

from octavo.errors import InputError
from octavo.events import AnyEvent, BlockStored, PublishedGroup, PublishedPlan, external_hashes
from octavo.hashing import BlockHasher, MultiModalItem, RequestIdentity
from octavo.router.remedies import OF_ADDRESSES

_MOST_GROUPS = 64
_MOST_TOKENS = 1 << 14
"""The most tokens of one event that are hashed to try out a block size."""
_MOST_HASHES_AT_ONCE = 1 << 13
"""The most hashes between two requests, but for the last way of hashing, which may have 16,384 more."""
_MOST_PASSED_OVER = 1023
"""The most events that are passed over between two that are tried."""
_MOST_AHEAD = 4
"""The most tokens after a block that its hash may cover. vLLM 0.33 with a draft model covers 1, or more if it drafts in
parallel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedPlan:
    """The present knowledge, which is enough to follow the engine."""

    plan: PublishedPlan
    hash_seed: str
    lookahead_tokens: int
    """The tokens after a block that its hash covers too."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """The ways of hashing that are still to be tried on one event."""

    event: BlockStored
    identity: RequestIdentity
    tokens: Sequence[int]
    is_certain: bool
    """Whether the hashes are others than those of the engine's algorithm and seeds if no way fits."""
    left: Iterator[tuple[int, str, int]]


class PlanLearner:
    """Learns the plan of one engine. Plain data: events go in."""

    def __init__(
        self,
        *,
        hash_algorithm: str,
        hash_seeds: Sequence[str],
        adapters: Mapping[str, str] = MappingProxyType({}),
        remedy_of_seed: str = OF_ADDRESSES.seed,
    ) -> None:
        """`adapters`: by name, the path that takes part in hashes. Events tell the name only."""
        self._adapters = adapters
        self._remedy_of_seed = remedy_of_seed
        self._algorithm = hash_algorithm
        self._seeds = hash_seeds
        self._groups: dict[int, PublishedGroup] = {}
        self._told: PublishedPlan | None = None
        self._hashing: tuple[int, str, int] | None = None
        """Hash block size, seed and lookahead, once they are known."""
        self._num_passed_over = self._num_to_pass_over = 0
        """Events since the last one that was tried, and how many there must be until the next."""
        self._trial: _Trial | None = None

    def forget(self) -> None:
        """The engine may have begun anew, with another plan and another seed."""
        self._groups.clear()
        self._told = self._hashing = self._trial = None
        self._num_passed_over = self._num_to_pass_over = 0

    @property
    def plan(self) -> LearnedPlan | None:
        """None until a prompt's hashes are known, and all groups up to the last one that an event named, or the
        plan."""
        if self._hashing is None:
            return None
        hash_block_size, seed, ahead = self._hashing
        if self._told is not None:
            return LearnedPlan(plan=self._told, hash_seed=seed, lookahead_tokens=ahead)
        if len(self._groups) != max(self._groups) + 1:
            return None
        groups = [self._groups[index] for index in range(len(self._groups))]
        plan = PublishedPlan(hash_block_size=hash_block_size, groups=groups)
        return LearnedPlan(plan=plan, hash_seed=seed, lookahead_tokens=ahead)

    @property
    def is_told(self) -> bool:
        """Whether the engine told its plan, so that only its seed is tried out."""
        return self._told is not None

    @property
    def needs_tokens(self) -> bool:
        """Whether it still tries out how prompts are hashed."""
        return self._hashing is None

    def take_plan(self, plan: PublishedPlan) -> bool:
        """Takes the plan that an engine of Octavo tells among its events. Returns whether the plan is new or another
        one."""
        before, self._told = self.plan, plan.at_rest
        self._trial = None
        if self._hashing is not None and self._hashing[0] != plan.hash_block_size:
            self._hashing = None
        return self.plan != before

    @property
    def is_trying(self) -> bool:
        """Whether it has ways of hashing left to try: `go_on`."""
        return self._trial is not None

    def take(self, events: Iterable[AnyEvent]) -> bool:
        """Learns from one batch. Returns whether the plan is new or another one. InputError if the hashes are not those
        of the algorithm and the seeds."""
        before, num_left = self.plan, _MOST_HASHES_AT_ONCE
        for event in events:
            if isinstance(event, BlockStored) and event.block_size and event.group_idx is not None:
                self._learn_group(event.group_idx, event)
                if self._hashing is None:
                    self._begin_to_try(event)
                    num_left = self._try(num_left)
        return self.plan != before

    def go_on(self) -> bool:
        """Tries further ways of hashing, for as long as others may wait. Returns and raises as `take` does."""
        before = self.plan
        self._try(_MOST_HASHES_AT_ONCE)
        return self.plan != before

    def _learn_group(self, index: int, event: BlockStored) -> None:
        if index in self._groups or index >= _MOST_GROUPS or event.kv_cache_spec_kind is None:
            return
        group = PublishedGroup(
            kind=event.kv_cache_spec_kind,
            block_size=event.block_size,
            sliding_window=event.kv_cache_spec_sliding_window or None,
        )
        try:
            group.spec()
        except InputError:  # a rule that its events do not tell: as if the group needed nothing
            group = PublishedGroup(kind="sliding_window", block_size=event.block_size, sliding_window=1)
        self._groups[index] = group

    def _begin_to_try(self, event: BlockStored) -> None:
        """An event that says too little to be certain may fail for ever, so ever fewer of those are tried, and none
        while another one is: to hash a long one in all ways takes seconds."""
        identity = _identity_at_start(event, self._adapters)
        tokens = _tokens_to_hash(event)
        if event.parent_block_hash is not None or identity is None or not event.block_hashes or not tokens:
            return
        is_plain = not identity.multimodal and identity.lora_name is None
        is_certain = is_plain and _names_all_blocks(event) and len(tokens) == event.block_size + _MOST_AHEAD
        if self._trial is not None and (self._trial.is_certain or not is_certain):
            return
        if not is_certain and self._num_passed_over < self._num_to_pass_over:
            self._num_passed_over += 1
            return
        self._trial = _Trial(event, identity, tokens, is_certain, self._candidates(event.block_size))

    def _try(self, num_hashes: int) -> int:
        """Tries ways of hashing until one fits or that many hashes are made, and returns how many are left."""
        trial = self._trial
        if trial is None:
            return num_hashes
        first = trial.event.block_hashes[0]
        while num_hashes > 0:
            way = next(trial.left, None)
            if way is None:
                self._trial = None
                self._nothing_fits(trial)
                return num_hashes
            hash_block_size, seed, ahead = way
            hasher = BlockHasher(
                hash_block_size=hash_block_size, algorithm=self._algorithm, seed=seed, lookahead_tokens=ahead
            )
            num_hashes -= len(trial.tokens) // hash_block_size
            if first in external_hashes(hasher.hash_tokens(trial.tokens, trial.identity)):
                self._trial, self._hashing = None, way
                return num_hashes
        return num_hashes

    def _nothing_fits(self, trial: _Trial) -> None:
        self._num_passed_over, self._num_to_pass_over = 0, min(_MOST_PASSED_OVER, 2 * self._num_to_pass_over + 1)
        if trial.is_certain:
            seeds = " or ".join(f"{seed!r}" for seed in self._seeds)
            raise InputError(
                f"its hashes are not those of {self._algorithm} with the seed {seeds}: start vLLM with "
                f"PYTHONHASHSEED=0 and --prefix-caching-hash-algo sha256_cbor, or {self._remedy_of_seed}"
            )

    def _candidates(self, block_size: int) -> Iterator[tuple[int, str, int]]:
        """The block sizes to try, the likeliest first: all groups' blocks are whole hash blocks."""
        common = gcd(*(group.block_size for group in self._groups.values()), block_size)
        sizes = [size for size in range(common, 0, -1) if common % size == 0]
        for ahead in range(_MOST_AHEAD + 1):
            for size in sizes if self._told is None else [self._told.hash_block_size]:
                for seed in self._seeds:
                    yield size, seed, ahead


def _tokens_to_hash(event: BlockStored) -> Sequence[int]:
    """Those that decide the first hash that the event names, or that come before it where it is a later block's."""
    whole_blocks = _MOST_TOKENS // event.block_size * event.block_size
    names_first = _names_all_blocks(event) and whole_blocks
    return event.token_ids[: event.block_size + _MOST_AHEAD if names_first else whole_blocks]


def _names_all_blocks(event: BlockStored) -> bool:
    """A group that keeps some blocks only tells the extra keys of these, and so mostly no salt."""
    return len(event.block_hashes) * event.block_size == len(event.token_ids)


def _identity_at_start(event: BlockStored, adapters: Mapping[str, str]) -> RequestIdentity | None:
    """What the first named block has in its hash beside tokens; None if the event does not say enough."""
    adapter = event.lora_name
    if adapter not in adapters and (adapter, event.lora_id) != (None, None):
        return None
    salt, items, tokens = None, [], event.token_ids
    keys = next(iter(event.extra_keys or ()), None) or ()
    for key in keys[1:] if adapter is not None and keys[:1] == (adapter,) else keys:
        match key:
            case str() if salt is None:
                salt = key
            case (str(name), int(offset)) if 0 <= offset < len(tokens):
                items.append((name, offset))
            case _:
                return None
    try:
        places = [MultiModalItem(identifier=i, offset=at, length=_length_of_run(tokens[at:])) for i, at in items]
        path = "" if adapter is None else adapters[adapter]
        return RequestIdentity(lora_name=adapter, lora_path=path, cache_salt=salt, multimodal=tuple(places))
    except InputError:
        return None


def _length_of_run(tokens: Sequence[int]) -> int:
    """How many tokens at the start are equal. Events do not tell an image's length; most have one token throughout."""
    return sum(1 for _ in takewhile(tokens[0].__eq__, tokens))
