"""Classes by name: what packages bring through entry points, and what goes wrong with them."""

import logging
import sys

import pytest

from octavo.errors import ConflictingRegistrationError, InputError, InvalidRegistrationError
from octavo.registry import ClassRegistry
from rigs.plugins import plugin_folder

GROUP = "octavo.test_shapes"


class Shape:
    """What the registry holds."""


class Round(Shape):
    pass


class Square(Shape):
    pass


@pytest.fixture
def shapes():
    return ClassRegistry[Shape]("shape", Shape, GROUP, {"round": f"{__name__}:Round"})


@pytest.fixture
def install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Shape.__module__])
    with plugin_folder(tmp_path, GROUP) as plugins:
        yield plugins.install


SOURCE = f"from {__name__} import Shape\n\nclass Mine(Shape):\n    pass\n"


def test_what_is_built_in_and_what_is_registered(shapes, install):
    assert shapes.find("round") is Round
    assert shapes.register("square")(Square) is Square
    shapes.register("square")(Square)
    assert (shapes.find("square"), shapes.names()) == (Square, ["round", "square"])
    assert [shapes.name_of(shape) for shape in (Round, Square, Shape)] == ["round", "square", "Shape"]


def test_a_conflict_names_both(shapes):
    shapes.register("square")(Square)
    with pytest.raises(ConflictingRegistrationError, match="square is registered as Square; it cannot also be Round"):
        shapes.register("square")(Round)


def test_only_subclasses_are_registered(shapes):
    with pytest.raises(InvalidRegistrationError, match="is not a subclass of Shape"):
        shapes.register("three")(int)


def test_a_package_is_imported_when_its_name_is_asked_for(shapes, install):
    module = install("mine", SOURCE, ":Mine")
    assert shapes.names() == ["mine", "round"]
    assert module not in sys.modules
    assert shapes.find("mine").__name__ == "Mine"


def test_a_broken_package_is_named_with_its_cause_and_hides_no_other(shapes, install):
    install("broken", "import octavo_no_such_module", ":Thing")
    install("empty", "", ":Thing")
    install("mine", SOURCE, ":Mine")
    install("odd", "Thing = 3", ":Thing")
    install("plain", "")
    for name, cause in {
        "broken": r"shape 'broken': octavo_test_broken:Thing cannot be imported: ModuleNotFoundError: No module named",
        "empty": "cannot be imported: AttributeError: .*Thing",
        "odd": "shape 'odd': 3 is not a subclass of Shape",
        "plain": "cannot be imported",
        "none": "shape 'none' is not known; choose one of: broken, empty, mine, odd, plain, round",
    }.items():
        with pytest.raises(InputError, match=cause):
            shapes.find(name)
    assert shapes.find("mine").__name__ == "Mine"


def test_no_package_replaces_what_is_built_in(shapes, install, caplog):
    install("round", SOURCE, ":Mine", package="rival")
    with caplog.at_level(logging.WARNING, logger="octavo.registry"):
        assert shapes.names() == ["round"]
    assert shapes.find("round") is Round
    assert "plug-in round (octavo_test_rival:Mine) was not loaded" in caplog.text


def test_two_packages_with_one_name_harm_only_whoever_asks_for_it(shapes, install):
    install("mine", SOURCE, ":Mine", package="first")
    install("mine", SOURCE, ":Mine", package="second")
    install("other", SOURCE, ":Mine")
    assert shapes.find("other").__name__ == "Mine"
    with pytest.raises(ConflictingRegistrationError, match=r"octavo_test_first:Mine.*octavo_test_second:Mine"):
        shapes.find("mine")
