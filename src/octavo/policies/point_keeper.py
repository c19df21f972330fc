"""The resume points of a tier over its stretches: how they come, what they hold, and how they go.

Whatever a point holds, or frees when it goes, follows from the groups' specs and from the chunks' parents.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from octavo.chunks import (
    GroupOffloadConfig,
    OffloadKey,
    PromisedPoint,
    get_offload_block_hash,
    get_offload_group_idx,
)
from octavo.ids import BlockHash
from octavo.policies.group_needs import GroupNeeds, needs_of_groups
from octavo.policies.hazards import Role, class_of
from octavo.policies.point_table import PointTable
from octavo.policies.rivals import chunks_per_unit
from octavo.policies.stretch_columns import Links
from octavo.policies.stretches import StretchTable

_MOST_LOOKS = 64
_MOST_HELD = 256
"""About as many chunks of windows and states are held by the points that wait to be reckoned anew, and by those that
one eviction gives up though they free nothing yet, at some two microseconds each."""
_MOST_CHANGED = 64
"""The most points that wait to be reckoned anew, at some three microseconds each where they hold few chunks."""
_FAR = 1 << 20
"""A boundary beyond what any window spans, in tokens."""
_MOST_COUNTED = 1000
"""Promises whose mean length counts: a later one changes it by this part."""


class PointKeeper:
    """Points and stretches, and the rules that tie them."""

    def __init__(self, groups: Sequence[GroupOffloadConfig], num_slots: int, *, is_rival: bool = False) -> None:
        """`is_rival`: its chunks are units of a contest."""
        self._groups = needs_of_groups(groups)
        decoder_groups = [group for group in self._groups if group.spec.indexes_decoder_tokens]
        self._prefix_groups = [group for group in decoder_groups if group.links is Links.PREFIX]
        self._run_groups = [group for group in decoder_groups if group.links is not Links.PREFIX]
        self._is_plain = len(self._groups) == len(self._prefix_groups) == 1
        """Every chunk's end is a boundary where requests can resume."""
        self._main_group = (self._prefix_groups or self._run_groups or self._groups)[0]
        self._ending_groups = self._prefix_groups[:1] or self._run_groups
        """The groups of which one has a chunk that ends with each full point."""
        num_held = 1 + sum(group.num_chunks[_FAR - group.tokens_per_chunk] for group in self._run_groups)
        self._most_at_once = max(1, _MOST_HELD // num_held)
        """How many points hold as many chunks of windows and states, with the end of a prefix each."""
        self._num_slots = num_slots
        per_unit = chunks_per_unit(num_slots, self._main_group.tokens_per_chunk)
        self._num_units = num_slots // per_unit
        self._chunks_per_ghost = 1 if is_rival else per_unit
        self._start()

    def _start(self) -> None:
        self._stretches = StretchTable({group.suffix: group.links for group in self._groups})
        self._points = PointTable(
            self._num_slots,
            self._num_units,
            self._reckon_changed,
            self._frees_at_once,
            self._point_idle_longest,
            most_let_go=self._most_at_once,
            is_asked_by_use=self._is_plain,
        )
        self._more_tips = [self._points.new_column() for _ in self._prefix_groups[1:]]
        """Like `tips`, for each further group that needs its whole prefix."""
        self._ends_of_runs = [(group, self._points.new_column()) for group in self._run_groups]
        """With each group that needs a run: by point, the stretch with the last chunk of its run."""
        self._bare_tips: list[int] = []
        """Stretches that the last call has stored, and that nothing holds yet. Before the next call each gets an end,
        unless a promise has put a point there: the promise of a store follows it at once."""
        self._returned: dict[bytes, None] = {}
        """The chunks at which points that were given up are there again, and not promised yet."""
        self._mean_tokens, self._num_promises = 0.0, 0

    def _count_promise(self, num_tokens: int) -> None:
        self._num_promises = min(_MOST_COUNTED, self._num_promises + 1)
        self._mean_tokens += (num_tokens - self._mean_tokens) / self._num_promises

    def _renew(self, point: int, role: Role) -> None:
        self._points.roles[point] = role
        self._points.renew(point, self._class_of(point))

    def _class_of(self, point: int) -> int:
        points, tip = self._points, self._points.tips[point]
        new_share = points.new_tokens[point] / (self._mean_tokens or 1.0)
        return class_of(points.roles[point], new_share, self._stretches.num_holders[tip] - 1 if tip else 0)

    def _num_followers(self, point: int) -> int:
        tip = self._points.tips[point]
        return self._stretches.num_holders[tip] - 1 if tip else 0

    def _is_followed(self, key: bytes) -> bool:
        """Whether chunks of the main group that follow this block are there."""
        main = OffloadKey(get_offload_block_hash(OffloadKey(key)) + self._main_group.suffix)
        number = self._stretches.find(main)
        if not number:
            return False
        is_inside = self._stretches.keys[number][-1] != main
        return is_inside or self._stretches.num_holders[number] > (self._stretches.points[number] > 0)

    def _key_of(self, point: int) -> OffloadKey:
        name = self._points.names[point]
        return OffloadKey(name if self._points.is_end[point] else name + self._main_group.suffix)

    def _ghost_of(self, point: int) -> OffloadKey:
        """The chunk by which a point is remembered that is given up. Windows and states go with it; its prefix stays if
        others follow the point. Of a group that keeps nothing at this point no chunk will come back."""
        points = self._points
        if not points.is_end[point] and (self._num_followers(point) or not points.tips[point]):
            for group, ends in reversed(self._ends_of_runs):
                if ends[point]:
                    return OffloadKey(points.names[point] + group.suffix)
        return self._key_of(point)

    def _has_returned(self, block_hash: BlockHash) -> bool:
        """Whether a point that ended with this block was given up, and its chunks are there again."""
        if not self._returned:
            return False
        groups = (self._main_group, *self._run_groups)
        return any(OffloadKey(block_hash + group.suffix) in self._returned for group in groups)

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
        for group in self._ending_groups:
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

    def _add_full_point(self, num_tokens: int, block_hash: BlockHash, promised_tokens: int = 0) -> None:
        """Adds no point if a chunk that it needs is not there. `promised_tokens`: see `PromisedPoint`."""
        needed = self._find_needed(num_tokens, block_hash)
        if needed is None:
            return
        points, stretches, (tips, runs) = self._points, self._stretches, needed
        former = stretches.points[tips[0]] if self._is_plain else 0
        if former and not self._has_returned(block_hash):
            points.become_full(former, block_hash, num_tokens)
            return
        point = points.add(block_hash, num_tokens, tips[0] if tips else 0, is_end=False)
        for column, number in zip(self._more_tips, tips[1:], strict=True):
            column[point] = number
        for number in tips:
            former = stretches.points[number]
            if former:
                points.hazards.end(points.lives[former])
                self._give_up(former)
            stretches.add_point(number, point)
        for (_, ends), run in zip(self._ends_of_runs, runs, strict=True):
            ends[point] = stretches.hold_run(run, point)
        self._begin(point, Role.SEEN if self._has_returned(block_hash) else Role.NEW, promised_tokens)

    def _find_needed(self, num_tokens: int, block_hash: BlockHash) -> tuple[list[int], list[list[int]]] | None:
        """What a point needs: the last stretches of its prefixes, and the stretches of its runs; None if a chunk is not
        there, or if it needs none."""
        tips, runs = [], []
        for group in self._prefix_groups:
            tip = self._stretches.find_prefix(OffloadKey(block_hash + group.suffix))
            if not tip:
                return None
            tips.append(tip)
        for group in self._run_groups:
            count = group.num_chunks[num_tokens]
            run = self._stretches.find_run(OffloadKey(block_hash + group.suffix), count)
            if count and not run:
                return None
            runs.append(run)
        return (tips, runs) if tips or any(runs) else None

    def _begin(self, point: int, role: Role, promised_tokens: int = 0) -> None:
        """Begins a point. The point below it lies in between if the same request promised it."""
        points = self._points
        below = self._stretches.point_below(points.tips[point])
        points.new_tokens[point] = self._tokens_saved(point)
        if below and points.roles[below] == Role.NEW and points.num_tokens[below] <= promised_tokens:
            points.roles[below] = Role.BETWEEN
            points.turn_into(below, self._class_of(below))
        self._renew(point, role)
        self._stretches.changed.add(point)

    def _put_end(self, number: int, role: Role) -> None:
        """Adds an end where this stretch ends."""
        key = self._stretches.keys[number][-1]
        point = self._points.add(key, self._tokens_at(number), number, is_end=True)
        self._stretches.add_point(number, point)
        self._begin(point, role)

    def _add_end(self, number: int) -> None:
        """Adds an end: a prefix that ends here, if nothing is known to follow it and everything before it is there."""
        self._end_tip(self._join_former_end(number))

    def _join_former_end(self, number: int) -> int:
        """Gives up the end before a stretch that nothing holds, since the sequence goes on, and joins both stretches if
        they fit. Returns the stretch that has the last chunks then."""
        points, stretches = self._points, self._stretches
        before = stretches.befores[number]
        former = stretches.points[before]
        if not former or not points.is_end[former] or points.roles[former] == Role.RESUMED:
            return number
        if stretches.num_holders[number] or not stretches.is_complete(number):
            return number
        points.hazards.end(points.lives[former])
        self._give_up(former)
        return stretches.absorb(before, number)

    def _end_tip(self, number: int) -> None:
        if not self._stretches.num_holders[number] and self._stretches.is_complete(number):
            self._put_end(number, Role.NEW)

    def _end_bare_tips(self) -> None:
        for number in self._bare_tips:
            if not self._stretches.num_holders[number]:
                self._end_tip(number)
        self._bare_tips.clear()

    def _tokens_at(self, number: int) -> int:
        keys = self._stretches.keys[number]
        return (self._stretches.starts[number] + len(keys)) * self._group_of(keys[-1]).tokens_per_chunk

    def _give_up(self, point: int) -> None:
        """Releases everything that a point holds."""
        for number in self._held_by(point):
            self._stretches.remove_point(number, point)
        self._points.remove(point)

    def _strip(self, point: int, num_slots: int, victims: list[OffloadKey]) -> int:
        """If every chunk's end can be resumed, a point gives up only its last chunks, as many as are wanted, and moves
        to the end of what is left. Returns the slots that become free. One chunk of each unit is remembered, or one of
        all that the point gave up last."""
        stretches, number = self._stretches, self._points.tips[point]
        hazards, life = self._points.hazards, self._points.lives[point]
        stretches.remove_point(number, point)
        freed, start, ghosts = 0, len(victims), list[OffloadKey]()
        while freed < num_slots and number and stretches.is_unneeded(number):
            before = stretches.before(number)
            first = len(victims) + (stretches.starts[number] + len(stretches.keys[number])) % self._chunks_per_ghost
            freed += stretches.take_last(number, num_slots - freed, victims)
            ghosts += victims[first :: self._chunks_per_ghost]
            if not stretches.keys[number]:
                number = before
        if number and stretches.is_unneeded(number):
            self._points.stand_at(point, stretches.keys[number][-1], self._tokens_at(number), number)
            stretches.add_point(number, point)
            self._reckon(point)
        else:
            self._points.remove(point)
            ghosts = ghosts or victims[start : start + 1]
        hazards.note_given_up(ghosts, life)
        return freed

    # ---- what a point needs ------------------------------------------------------------------------------------

    def _bound_changed(self) -> None:
        """Points are reckoned when the least is sought. Where nothing goes for long they do not become too many for one
        call."""
        if len(self._stretches.changed) > min(_MOST_CHANGED, self._most_at_once):
            self._reckon_changed()

    def _reckon_changed(self) -> None:
        """Says what points are worth whose neighbours came or went."""
        changed = self._stretches.changed
        if changed:
            self._stretches.changed = set()
            for point in filter(self._points.__contains__, changed):
                self._reckon(point)

    def _reckon(self, point: int) -> None:
        points, stretches = self._points, self._stretches
        held, tip = self._held_by(point), points.tips[point]
        num_slots, shared = sum(map(stretches.exclusive_slots, held)), 0.0
        is_followed = tip > 0 and stretches.num_holders[tip] > 1
        if self._is_plain:
            tokens = max(1, num_slots) * self._main_group.tokens_per_chunk
        else:
            tokens = self._tokens_saved(point)
            num_prefixes = len(self._prefix_groups)
            if not num_slots:
                shared = sum(map(stretches.slots_per_holder, held[num_prefixes:]))
            elif not is_followed:
                shared = sum(map(stretches.shared_slots, held[:num_prefixes]))
        points.set_worth(point, num_slots, shared, tokens, is_followed=is_followed)

    def _tokens_saved(self, point: int) -> int:
        """Those beyond the next point below."""
        num_tokens = self._points.num_tokens
        return num_tokens[point] - num_tokens[self._stretches.point_below(self._points.tips[point])]

    def _exclusive_slots(self, point: int) -> int:
        """The slots that become free if a point is given up and nobody reads them."""
        return sum(map(self._stretches.exclusive_slots, self._held_by(point)))

    def _frees_at_once(self, point: int) -> bool:
        """Whether some slots become free now if a point is given up: of a stretch that it alone holds and nobody reads.
        Chunks before one that is read stay."""
        goes = self._stretches.goes_with_holder
        if goes(self._points.tips[point]):  # the last stretches first: most points free one of them
            return True
        if not self._points.is_end[point]:
            for _, ends in self._ends_of_runs:
                if goes(ends[point]):
                    return True
        return any(map(goes, self._held_by(point)))

    def _held_by(self, point: int) -> list[int]:
        """The stretches that a point holds: where it ends in groups that need their whole prefix, and its runs."""
        points, stretches = self._points, self._stretches
        tip = points.tips[point]
        held = [tip] if tip else []
        if points.is_end[point]:
            return held
        if self._more_tips:
            held += [tips[point] for tips in self._more_tips]
        num_tokens = points.num_tokens[point]
        for group, ends in self._ends_of_runs:
            last = ends[point]
            if last:
                count = group.num_chunks[num_tokens]
                held += (last,) if len(stretches.keys[last]) == count else stretches.cut_run(last, count)
        return held

    def _point_idle_longest(self) -> int:
        """The point without a weight to which the longest idle stretch belongs; 0 if the first few belong to none."""
        for number in islice(self._stretches.idle(), _MOST_LOOKS):
            point = self._stretches.only_point(number)
            if point and not self._points.is_weighed(point) and self._frees_at_once(point):
                return point
        return 0
