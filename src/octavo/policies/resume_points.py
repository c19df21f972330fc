"""The group-aware policy: what it keeps and gives up are resume points, not chunks.

A request resumes where every group has all that its spec needs, and nowhere else. So chunks are kept together with the
points that need them, and given up together with the last such point:

    unneeded chunks --> the least point --> ... --> what hangs on pinned chunks, as a last resort

    full point     promised by a writer, or found where all groups have what it needs while no writer ever promised.
                   Holds, in each group, the chunks that its spec needs there
    end            the last chunk so far of a group that needs its whole prefix, where no full point is (yet): a prefill
                   that goes on, or an encoder's input. Holds that prefix

What giving up a point frees is kept exact: it is reckoned anew whenever a neighbour on its chains comes or goes.
"""

from collections.abc import Iterator, Sequence

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
from octavo.policies.group_needs import GroupNeeds, needs_of_groups
from octavo.policies.hazards import Role, class_of
from octavo.policies.point_table import PointTable
from octavo.policies.safety_net import SafetyNet
from octavo.policies.stretch_columns import Links
from octavo.policies.stretches import StretchTable
from octavo.tables import Part

_MOST_RETURNED = 1024
"""Points that were stored again and are not promised yet. Beyond this number all are forgotten, and then count as
new."""


class ResumePointPolicy(EvictionPolicy):
    """Gives up resume points. The work of a call is proportional to the keys given or returned, plus, for each point,
    the stretches of its prefix."""

    def __init__(self, groups: Sequence[GroupOffloadConfig], num_slots: int, *, is_rival: bool = False) -> None:
        """`is_rival`: this policy plays for the learned order in a contest of orders."""
        self._is_rival = is_rival
        self._configs = groups
        self._groups = needs_of_groups(groups)
        decoder_groups = [group for group in self._groups if group.spec.indexes_decoder_tokens]
        self._prefix_groups = [group for group in decoder_groups if group.links is Links.PREFIX]
        self._run_groups = [group for group in decoder_groups if group.links is not Links.PREFIX]
        self._is_plain = len(self._groups) == len(self._prefix_groups) == 1
        """Every chunk's end is a boundary where requests can resume."""
        self._main_group = (self._prefix_groups or self._run_groups or self._groups)[0]
        self._num_slots = num_slots
        self._start()

    def clear(self) -> Sequence[Part]:
        parts = [*self._stretches.parts(), *self._points.parts()]
        self._start()
        return parts

    def _start(self) -> None:
        self._stretches = StretchTable({group.suffix: group.links for group in self._groups})
        self._points = PointTable(self._num_slots)
        self._returned: dict[bytes, None] = {}
        self._net = self._make_net()
        self._is_promised_to = False
        """Whether a writer says where the points are. Until then every boundary where a request can resume is a
        point."""

    def _make_net(self) -> SafetyNet | None:
        if self._is_rival or not self._is_plain:
            return None
        learned = ResumePointPolicy(self._configs, self._num_slots, is_rival=True)
        tokens_per_chunk = self._main_group.tokens_per_chunk
        return SafetyNet(learned, self._num_slots, tokens_per_chunk, self._stretches, self._points)

    def _worst(self, num_slots: int) -> tuple[int | None, int]:
        """The point to give up, and how many of its slots, if this many are wanted."""
        points, net = self._points, self._net
        if net is None or net.is_learned_best:
            return points.least_with_weights(points.worst(), by_use=False), num_slots
        point, some = net.least(num_slots) or (points.least_recent(), num_slots)
        worst = points.least_with_weights(point, by_use=True)
        return worst, some if worst == point else num_slots

    # ---- the contract ------------------------------------------------------------------------------------------

    def insert(self, chunks: Sequence[StoredChunk]) -> None:
        self._meet_ghosts(chunks)
        numbers = self._stretches.insert(chunks)
        self._points.now += sum([chunk[1] for chunk in chunks])
        ends = [self._stretches.keys[number][-1] for number in numbers]
        for number, key in zip(numbers, ends, strict=True):
            if self._group_of(key).links is Links.PREFIX:
                self._add_end(number)
        if not self._is_promised_to:
            for key in ends:
                self._find_full_point(key)
        self._reckon_changed()

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        """The last key that ends a point says which point is used, since a resume touches everything below the point
        too."""
        if self._net is not None:
            self._net.resume(keys)
        for key in reversed(keys):
            number = self._stretches.find(key)
            if number:
                self._use(number, key)
                if self._group_of(key).spec.indexes_decoder_tokens:
                    return

    def _use(self, number: int, key: OffloadKey) -> None:
        """A request resumed where this chunk ends. The points on its path count as used too."""
        points, hazards = self._points, self._points.hazards
        own = self._point_at(key)
        for below in self._stretches.down(number):
            point = self._stretches.points[below]
            if point and point != own and (below != number):
                hazards.use(points.lives[point], points.now, is_own=False)
        if own:
            hazards.use(points.lives[own], points.now, is_own=True)
            self._renew(own, Role.RESUMED)
        elif self._is_plain and self._stretches.is_complete(number):
            self._add_used(key)

    def _add_used(self, key: OffloadKey) -> None:
        """Where one request resumed another may, so this boundary becomes a point, wherever the writer's promises
        are."""
        number = self._stretches.cut_after(key)
        point = self._points.add(key, self._tokens_at(number), is_end=True)
        self._stretches.add_point(number, point)
        self._begin(point, key, Role.RESUMED)
        self._reckon_changed()

    def _meet_ghosts(self, chunks: Sequence[StoredChunk]) -> None:
        """Points that are stored again were given up too early."""
        points, suffix = self._points, self._main_group.suffix
        found = points.hazards.take_ghosts([chunk[0] for chunk in chunks if chunk[0][-4:] == suffix])
        for index, (key, life) in enumerate(found, start=1):
            points.hazards.use(life, points.now, is_own=index == len(found))
            if len(self._returned) >= _MOST_RETURNED:
                self._returned.clear()
            self._returned[key] = None

    def _renew(self, point: int, role: Role) -> None:
        points = self._points
        points.roles[point] = role
        points.renew(point, class_of(role, points.new_tokens[point], self._num_followers(point)))

    def _num_followers(self, point: int) -> int:
        tip = self._tip(point)
        return self._stretches.num_holders[tip] - 1 if tip and self._stretches.is_prefix(tip) else 0

    def _tip(self, point: int) -> int:
        """The stretch with which a point ends, in its first group; 0 if it needs nothing of that, as local attention
        needs nothing where its chunk ends."""
        return self._stretches.find(self._key_of(point))

    def _key_of(self, point: int) -> OffloadKey:
        name = self._points.names[point]
        return OffloadKey(name if self._points.is_end[point] else name + self._main_group.suffix)

    def promise(self, point: PromisedPoint) -> None:
        self._is_promised_to = True
        known = self._full_point(point.block_hash)
        if known:
            self._points.hazards.end(self._points.lives[known])
            is_new = self._points.last_use[known] == self._points.now
            role = Role(self._points.roles[known])
            self._renew(known, role if is_new or role == Role.RESUMED else Role.SEEN)
        else:
            self._add_full_point(point.num_tokens, point.block_hash)
            self._reckon_changed()
        if self._net is not None:
            self._net.serve(OffloadKey(point.block_hash + self._main_group.suffix))

    def pin(self, keys: Sequence[OffloadKey]) -> None:
        self._stretches.pin(keys)

    def unpin(self, keys: Sequence[OffloadKey]) -> None:
        for number in self._stretches.unpin(keys):
            if self._is_plain and self._stretches.is_unneeded(number):
                self._add_end(number)
        self._reckon_changed()

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        """A point is given up when its last chunks go. Any other chunk leaves a hole, which the next store fills."""
        for key in keys:
            point = self._point_at(key)
            if point:
                self._give_up(point)
            self._stretches.remove(key)
        self._note_gone(keys)

    def evict(self, num_slots: int) -> list[OffloadKey] | None:
        if self._stretches.num_idle_slots < num_slots:
            return None
        victims: list[OffloadKey] = []
        freed = self._stretches.pop_unneeded(num_slots, victims)
        while freed < num_slots:
            self._reckon_changed()
            point, some = self._worst(num_slots - freed)
            if point is None:
                freed += self._stretches.pop_idle(victims)
            elif self._is_plain:
                freed += self._strip(point, some, victims)
            else:
                self._points.hazards.note_given_up(self._key_of(point), self._points.lives[point])
                self._give_up(point)
            freed += self._stretches.pop_unneeded(num_slots - freed, victims)
        self._note_gone(victims)
        return victims

    def _note_gone(self, keys: Sequence[OffloadKey]) -> None:
        self._reckon_changed()
        if self._net is not None:
            self._net.gave_up(keys)

    def weigh(self, block_hash: BlockHash, weight: float) -> bool:
        self._points.weigh(block_hash, self._full_point(block_hash), weight)
        return True

    # ---- points ------------------------------------------------------------------------------------------------

    def kept_points(self) -> Iterator[PromisedPoint]:
        """The full points that are kept. A request can resume at each, unless a chunk of it was removed."""
        for point in self._points:
            if not self._points.is_end[point]:
                block_hash = BlockHash(self._points.names[point])
                yield PromisedPoint(num_tokens=self._points.num_tokens[point], block_hash=block_hash)

    def _group_of(self, key: OffloadKey) -> GroupNeeds:
        return self._groups[get_offload_group_idx(key)]

    def _point_at(self, key: OffloadKey) -> int:
        """The point that ends with this chunk; 0 if there is none."""
        number = self._stretches.find(key)
        return self._stretches.points[number] if number and self._stretches.keys[number][-1] == key else 0

    def _full_point(self, block_hash: BlockHash) -> int:
        for group in (*self._prefix_groups, *self._run_groups):
            point = self._point_at(OffloadKey(block_hash + group.suffix))
            if point and not self._points.is_end[point]:
                return point
        return 0

    def _find_full_point(self, key: OffloadKey) -> None:
        """Until a writer makes its first promise, the end of a stretch is a point if all groups are complete there."""
        group, block_hash = self._group_of(key), get_offload_block_hash(key)
        if group.spec.indexes_decoder_tokens and not self._full_point(block_hash):
            number = self._stretches.find(key)
            if number:
                index = self._stretches.starts[number] + self._stretches.keys[number].index(key)
                self._add_full_point((index + 1) * group.tokens_per_chunk, block_hash)

    def _add_full_point(self, num_tokens: int, block_hash: BlockHash) -> None:
        """Adds no point if a chunk that it needs is not there."""
        stretches = self._stretches
        tips = [OffloadKey(block_hash + group.suffix) for group in self._prefix_groups]
        runs = [(OffloadKey(block_hash + g.suffix), g.num_chunks(num_tokens)) for g in self._run_groups]
        if not tips and not any(count for _, count in runs):
            return
        if not all(stretches.is_complete(stretches.find(tip)) for tip in tips):
            return
        if not all(stretches.has_run(key, count) for key, count in runs):
            return
        point = self._points.add(block_hash, num_tokens, is_end=False)
        for tip in tips:
            number = stretches.cut_after(tip)
            if stretches.points[number]:
                self._points.hazards.end(self._points.lives[stretches.points[number]])
                self._give_up(stretches.points[number])
            stretches.add_point(number, point)
        for key, count in runs:
            for number in self._stretches.cut_run(key, count):
                stretches.hold(number, point)
            if count:
                stretches.points[stretches.find(key)] = point
        main = OffloadKey(block_hash + self._main_group.suffix)
        self._begin(point, main, Role.SEEN if main in self._returned else Role.NEW)

    def _begin(self, point: int, key: OffloadKey, role: Role) -> None:
        """Begins a point. The point below it, if it was promised just now, lies in between."""
        points = self._points
        below = self._point_below(point)
        points.new_tokens[point] = points.num_tokens[point] - (points.num_tokens[below] if below else 0)
        if below and points.roles[below] == Role.NEW and points.last_use[below] == points.now:
            points.hazards.end(points.lives[below])
            self._renew(below, Role.BETWEEN)
        self._renew(point, role)
        self._reckon(point)

    def _point_below(self, point: int) -> int:
        tip = self._tip(point)
        if not tip or not self._stretches.is_prefix(tip):
            return 0
        for number in self._stretches.down(self._stretches.before(tip)):
            if self._stretches.points[number]:
                return self._stretches.points[number]
        return 0

    def _add_end(self, number: int) -> None:
        """Adds an end: a prefix that ends here, if nothing is known to follow it and everything before it is there."""
        stretches = self._stretches
        if stretches.num_holders[number] or not stretches.is_complete(number):
            return
        before = stretches.before(number)
        former = before and stretches.points[before]
        if former and self._points.is_end[former] and self._points.roles[former] != Role.RESUMED:
            self._points.hazards.end(self._points.lives[former])
            self._give_up(former)
            number = stretches.absorb(before, number)
        key = stretches.keys[number][-1]
        point = self._points.add(key, self._tokens_at(number), is_end=True)
        stretches.add_point(number, point)
        self._begin(point, key, Role.NEW)

    def _tokens_at(self, number: int) -> int:
        keys = self._stretches.keys[number]
        return (self._stretches.starts[number] + len(keys)) * self._group_of(keys[-1]).tokens_per_chunk

    def _give_up(self, point: int) -> None:
        """Releases everything that a point holds."""
        name = self._points.names[point]
        if self._points.is_end[point]:
            self._stretches.remove_point(self._stretches.find(OffloadKey(name)))
        else:
            num_tokens = self._points.num_tokens[point]
            for group in self._prefix_groups:
                self._stretches.remove_point(self._stretches.find(OffloadKey(name + group.suffix)))
            for group in self._run_groups:
                key, count = OffloadKey(name + group.suffix), group.num_chunks(num_tokens)
                if count:
                    self._stretches.points[self._stretches.find(key)] = 0
                for number in self._stretches.cut_run(key, count):
                    self._stretches.release(number, point)
        self._points.remove(point)

    def _strip(self, point: int, num_slots: int, victims: list[OffloadKey]) -> int:
        """If every chunk's end can be resumed, a point gives up only its last chunks, as many as are wanted, and moves
        to the end of what is left. Returns the slots that become free."""
        stretches, name = self._stretches, self._points.names[point]
        is_end = self._points.is_end[point]
        number = stretches.find(OffloadKey(name if is_end else name + self._prefix_groups[0].suffix))
        self._points.hazards.note_given_up(stretches.keys[number][-1], self._points.lives[point])
        stretches.remove_point(number)
        freed = 0
        while freed < num_slots and number and stretches.is_unneeded(number):
            before = stretches.before(number)
            count = stretches.take_last(number, num_slots - freed, victims)
            freed += count
            if not stretches.keys[number]:
                number = before
        if number and stretches.is_unneeded(number):
            self._points.stand_at(point, stretches.keys[number][-1], self._tokens_at(number))
            stretches.add_point(number, point)
            self._reckon(point)
        else:
            self._points.remove(point)
        return freed

    # ---- what a point needs ------------------------------------------------------------------------------------

    def _reckon_changed(self) -> None:
        for point in self._stretches.take_changed():
            if point in self._points:
                self._reckon(point)

    def _reckon(self, point: int) -> None:
        num_slots = self._exclusive_slots(point)
        is_followed = self._num_followers(point) > 0
        if self._is_plain:
            tokens = num_slots * self._main_group.tokens_per_chunk
        else:
            below = self._point_below(point)
            tokens = self._points.num_tokens[point] - (self._points.num_tokens[below] if below else 0)
        self._points.set_worth(point, num_slots, tokens, is_followed=is_followed)

    def _exclusive_slots(self, point: int) -> int:
        """The slots that become free if a point is given up."""
        stretches, name = self._stretches, self._points.names[point]
        if self._points.is_end[point]:
            return stretches.exclusive_slots(stretches.find(OffloadKey(name)))
        total = sum(
            [stretches.exclusive_slots(stretches.find(OffloadKey(name + g.suffix))) for g in self._prefix_groups]
        )
        for group in self._run_groups:
            count = group.num_chunks(self._points.num_tokens[point])
            for number in self._stretches.cut_run(OffloadKey(name + group.suffix), count):
                if stretches.num_holders[number] == 1:
                    total += stretches.slots_of(number)
        return total

    def check_invariants(self) -> None:
        self._stretches.check_invariants()
        self._points.check_invariants()
        for point in self._points:
            assert self._points.freed[point] == self._exclusive_slots(point), "its worth is what giving it up frees"
