"""The group-aware policy: what it keeps and gives up are resume points, not chunks.

A request resumes where every group has all that its spec needs, and nowhere else. So chunks are kept together with the
points that need them, and given up together with the last such point:

    unneeded chunks --> the least point --> ... --> what hangs on pinned chunks, as a last resort

    full point     promised by a writer, or found where all groups have what it needs while no writer ever promised.
                   Holds, in each group, the chunks that its spec needs there
    end            the last chunk so far of a group that needs its whole prefix, where no full point is (yet): a prefill
                   that goes on, or an encoder's input. Holds that prefix

What giving up a point frees is exact whenever the least point is sought: it is reckoned anew then, if neighbours on its
chains came or went since.
"""

from collections.abc import Sequence

from octavo.chunks import GroupOffloadConfig, OffloadKey, PromisedPoint, StoredChunk, get_offload_block_hash
from octavo.ids import BlockHash
from octavo.policies.base import EvictionPolicy
from octavo.policies.hazards import FOLLOWED, Role
from octavo.policies.point_keeper import PointKeeper
from octavo.policies.safety_net import SafetyNet
from octavo.tables import Part

_MOST_RETURNED = 1024
"""Points that were stored again and are not promised yet. Beyond this number all are forgotten, and then count as
new."""


class ResumePointPolicy(PointKeeper, EvictionPolicy):
    """Gives up resume points. The work of a call is proportional to the keys given or returned, plus, for each point,
    the stretches of its prefix."""

    def __init__(self, groups: Sequence[GroupOffloadConfig], num_slots: int, *, is_rival: bool = False) -> None:
        """`is_rival`: this policy plays for the learned order in a contest of orders."""
        self._is_rival = is_rival
        self._configs = groups
        super().__init__(groups, num_slots, is_rival=is_rival)

    def clear(self) -> Sequence[Part]:
        parts = [*self._stretches.parts(), *self._points.parts()]
        self._start()
        return parts

    def _start(self) -> None:
        super()._start()
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
        self._reckon_changed()
        point, some = net.least(num_slots) or (points.least_recent(), num_slots)
        worst = points.least_with_weights(point, by_use=True)
        return worst, some if worst == point else num_slots

    # ---- the contract ------------------------------------------------------------------------------------------

    def insert(self, chunks: Sequence[StoredChunk]) -> None:
        if not chunks:
            return
        self._end_bare_tips()
        keys = tuple([chunk.key for chunk in chunks])
        slots = [chunk.num_slots for chunk in chunks]
        returned = self._meet_ghosts(keys)
        numbers = self._stretches.insert(keys, slots, chunks)
        self._points.now += sum(slots)
        if self._net is not None:
            self._net.stored(numbers)
        ends = [] if self._is_promised_to else [self._stretches.keys[number][-1] for number in numbers]
        for number in numbers:
            if self._stretches.in_prefix[number]:
                self._bare_tips.append(self._join_former_end(number))
        if self._is_plain:
            self._end_bare_tips()
        for key in ends:
            self._find_full_point(key)
        if returned and self._is_plain:
            self._add_returned(returned)
        self._bound_changed()

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        """The last key that ends a point says which point is used, since a resume touches everything below the point
        too. The points below are on the path of the main group, whichever group that key is of."""
        self._end_bare_tips()
        if self._net is not None:
            self._net.resume(keys)
        for key in reversed(keys):
            number = self._stretches.find(key)
            if number:
                main = OffloadKey(get_offload_block_hash(key) + self._main_group.suffix)
                on_path = self._stretches.find(main)
                self._use(on_path or number, main if on_path else key)
                if self._group_of(key).spec.indexes_decoder_tokens:
                    return

    def _use(self, number: int, key: OffloadKey) -> None:
        """A request resumed where this chunk ends. The points on its path count as used too: the lowest first, so that
        no point is older than one that it stands on."""
        points, hazards = self._points, self._points.hazards
        own = self._point_at(key)
        for below in reversed([*self._stretches.down(number)]):
            point = self._stretches.points[below]
            if point and point != own and below != number:
                hazards.use(points.lives[point], points.now, is_own=False)
                role = Role(points.roles[point])
                self._renew(point, Role.PASSED if role is Role.BETWEEN else role)
        if own:
            hazards.use(points.lives[own], points.now, is_own=True, is_followed=self._num_followers(own) > 0)
            self._renew(own, Role.RESUMED)
        elif self._is_plain and self._stretches.is_complete(number):
            self._add_used(key)

    def _add_used(self, key: OffloadKey) -> None:
        """Where one request resumed another may, so this boundary becomes a point, wherever the writer's promises
        are."""
        number = self._stretches.cut_after(key)
        above = self._stretches.point_above(number)
        if above:
            self._note_part_used(above, self._tokens_at(number))
        self._put_end(number, Role.RESUMED)

    def _note_part_used(self, point: int, num_tokens: int) -> None:
        """A request used the tokens up to here of those that this point alone holds, and went another way. It counts
        as a use in that proportion, and what is left is of another class."""
        points = self._points
        start = points.num_tokens[self._stretches.point_below(points.tips[point])]
        share = (num_tokens - start) / (points.num_tokens[point] - start)
        points.hazards.use(points.lives[point], points.now, is_own=True, share=share)
        points.new_tokens[point] = points.num_tokens[point] - num_tokens
        self._renew(point, Role.LEFT)

    def _meet_ghosts(self, keys: Sequence[OffloadKey]) -> OffloadKey | None:
        """What is stored again was given up too early: its points count as used, the last one for itself. Returns the
        last chunk that is remembered."""
        points = self._points
        found = points.hazards.take_ghosts(keys)
        if not found:
            return None
        last_key, last_life = found[-1]
        is_followed = self._is_followed(last_key)
        for life in dict.fromkeys([life for _, life in found]):
            points.hazards.use(life, points.now, is_own=life == last_life, is_followed=is_followed)
        if len(self._returned) + len(found) > _MOST_RETURNED:
            self._returned.clear()
        self._returned |= {key: None for key, _ in found}
        return OffloadKey(last_key)

    def _add_returned(self, key: OffloadKey) -> None:
        """A second request has come as far as here. So another may, and this boundary becomes a point."""
        number = self._stretches.find(key)
        if self._stretches.is_complete(number) and not self._point_at(key):
            self._put_end(self._stretches.cut_after(key), Role.SEEN)

    def promise(self, point: PromisedPoint) -> None:
        self._is_promised_to = True
        self._count_promise(point.num_tokens)
        known = self._full_point(point.block_hash)
        if known:
            self._points.hazards.end(self._points.lives[known])
            is_new = self._points.last_use[known] == self._points.now
            role = Role(self._points.roles[known])
            self._renew(known, role if is_new or role == Role.RESUMED else Role.SEEN)
        else:
            self._add_full_point(point.num_tokens, point.block_hash, point.promised_tokens)
            self._bound_changed()
        if self._net is not None:
            self._net.serve(OffloadKey(point.block_hash + self._main_group.suffix), point.promised_tokens)

    def pin(self, keys: Sequence[OffloadKey]) -> None:
        self._stretches.pin(keys)
        if self._net is not None:
            self._net.pin(keys)

    def unpin(self, keys: Sequence[OffloadKey]) -> None:
        numbers = self._stretches.unpin(keys)
        for number, point in zip(numbers, self._stretches.only_points(numbers), strict=True):
            if point:
                self._points.was_read(point)
            elif self._is_plain and self._stretches.is_unneeded(number):
                self._add_end(number)
        self._bound_changed()
        if self._net is not None:
            self._net.unpin(keys)

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        """A point is given up when its last chunks go. Any other chunk leaves a hole, which the next store fills."""
        self._end_bare_tips()
        for key in keys:
            point = self._point_at(key)
            if point:
                self._give_up(point)
            self._stretches.remove(key)
        self._bound_changed()
        if self._net is not None:
            self._net.gave_up(keys)

    def evict(self, num_slots: int) -> list[OffloadKey] | None:
        if self._stretches.num_idle_slots < num_slots:
            return None
        self._end_bare_tips()
        if self._net is not None:
            self._net.make_room(num_slots)
        self._points.begin_eviction()
        victims: list[OffloadKey] = []
        freed = self._stretches.pop_unneeded(num_slots, victims)
        while freed < num_slots:
            point, some = self._worst(num_slots - freed)
            if point is None:
                freed += self._stretches.pop_idle(victims)
            elif self._is_plain:
                freed += self._strip(point, some, victims)
            else:
                self._points.hazards.note_given_up([self._ghost_of(point)], self._points.lives[point])
                self._give_up(point)
            freed += self._stretches.pop_unneeded(num_slots - freed, victims)
        if self._net is not None:
            self._net.gave_up(victims)
        return victims

    def weigh(self, block_hash: BlockHash, weight: float) -> bool:
        self._points.weigh(block_hash, self._full_point(block_hash), weight)
        return True

    def keeps(self, block_hash: BlockHash) -> bool:
        return bool(self._full_point(block_hash))

    def _saves_what_is_known(self, point: int) -> bool:
        """Whether a point's worth counts its tokens. They may be old where what lies below it parts; and those of a
        point that nobody follows are shared."""
        points, tip = self._points, self._points.tips[point]
        if self._is_plain or points.rows[point] < FOLLOWED or self._stretches.parts_below(tip):
            return True
        num_slots = points.freed[point] + points.shared[point]
        return points.tokens_per_slot[point] == self._tokens_saved(point) / (num_slots or 1)

    def check_invariants(self) -> None:
        self._stretches.check_invariants()
        reckoned = set(self._points) - self._stretches.changed
        for point in reckoned:
            assert self._points.freed[point] == self._exclusive_slots(point), "its worth is what giving it up frees"
            assert self._saves_what_is_known(point), "and the tokens beyond the next point below"
        self._points.check_invariants(reckoned)
        assert self._stretches.numbers().issuperset(self._bare_tips), "a bare tip is a stretch that is there"
        if self._net is not None:
            self._net.check_invariants()
        for point in self._points:
            if self._points.tips[point]:
                assert self._points.tips[point] == self._stretches.find(self._key_of(point))
            for group, ends in [] if self._points.is_end[point] else self._ends_of_runs:
                last = self._stretches.find(OffloadKey(self._points.names[point] + group.suffix))
                assert ends[point] == (last if group.num_chunks[self._points.num_tokens[point]] else 0)
