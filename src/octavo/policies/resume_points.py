"""The group-aware policy: what it keeps and gives up are resume points, not chunks.

A request resumes where every group has all that its spec needs, and nowhere else. So chunks are kept together with the
points that need them, and given up together with the last such point:

    unneeded chunks --> least point: tokens saved per slot, per age --> ... --> what pins leave, as a last resort

    full point     promised by a writer, or found where all groups have what it needs while no writer ever promised.
                   Holds, in each group, the chunks that its spec needs there. Named by the hash of its block
    end            the last chunk so far of a group that needs its whole prefix, where no full point is (yet): a prefill
                   that goes on, or an encoder's input, which no point's hash names. Holds that prefix. Named by its key

A point that a later one of its chain supersedes counts a tenth, unless the chain forks there: a conversation goes on
from its last turn. The later point takes over what the former one saved and how often the chain was used.

Pinned chunks stay when their point is given up, and are unneeded once unpinned: a point that is being read was touched
just now, so this is rare, and keeping the whole point would let one pinned chunk hold any amount of idle memory.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from octavo.chunks import (
    GroupOffloadConfig,
    OffloadKey,
    PromisedPoint,
    StoredChunk,
    get_offload_block_hash,
    get_offload_group_idx,
)
from octavo.ids import BlockHash
from octavo.policies.base import EvictionPolicy
from octavo.policies.chunk_forest import ChunkForest, Links, Stretch
from octavo.policies.group_needs import needs_of_groups
from octavo.policies.point_table import Point, PointTable
from octavo.tables import Part

MAX_STEPS = 4096
"""Chunks that a search for the point below looks at, in two milliseconds or so. Farther down it takes the chain for
whole, without a point."""


class ResumePointPolicy(EvictionPolicy):
    """Gives up resume points, the least tokens saved per slot and age first.

    Work per call: in proportion to the keys given or returned, plus, for each point, the chunks of its windows and at
    most `MAX_STEPS` per prefix group.
    """

    def __init__(self, groups: Sequence[GroupOffloadConfig], num_slots: int) -> None:
        self._groups = needs_of_groups(groups)
        self._decoder_groups = [group for group in self._groups if group.spec.indexes_decoder_tokens]
        self._prefix_groups = [group for group in self._decoder_groups if group.links is Links.PREFIX]
        self._start()

    def clear(self) -> Sequence[Part]:
        parts = [*self._forest.parts(), *self._points.parts()]
        self._start()
        return parts

    def _start(self) -> None:
        self._forest = ChunkForest({group.suffix: group.links for group in self._groups})
        self._points = PointTable()
        self._slots_stored = 0
        self._is_promised_to = False
        """Whether a writer says where points are. Until then they are where they can be."""

    # ---- chunks come and go ------------------------------------------------------------------------------------

    def insert(self, chunks: Sequence[StoredChunk]) -> None:
        stretches = self._forest.insert(chunks)
        self._slots_stored += sum([stretch.num_slots for stretch in stretches])
        for stretch in stretches:
            if self._groups[get_offload_group_idx(stretch.last.key)].links is Links.PREFIX:
                self._add_end(stretch)
        if not self._is_promised_to:
            for stretch in stretches:
                self._find_full_point(stretch.last)
        self._requeue_exposed()

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        """The last key that ends a point says which point is used: a resume touches all that is below it too."""
        self._forest.renew_unneeded(keys)
        for key in reversed(keys):
            block_hash = get_offload_block_hash(key)
            name: bytes = block_hash if block_hash in self._points else key
            if name in self._points:
                self._renew(name, num_uses=1)
                if self._groups[get_offload_group_idx(key)].spec.indexes_decoder_tokens:
                    return

    def promise(self, point: PromisedPoint) -> None:
        self._is_promised_to = True
        if point.block_hash in self._points:
            self._renew(point.block_hash, num_uses=0)
        else:
            self._add_full_point(point.num_tokens, point.block_hash)
        self._requeue_exposed()

    def pin(self, keys: Sequence[OffloadKey]) -> None:
        self._forest.pin(keys)

    def unpin(self, keys: Sequence[OffloadKey]) -> None:
        self._forest.unpin(keys)

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        """A point whose last chunks go is given up. Another chunk leaves a hole, which the next store heals."""
        for key in keys:
            self._remove(key)
        self._requeue_exposed()

    def _remove(self, key: OffloadKey) -> None:
        self._give_up_at(key)
        self._forest.remove(key)

    def evict(self, num_slots: int) -> list[OffloadKey] | None:
        if self._forest.num_idle_slots < num_slots:
            return None
        victims, freed = self._forest.pop_unneeded(num_slots)
        while freed < num_slots:
            name = self._points.worst(self._slots_stored)
            if name is not None:
                self._give_up(name)
            else:
                freed += self._strip_pinned(victims)
            more, slots = self._forest.pop_unneeded(num_slots - freed)
            victims += more
            freed += slots
            self._requeue_exposed()
        return victims

    def _strip_pinned(self, victims: list[OffloadKey]) -> int:
        """The last resort: all that is left idle hangs on pinned chunks. Gives up their points and parents, which
        leaves holes below them, and lets go of the rest. The slots that this frees."""
        freed = 0
        for key in list(self._forest.pinned_keys()):
            self._give_up_at(key)
            parent = self._forest.parent_of(key)
            if parent is not None and self._hangs_on_pinned(parent):
                freed += self._forest.slots_of(parent)
                victims.append(parent)
                self._remove(parent)
        return freed

    def _hangs_on_pinned(self, key: OffloadKey) -> bool:
        is_prefix = self._groups[get_offload_group_idx(key)].links is Links.PREFIX
        return is_prefix and self._forest.holders_of(key) > 0 and self._forest.is_idle(key)

    # ---- points ------------------------------------------------------------------------------------------------

    def kept_points(self) -> Iterator[PromisedPoint]:
        """The full points that are kept. A request can resume at each, unless a chunk of it was removed."""
        for name, point in self._points.items():
            if not point.is_end:
                yield PromisedPoint(num_tokens=point.num_tokens, block_hash=BlockHash(name))

    def _find_full_point(self, last: StoredChunk) -> None:
        """What can be resumed where a stretch of chunks ends, is a point while no writer ever promised."""
        group = self._groups[get_offload_group_idx(last.key)]
        block_hash = get_offload_block_hash(last.key)
        if group.spec.indexes_decoder_tokens and block_hash not in self._points:
            self._add_full_point((last.position + 1) * group.tokens_per_chunk, block_hash)

    def _add_full_point(self, num_tokens: int, block_hash: BlockHash) -> None:
        """Adds no point if a chunk that it needs is not there."""
        held = self._find_needed(num_tokens, block_hash)
        tips = [OffloadKey(block_hash + group.suffix) for group in self._prefix_groups]
        if not held or not all(tip in self._points or self._add_branch(num_tokens, tip) for tip in tips):
            return
        for key in held:
            self._forest.hold(key)
        ends = [self._points[tip] for tip in tips]
        for tip in tips:
            self._give_up(tip)
        first = ends[0] if ends else self._new_point(num_tokens)
        self._put(
            block_hash,
            first._replace(
                last_use=self._slots_stored,
                num_tokens=num_tokens,  # the end's chunk may be full only up to here
                prefix_slots=sum([end.prefix_slots for end in ends]),
                run_slots=sum([self._forest.slots_of(key) for key in held if self._is_held_alone_in_run(key)]),
                is_end=False,
            ),
        )

    def _add_branch(self, num_tokens: int, tip: OffloadKey) -> bool:
        """An end in the middle of a chain. False if a chunk before it is not there."""
        below = self._look_below(tip)
        if below is not None:
            self._add(tip, self._new_point(num_tokens), below)
        return below is not None

    def _add_end(self, stretch: Stretch) -> None:
        """A prefix that ends here so far, if nothing is known to come after it and all before it is there."""
        last = stretch.last
        if self._forest.holders_of(last.key):
            return
        below = _Below(0, None, is_fork=False)
        if stretch.parent is not None:
            found = self._look_below(stretch.parent, num_holders=1)
            if found is None:
                return
            below = found
        group = self._groups[get_offload_group_idx(last.key)]
        num_slots = below.num_slots + stretch.num_slots
        num_tokens = (last.position + 1) * group.tokens_per_chunk
        self._add(last.key, self._new_point(num_tokens), below._replace(num_slots=num_slots))

    def _new_point(self, num_tokens: int) -> Point:
        return Point(
            last_use=self._slots_stored,
            num_tokens=num_tokens,
            tokens_saved=num_tokens,
            tokens_beyond=num_tokens,
            prefix_slots=0,
            run_slots=0,
        )

    def _add(self, key: OffloadKey, point: Point, below: "_Below") -> None:
        """Adds an end, upon what lies below it."""
        self._forest.hold(key)
        point = point._replace(prefix_slots=below.num_slots, is_end=True)
        if below.name is not None:
            former = self._points[below.name]
            point = _build_on(point, former, is_fork=below.is_fork)
            if former.is_end:
                self._give_up(below.name)
            elif former.is_superseded == below.is_fork:
                self._put(below.name, former._replace(is_superseded=not below.is_fork))
        self._put(key, point)

    def _renew(self, name: bytes, *, num_uses: int) -> None:
        point = self._points[name]
        self._put(name, point._replace(last_use=self._slots_stored, num_uses=point.num_uses + num_uses))

    def _put(self, name: bytes, point: Point) -> None:
        """A point that holds nothing for itself alone, since chunks follow it, is not worth giving up."""
        is_queued = point.is_end or point.run_slots > 0 or not self._is_followed(name)
        self._points.put(name, point, is_queued=is_queued)

    def _is_followed(self, block_hash: bytes) -> bool:
        return any(self._forest.holders_of(OffloadKey(block_hash + group.suffix)) > 1 for group in self._prefix_groups)

    def _give_up(self, name: bytes) -> None:
        """Lets go of all that a point holds."""
        point = self._points.pop(name)
        if point.is_end:
            self._forest.release(OffloadKey(name))
        else:
            for key in list(self._find_held(point.num_tokens, BlockHash(name))):
                self._forest.release(key)

    def _give_up_at(self, key: OffloadKey) -> None:
        """Gives up the points that end with this chunk."""
        for name in (get_offload_block_hash(key), key):
            if name in self._points:
                self._give_up(name)

    def _requeue_exposed(self) -> None:
        """A point after which nothing comes any more is the end of its chain again."""
        for key in self._forest.take_exposed():
            block_hash = get_offload_block_hash(key)
            if block_hash in self._points:
                point = self._points[block_hash]
                if point.is_superseded or not point.is_queued:
                    self._put(block_hash, point._replace(is_superseded=False))

    # ---- what a point needs ------------------------------------------------------------------------------------

    def _find_held(self, num_tokens: int, block_hash: BlockHash) -> Iterator[OffloadKey]:
        """The chunks that a full point here holds: in each group the last ones, as far as links lead. Links do not
        change, and a chunk that is held keeps its own, so what was held is found again."""
        for group in self._decoder_groups:
            key: OffloadKey | None = OffloadKey(block_hash + group.suffix)
            for _ in range(group.num_chunks(num_tokens)):
                if key is None:
                    break
                yield key
                key = self._forest.parent_of(key)

    def _find_needed(self, num_tokens: int, block_hash: BlockHash) -> list[OffloadKey]:
        """The same, or nothing if one that is needed is not there."""
        held: list[OffloadKey] = []
        for key in self._find_held(num_tokens, block_hash):
            if not self._forest.slots_of(key):
                return []
            held.append(key)
        return held

    def _is_held_alone_in_run(self, key: OffloadKey) -> bool:
        is_prefix = self._groups[get_offload_group_idx(key)].links is Links.PREFIX
        return not is_prefix and self._forest.holders_of(key) == 1

    def _look_below(self, key: OffloadKey, *, num_holders: int = 0) -> "_Below | None":
        """From this chunk of a prefix down to the next point, of which the chunk itself may be one. `num_holders`: of
        this chunk, on behalf of the asker. None if a chunk on the way is not there."""
        forest, points = self._forest, self._points
        num_slots, is_shared = 0, False
        for _ in range(MAX_STEPS):
            slots, holders, parent = forest.look_up(key)
            if not slots:
                return None
            if holders > num_holders:
                block_hash = get_offload_block_hash(key)
                name: bytes = block_hash if block_hash in points else key
                if name in points:
                    return _Below(num_slots, name, is_fork=holders > num_holders + 1)
                is_shared = True
            if not is_shared:
                num_slots += slots
            if parent is None:
                break
            key, num_holders = parent, 1
        return _Below(num_slots, None, is_fork=False)

    def check_invariants(self) -> None:
        self._points.check_invariants()
        holders: Counter[OffloadKey] = Counter()
        for name, point in self._points.items():
            held = [OffloadKey(name)] if point.is_end else self._find_held(point.num_tokens, BlockHash(name))
            holders.update(held)
        self._forest.check_invariants(holders)


class _Below(NamedTuple):
    """What lies below a new point."""

    num_slots: int
    """Of chunks that only it needs, down to the next point or the beginning."""
    name: bytes | None
    is_fork: bool
    """Whether other chunks follow that point too."""


def _build_on(point: Point, former: Point, *, is_fork: bool) -> Point:
    """A new point, given the one below it. Where the chain does not fork there, it takes over."""
    beyond = max(1, point.num_tokens - former.num_tokens)  # a chunk that is not full ends before its end
    if is_fork:
        return point._replace(tokens_saved=beyond, tokens_beyond=beyond)
    return point._replace(
        tokens_saved=beyond + former.tokens_saved,
        tokens_beyond=beyond + former.tokens_beyond if former.is_end else beyond,
        prefix_slots=point.prefix_slots + former.prefix_slots,
        num_uses=former.num_uses,
    )
