"""What is learned about one class of points, and what the others take from it."""

import numpy as np
import pytest

from octavo.policies.hazards import FOLLOWED, NUM_AGES, Hazards, Role, class_of, gittins
from octavo.policies.point_table import PointTable

USED, UNUSED = 3, 8


def hazards_of(num_slots: int) -> Hazards:
    return Hazards(num_slots, num_slots)


def used_and_unused(*, is_own: bool) -> Hazards:
    """Every life of one class is used at once, and none of another."""
    hazards = hazards_of(1000)
    for now in range(640):
        used = hazards.begin(USED, now)
        hazards.begin(UNUSED, now)
        hazards.use(used, now, is_own=is_own)
    return hazards


def test_each_class_has_its_own_index_and_those_of_a_role_without_lives_are_alike() -> None:
    hazards = used_and_unused(is_own=True)
    for index in (hazards.index[FOLLOWED:], hazards.index[:FOLLOWED]):
        others = [index[class_] for class_ in range(class_of(Role.SEEN, 0, 0)) if class_ not in (USED, UNUSED)]
        assert all(np.array_equal(other, others[0]) for other in others)
        assert index[USED][0] > others[0][0] > index[UNUSED][0]


def test_a_life_is_used_once() -> None:
    """A second use tells nothing more about it."""
    once, twice = hazards_of(1000), hazards_of(1000)
    for hazards, uses in ((once, 1), (twice, 3)):
        for now in range(200):
            life = hazards.begin(USED, now)
            for _ in range(uses):
                hazards.use(life, now, is_own=True)
    assert np.array_equal(once.index[FOLLOWED:], twice.index[FOLLOWED:])


def test_a_life_that_turns_into_another_class_counts_there() -> None:
    """As much is learned of that class as if it had been of it from the beginning; a few are counted before."""
    turned, begun = hazards_of(1000), hazards_of(1000)
    for now in range(200):
        life = turned.begin(UNUSED, now)
        turned.turn_into(life, USED)
        turned.use(life, now, is_own=True)
        begun.use(begun.begin(USED, now), now, is_own=True)
    assert turned.index[FOLLOWED + USED][0] == pytest.approx(begun.index[FOLLOWED + USED][0], rel=0.05)
    assert turned.index[FOLLOWED + UNUSED][0] < turned.index[FOLLOWED + USED][0] / 2


def test_the_life_of_a_point_turns_with_it() -> None:
    points = PointTable(1000, 1000, lambda: None, lambda _: True, lambda: 0, most_let_go=1, is_asked_by_use=False)
    for number in range(200):
        point = points.add(b"%d" % number, 16, 0, is_end=False)
        points.renew(point, UNUSED)
        points.turn_into(point, USED)
        points.hazards.use(points.lives[point], points.now, is_own=True)
    assert points.hazards.index[FOLLOWED + UNUSED][0] < points.hazards.index[FOLLOWED + USED][0] / 2


def test_a_life_that_had_its_use_turns_into_nothing() -> None:
    """Else its next use would count as one of another life."""
    turned, left_alone = hazards_of(1000), hazards_of(1000)
    for now in range(200):
        for hazards in (turned, left_alone):
            life = hazards.begin(USED, now)
            hazards.use(life, now, is_own=True)
            if hazards is turned:
                hazards.turn_into(life, UNUSED)
            hazards.use(life, now, is_own=True)
    assert np.array_equal(turned.index[FOLLOWED:], left_alone.index[FOLLOWED:])


def test_the_oldest_ghosts_are_forgotten_at_the_bound() -> None:
    hazards = hazards_of(1)
    life = hazards.begin(USED, 0)
    keys = [number.to_bytes(4, "big") for number in range(10_000)]
    for key in keys:
        hazards.note_given_up([key], life)
    hazards.note_given_up(keys[-10:], life)
    found = [key for key, _ in hazards.take_ghosts(keys)]
    assert found == keys[-len(found) :]
    assert 4000 < len(found) < 5000
    assert hazards.take_ghosts(keys) == []


def test_where_little_is_known_a_role_says_what_to_expect() -> None:
    hazards = hazards_of(1000)
    new, resumed, left = (class_of(role, 0.5, 0) for role in (Role.NEW, Role.RESUMED, Role.LEFT))
    assert hazards.index[resumed][9] > hazards.index[new][9] > hazards.index[left][9]


def test_of_many_lives_a_few_more_do_not_make_a_new_index(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    learn_index = Hazards._learn_index
    monkeypatch.setattr(Hazards, "_learn_index", lambda self: computed.append(self._num_lives) or learn_index(self))
    hazards = hazards_of(1000)
    for now in range(1 << 16):
        hazards.begin(USED, now)
    gaps = np.diff(computed)
    assert gaps[1:60].tolist() == [64] * 59, "while little is known all of it is used at once"
    assert gaps[-1] == 512
    assert len(computed) < 300


def naive_index(rates: list[float], widths: list[float], age: int) -> float:
    """The best of all horizons, each followed by itself."""
    found, unused, uses, time = 0.0, 1.0, 0.0, 0.0
    for rate, width in zip(rates[age:], widths[age:], strict=True):
        uses += unused * rate
        time += unused * width * (1 - rate / 2)
        unused *= 1 - rate
        found = max(found, uses / time)
    return found


@pytest.mark.parametrize("power", [1, 3, 8])
def test_the_index_is_the_most_uses_per_time_over_all_horizons(power: int) -> None:
    rates = 0.95 * np.random.default_rng(power).random((5, NUM_AGES)) ** power
    widths = 2 ** (np.arange(NUM_AGES) / 2)
    index = gittins(rates, widths)
    for own, found in zip(rates.tolist(), index.tolist(), strict=True):
        assert found == pytest.approx([naive_index(own, widths.tolist(), age) for age in range(NUM_AGES)], rel=1e-4)


def test_where_every_life_was_used_the_index_still_is_a_number() -> None:
    """So few lives reach the last ages that sums do not tell them apart."""
    index = gittins(np.full((1, NUM_AGES), 0.95), np.ones(NUM_AGES))
    assert np.isfinite(index).all()
    assert (index > 0).all()
    assert index[0, 0] == pytest.approx(0.95 / (1 - 0.95 / 2))


def test_a_life_has_reached_an_age_when_it_is_so_old() -> None:
    """Every second life is used at one age, well after it was counted as having come there, and no life at any
    other."""
    hazards, age = hazards_of(1000), 12
    delay = int(hazards.ages[age]) + 100
    lives: list[int] = []
    for now in range(6400):
        lives.append(hazards.begin(USED, now))
        if now >= delay and now % 2:
            hazards.use(lives[now - delay], now, is_own=True)
    rates = np.zeros((1, NUM_AGES))
    rates[0, age] = 0.5
    widths = np.diff([*hazards.ages, hazards.ages[-1] * 2**0.5])
    assert hazards.index[FOLLOWED + USED][0] == pytest.approx(gittins(rates, widths)[0, 0], rel=0.1)


def test_what_uses_a_longer_point_is_no_use_of_its_own() -> None:
    hazards = used_and_unused(is_own=False)
    assert hazards.index[USED][0] > 2 * hazards.index[UNUSED][0]
    assert hazards.index[FOLLOWED + USED][0] == pytest.approx(hazards.index[FOLLOWED + UNUSED][0], rel=0.1)


@pytest.mark.parametrize("num_followers", [0, 1])
def test_what_a_followed_point_serves_once_it_is_the_last_one_is_its_end_s(num_followers: int) -> None:
    """Where its end is given up before, the end would have served the use: the point itself was not wanted."""
    class_ = class_of(Role.BETWEEN, 0.1, num_followers)
    followed, last = hazards_of(1000), hazards_of(1000)
    for hazards, is_followed in ((followed, True), (last, False)):
        for now in range(640):
            hazards.use(hazards.begin(class_, now), now, is_own=True, is_followed=is_followed)
    assert np.array_equal(last.index[:FOLLOWED], followed.index[:FOLLOWED])
    assert (last.index[FOLLOWED + class_][0] < followed.index[FOLLOWED + class_][0]) == (num_followers > 0)


@pytest.mark.parametrize("num_slots", [1, 100, 1000, 12_345])
def test_ages_are_the_same_for_one_and_for_many(num_slots):
    """Also where an age begins, which is no whole number."""
    hazards = Hazards(num_slots, num_slots)
    starts = {int(start) + more for start in hazards.ages for more in (-1, 0, 1, 2)}
    whole = np.array(sorted(start for start in starts if start >= 0))
    assert hazards.ages_of(whole).tolist() == [hazards.age_of(age) for age in whole]
