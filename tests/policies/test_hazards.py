"""What is learned about one class of points, and what the others take from it."""

from octavo.policies.hazards import NUM_CLASSES, Hazards

USED, UNUSED = 3, 40


def test_each_class_has_its_own_index_and_those_without_lives_are_alike() -> None:
    hazards = Hazards(num_slots=1000, num_units=1000)
    for now in range(640):
        used = hazards.begin(USED, now)
        hazards.begin(UNUSED, now)
        hazards.use(used, now, is_own=True)
    for index in (hazards.index_own, hazards.index_all):
        others = [index[class_] for class_ in range(NUM_CLASSES) if class_ not in (USED, UNUSED)]
        assert all(other == others[0] for other in others)
        assert index[USED][0] > others[0][0] > index[UNUSED][0]
