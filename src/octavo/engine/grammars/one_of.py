"""`settle_one_of`: a JSON schema whose `oneOf` can be followed as `anyOf`, as no value fits two of its branches.

A grammar follows one branch, and cannot rule out that others fit too. So branches must be apart:

    by type               {"type": "string"}    {"type": "null"}
    by value              {"const": "a"}        {"enum": ["b", "c"]}
    by range or length    {"maximum": 0}        {"minimum": 1}
    by a property         both objects need it, and it is apart; or one needs it, and the other may not have it

A tag (a property of fixed values that differ in all objects) becomes required: pydantic does not require those that
have a default.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from typing import Any
from urllib.parse import unquote

from octavo.errors import InputError

_WITH_SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_WITH_SCHEMAS = frozenset(
    {"additionalProperties", "items", "prefixItems", "anyOf", "allOf", "oneOf", "not", "contains"}
)
_TYPES = frozenset({"null", "boolean", "integer", "fraction", "string", "array", "object"})
_ATOMS = {"number": frozenset({"integer", "fraction"})}
_RANGES = {
    "integer": ("minimum", "maximum"),
    "fraction": ("minimum", "maximum"),
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_MOST_LOOKED_AT = 50_000
"""Of what schemas list, all comparisons together."""
_MOST_DEPTH = 8
_MOST_ELEMENTS = 8
"""Of an array: the first ones, by which two arrays may be apart."""

Facts = Sequence[Mapping[str, Any]]
"""Schemas that a value must all fit: one, what it refers to, and the parts of its `allOf`."""


def settle_one_of(schema: Mapping[str, Any], *, is_strict: bool) -> dict[str, Any]:
    """The schema, with tags required. If it is strict, InputError names the branches that a value might both fit."""
    try:
        settled: dict[str, Any] = _Settler(schema, is_strict=is_strict).settle(schema, "#")
    except _TooMuchError:
        if is_strict:
            raise InputError("the schema has oneOf with too many branches to compare; say anyOf") from None
        return dict(schema)
    return settled


class _TooMuchError(Exception):
    """Nobody waits for more comparisons."""


class _Settler:
    def __init__(self, root: Mapping[str, Any], *, is_strict: bool) -> None:
        self._root = root
        self._is_strict = is_strict
        self._num_left = _MOST_LOOKED_AT

    def settle(self, schema: Any, at: str) -> Any:
        if not isinstance(schema, Mapping):
            return schema
        settled: dict[str, Any] = {}
        for key, value in schema.items():
            if key in _WITH_SCHEMAS_BY_NAME and isinstance(value, Mapping):
                settled[key] = {name: self.settle(one, f"{at}/{key}/{name}") for name, one in value.items()}
            elif key in _WITH_SCHEMAS and isinstance(value, list):
                settled[key] = [self.settle(one, f"{at}/{key}/{index}") for index, one in enumerate(value)]
            else:
                settled[key] = self.settle(value, f"{at}/{key}") if key in _WITH_SCHEMAS else value
        if isinstance(branches := settled.get("oneOf"), list) and len(branches) > 1:
            around = {key: value for key, value in schema.items() if key != "oneOf"}
            settled["oneOf"] = self._settle_branches(branches, around, f"{at}/oneOf")
        return settled

    def _settle_branches(self, branches: list[Any], around: Mapping[str, Any], at: str) -> list[Any]:
        facts = [[*self._facts(around), *self._facts(branch)] for branch in branches]
        tagged, tag = self._find_tag(facts)
        for one, other in self._find_overlaps(facts, tagged) if self._is_strict else ():
            raise InputError(
                f"{at} cannot be enforced: a value might fit both branch {one} and branch {other}. Set them apart by "
                "type, const, enum, range, or a property that both require; or say anyOf"
            )
        return [
            {**branch, "required": [*branch.get("required", ()), tag]}
            if index in tagged and tag not in _required(facts[index]) and isinstance(branch.get("required", []), list)
            else branch
            for index, branch in enumerate(branches)
        ]

    def _find_tag(self, facts: Sequence[Facts]) -> tuple[frozenset[int], str]:
        """The branches that are objects, and a property whose values tell them apart once each has it; none if there is
        no such property."""
        objects = [index for index, own in enumerate(facts) if _types(own) == {"object"}]
        names = [_names(facts[index]) for index in objects]
        for key in sorted(set.intersection(*names)) if len(objects) > 1 else ():
            values = [self._values(self._property(facts[index], key)) for index in objects]
            if all(own is not None for own in values) and _find_common(values) is None:
                return frozenset(objects), key
        return frozenset(), ""

    def _find_overlaps(self, facts: Sequence[Facts], tagged: Collection[int]) -> Iterator[tuple[int, int]]:
        """Pairs of branches that are not known to be apart."""
        values = [self._values(own) for own in facts]
        if (common := _find_common(values)) is not None:
            yield common
        listed = [index for index, own in enumerate(values) if own is not None and index not in tagged]
        rest = [index for index in range(len(facts)) if index not in tagged and values[index] is None]
        pairs = chain(  # of the tagged and the listed there may be thousands
            combinations(rest, 2), product(rest, listed), product(rest, tagged), product(listed, tagged)
        )
        for one, other in pairs:
            if not self._are_apart(facts[one], facts[other], 0):
                yield min(one, other), max(one, other)

    def _are_apart(self, one: Facts, other: Facts, depth: int) -> bool:
        """Whether it is certain that no value fits both."""
        if depth > _MOST_DEPTH:
            return False
        ours, theirs = self._values(one), self._values(other)
        if ours is not None and theirs is not None:
            return not ours.keys() & theirs.keys()
        if ours is not None or theirs is not None:
            (values, facts) = (ours, other) if ours is not None else (theirs, one)
            return not any(_may_be(value, facts) for value in (values or {}).values())
        if all(self._are_apart_as(kind, one, other, depth) for kind in _types(one) & _types(other)):
            return True
        return self._is_no_alternative(one, other, depth) or self._is_no_alternative(other, one, depth)

    def _is_no_alternative(self, one: Facts, other: Facts, depth: int) -> bool:
        """Whether all alternatives of one are apart from the other."""
        return any(
            all(self._are_apart(self._facts(alternative), other, depth + 1) for alternative in alternatives)
            for fact in one
            for key in ("anyOf", "oneOf")
            if isinstance(alternatives := fact.get(key), list) and alternatives
        )

    def _are_apart_as(self, kind: str, one: Facts, other: Facts, depth: int) -> bool:
        if kind in _RANGES and _is_beyond(_RANGES[kind], one, other):
            return True
        if kind == "array":
            return self._are_apart_arrays(one, other, depth)
        return kind == "object" and self._are_apart_objects(one, other, depth)

    def _are_apart_arrays(self, one: Facts, other: Facts, depth: int) -> bool:
        common = min(_bound("minItems", one, least=True) or 0, _bound("minItems", other, least=True) or 0)
        return any(
            self._are_apart(self._element(one, index), self._element(other, index), depth + 1)
            for index in range(min(int(common), _MOST_ELEMENTS))
        )

    def _are_apart_objects(self, one: Facts, other: Facts, depth: int) -> bool:
        ours, theirs = _required(one), _required(other)
        if any(_forbids(other, key) for key in ours) or any(_forbids(one, key) for key in theirs):
            return True
        return any(
            self._are_apart(self._property(one, key), self._property(other, key), depth + 1) for key in ours & theirs
        )

    def _property(self, facts: Facts, key: str) -> Facts:
        return [own for fact in facts if key in _properties(fact) for own in self._facts(_properties(fact)[key])]

    def _element(self, facts: Facts, index: int) -> Facts:
        found: list[Mapping[str, Any]] = []
        for fact in facts:
            first, rest = fact.get("prefixItems"), fact.get("items")
            is_first = isinstance(first, list) and index < len(first)
            found += self._facts(first[index] if is_first and isinstance(first, list) else rest)
        return found

    def _values(self, facts: Facts) -> dict[str, Any] | None:
        self._look_at(facts)
        return _values(facts)

    def _look_at(self, *lists: Facts) -> None:
        self._num_left -= sum(1 + sum(map(_length, fact.values())) for facts in lists for fact in facts)
        if self._num_left < 0:
            raise _TooMuchError

    def _facts(self, schema: Any, seen: set[str] | None = None) -> list[Mapping[str, Any]]:
        if schema is False:
            return [{"enum": []}]
        if not isinstance(schema, Mapping):
            return []
        facts, seen = [schema], set() if seen is None else seen
        self._look_at(facts)
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref not in seen:
            seen.add(ref)
            self._num_left -= ref.count("/")
            facts += self._facts(self._resolve(ref), seen)
        parts = schema.get("allOf")
        for part in parts if isinstance(parts, list) else ():
            facts += self._facts(part, seen)
        return facts

    def _resolve(self, ref: str) -> Any:
        """What a reference within the schema points to; nothing is known of others."""
        if not ref.startswith("#"):
            return True
        found: Any = self._root
        for part in ref[1:].split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(key)] if key.isdecimal() and int(key) < len(found) else True
            else:
                found = found.get(key, True) if isinstance(found, Mapping) else True
        return found


def _properties(fact: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = fact.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _names(facts: Facts) -> set[str]:
    return {key for fact in facts for key in _properties(fact)}


def _required(facts: Facts) -> set[str]:
    lists = (fact.get("required") for fact in facts)
    return {key for keys in lists if isinstance(keys, list) for key in keys if isinstance(key, str)}


def _forbids(facts: Facts, key: str) -> bool:
    return any(
        _properties(fact).get(key) is False
        or (
            fact.get("additionalProperties") is False
            and key not in _properties(fact)
            and not fact.get("patternProperties")
        )
        for fact in facts
    )


def _types(facts: Facts) -> frozenset[str]:
    types = _TYPES
    for fact in facts:
        own = fact.get("type")
        names: Iterable[Any] = [own] if isinstance(own, str) else own if isinstance(own, list) else _TYPES
        types &= {atom for name in names if isinstance(name, str) for atom in _ATOMS.get(name, {name})}
    return types


def _values(facts: Facts) -> dict[str, Any] | None:
    """The only values that fit, each under its text; None if they are not listed."""
    for fact in facts:
        listed = [fact["const"]] if "const" in fact else fact.get("enum")
        if isinstance(listed, list):
            return {_text_of(value): value for value in listed}
    return None


def _find_common(values: Iterable[Mapping[str, Any] | None]) -> tuple[int, int] | None:
    """Two branches that list the same value."""
    seen: dict[str, int] = {}
    for index, own in enumerate(values):
        for text in own or ():
            if text in seen:
                return seen[text], index
        seen.update(dict.fromkeys(own or (), index))
    return None


def _text_of(value: Any) -> str:
    """Equal values have equal texts, as 1 and 1.0."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_plain(one) for one in value]
        case dict():
            return {key: _plain(one) for key, one in value.items()}
        case _:
            return value


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | Mapping) else 0


def _may_be(value: Any, facts: Facts) -> bool:
    kind = _kind_of(value)
    if kind not in _types(facts):
        return False
    size = value if kind in ("integer", "fraction") else len(value) if kind in _RANGES else None
    as_fact = {} if size is None else dict.fromkeys(_RANGES[kind], size)
    return not (as_fact and _is_beyond(_RANGES[kind], [as_fact], facts))


def _kind_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "integer" if int(value) == value else "fraction"
        case str():
            return "string"
        case _:
            return "array" if isinstance(value, list) else "object"


def _is_beyond(names: tuple[str, str], one: Facts, other: Facts) -> bool:
    """Whether all sizes of one lie below or above all of the other."""
    return _is_above(names, one, other) or _is_above(names, other, one)


def _is_above(names: tuple[str, str], one: Facts, other: Facts) -> bool:
    low, high = names
    least, most = _bound(low, one, least=True), _bound(high, other, least=False)
    beyond, below = _bound("exclusiveMinimum", one, least=True), _bound("exclusiveMaximum", other, least=False)
    if low != "minimum":
        beyond = below = None
    pairs = [(beyond, most), (least, below), (beyond, below)]
    is_at_edge = any(a is not None and b is not None and a >= b for a, b in pairs)
    return is_at_edge or (least is not None and most is not None and least > most)


def _bound(name: str, facts: Facts, *, least: bool) -> float | None:
    found = [fact.get(name) for fact in facts]
    numbers = [number for number in found if isinstance(number, int | float) and not isinstance(number, bool)]
    return (max(numbers) if least else min(numbers)) if numbers else None
