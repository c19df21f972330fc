"""No value fits two branches of a `oneOf` that is followed; others are refused by name."""

import jsonschema
import pytest
from hypothesis import given, strategies as st

from octavo.engine.grammars import json_grammar
from octavo.engine.grammars.one_of import settle_one_of
from octavo.errors import InputError


def item(**about):
    return {"type": "object", **about}


def tagged(tag, *required):
    return item(properties={"kind": {"const": tag}, "size": {"type": "integer"}}, required=list(required))


APART = {
    "types": [{"type": "string"}, {"type": ["null", "boolean"]}, {"type": "integer"}, item()],
    "values": [{"const": "a", "title": "A"}, {"enum": ["b", 1, None]}, {"const": True}, {"const": {"a": [1.5]}}],
    "a value and a type": [{"const": "a"}, {"type": "number"}, {"type": "object"}],
    "a value and a range": [{"const": 7}, {"type": "integer", "minimum": 8}, {"type": "number", "exclusiveMaximum": 7}],
    "ranges": [{"type": "integer", "maximum": 5}, {"type": "number", "exclusiveMinimum": 5}],
    "lengths": [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 4}],
    "numbers of items": [{"type": "array", "maxItems": 1}, {"type": "array", "minItems": 2}],
    "items": [{"type": "array", "minItems": 1, "items": {"type": t}} for t in ("string", "integer")],
    "first items": [{"type": "array", "minItems": 1, "prefixItems": [{"const": tag}]} for tag in ("a", "b")],
    "tags": [tagged(tag, "kind") for tag in "abc"],
    "definitions": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, {"type": "null"}],
    "parts": [{"allOf": [{"$ref": "#/$defs/a"}, {"required": ["size"]}]}, {"$ref": "#/$defs/b"}],
    "required in one and none of the other's": [
        item(properties={name: {}}, required=[name], additionalProperties=False) for name in "ab"
    ],
    "within alternatives": [{"anyOf": [{"type": "string"}, {"type": "null"}]}, {"oneOf": [item(), {"const": 3}]}],
    "one": [{"type": "string"}],
}
DEFS = {"a": tagged("a", "kind"), "b": tagged("b", "kind"), "loop": {"$ref": "#/$defs/loop"}}
OVERLAPPING = {
    "an integer is a number": [{"type": "integer"}, {"type": "number"}],
    "the same value": [{"const": "a"}, {"enum": ["b", "a"]}],
    "equal numbers": [{"const": [1, {"a": 2}]}, {"const": [1.0, {"a": 2.0}]}],
    "a value of the type": [{"type": "string"}, {"const": "a"}],
    "open objects": [item(properties={name: {}}, required=[name]) for name in "ab"],
    "an empty list is one of each": [{"type": "array", "items": {"type": t}} for t in ("string", "integer")],
    "no types": [
        tagged("a", "kind") | {"type": ["object", "null"]},
        tagged("b", "kind") | {"type": ["object", "null"]},
    ],
    "patterns": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "b$"}],
    "edges": [{"type": "integer", "maximum": 5}, {"type": "integer", "minimum": 5}],
    "anything": [True, {"type": "string"}],
    "a loop": [{"$ref": "#/$defs/loop"}, {"type": "string"}],
    "elsewhere": [{"$ref": "https://example.org/a"}, {"type": "string"}],
    "two tags that are equal": [tagged("a", "kind"), tagged("a", "kind"), tagged("b", "kind")],
}


@pytest.mark.parametrize("branches", APART.values(), ids=APART)
def test_branches_that_are_apart(branches):
    schema = {"oneOf": branches, "$defs": DEFS}
    assert settle_one_of(schema, is_strict=True) == schema


@pytest.mark.parametrize("branches", OVERLAPPING.values(), ids=OVERLAPPING)
def test_branches_that_overlap_are_named(branches):
    schema = item(properties={"a": {"anyOf": [{"type": "null"}, {"oneOf": [{"const": None}, *branches]}]}})
    schema |= {"$defs": DEFS}
    with pytest.raises(
        InputError, match=r"#/properties/a/anyOf/1/oneOf cannot be enforced.* both branch \d and branch \d"
    ):
        json_grammar(schema)
    assert settle_one_of(schema, is_strict=False) == schema
    json_grammar(schema, is_strict=False)


def test_a_tag_becomes_required():
    settled = settle_one_of(
        {"oneOf": [tagged("a"), tagged("b", "size"), {"$ref": "#/$defs/a"}], "$defs": {"a": tagged("c")}},
        is_strict=True,
    )
    assert [branch["required"] for branch in settled["oneOf"]] == [["kind"], ["size", "kind"], ["kind"]]
    around = settle_one_of(
        item(properties={"kind": {}}, oneOf=[{"properties": {"kind": {"const": t}}} for t in "ab"]), is_strict=True
    )
    assert [branch["required"] for branch in around["oneOf"]] == [["kind"], ["kind"]]


def test_what_is_no_list_of_names_is_left_to_the_compiler():
    schema = {"oneOf": [tagged("a") | {"required": "size"}, tagged("b")]}
    assert settle_one_of(schema, is_strict=True)["oneOf"][0] == schema["oneOf"][0]


def test_what_only_looks_like_a_schema_is_left_alone():
    schema = item(properties={"oneOf": {"const": {"oneOf": [True, True]}}, "a": {"enum": [{"oneOf": [{}, {}]}]}})
    assert settle_one_of(schema, is_strict=True) == schema


def test_comparing_has_an_end():
    chain = {f"a{i}": {key: [{"$ref": f"#/$defs/a{i + 1}"}] * 2 for key in ("allOf", "anyOf")} for i in range(100)}
    for branches in ([{}] * 5000, [{"$ref": "#/$defs/a0"}, {"$ref": "#/$defs/a1"}]):
        schema = {"oneOf": branches, "$defs": chain}
        assert settle_one_of(schema, is_strict=False) == schema
    with pytest.raises(InputError, match="too many branches to compare"):
        settle_one_of({"oneOf": branches, "$defs": chain}, is_strict=True)
    for branches in ([{"const": i} for i in range(3000)], [tagged(str(i), "kind") for i in range(800)]):
        settle_one_of({"oneOf": branches}, is_strict=True)


SCALARS = [None, True, False, 0, 1, 2, 1.0, 1.5, "", "a", "bb", "b"]
VALUES = [
    *SCALARS, [], [1], ["a"], ["a", 1], [None, "a"], {}, {"k": "a"}, {"k": 1}, {"j": "a"}, {"k": "a", "j": 1},
    {"k": "b", "i": 1},
]  # fmt: skip
leaves = st.one_of(
    st.builds(lambda t: {"type": t}, st.sampled_from(["null", "boolean", "integer", "number", "string"])),
    st.builds(lambda v: {"const": v}, st.sampled_from(SCALARS)),
    st.builds(lambda v: {"enum": v}, st.lists(st.sampled_from(SCALARS), min_size=1, max_size=3)),
    st.builds(lambda low: {"type": "number", "minimum": low}, st.integers(0, 2)),
    st.builds(lambda high: {"type": "integer", "exclusiveMaximum": high}, st.integers(0, 2)),
    st.builds(lambda size: {"type": "string", "maxLength": size}, st.integers(0, 2)),
    st.builds(lambda size: {"minLength": size}, st.integers(0, 2)),
    st.sampled_from([{}, {"$ref": "#/$defs/one"}, {"$ref": "#/$defs/other"}]),
)
keys = st.lists(st.sampled_from("ijk"), max_size=2, unique=True)


def nested(schemas):
    properties = st.dictionaries(st.sampled_from("jk"), schemas, max_size=2)
    return st.one_of(
        st.builds(
            lambda p, r, a: item(properties=p, required=r, additionalProperties=a), properties, keys, st.booleans()
        ),
        st.builds(lambda p, r: {"properties": p, "required": r}, properties, keys),
        st.builds(lambda i, n: {"type": "array", "items": i, "minItems": n}, schemas, st.integers(0, 2)),
        st.builds(lambda i, n: {"type": "array", "prefixItems": [i], "maxItems": n}, schemas, st.integers(0, 2)),
        st.builds(lambda k, s: {k: s}, st.sampled_from(["anyOf", "allOf"]), st.lists(schemas, min_size=1, max_size=2)),
    )


schemas = st.recursive(leaves, nested, max_leaves=4)


@given(
    branches=st.lists(schemas, min_size=2, max_size=3), around=st.just({}) | schemas, defs=st.tuples(schemas, leaves)
)
def test_no_value_fits_two_branches_of_what_is_followed(branches, around, defs):
    own = {"$defs": dict(zip(("one", "other"), defs, strict=True))}
    try:
        settled = settle_one_of({**around, "oneOf": branches, **own}, is_strict=True)
    except InputError:
        return
    of_any = {"anyOf": settled.pop("oneOf")}
    follows = jsonschema.Draft202012Validator({"allOf": [settled, of_any], **own})
    wanted = jsonschema.Draft202012Validator({**around, "oneOf": branches, **own})
    for value in VALUES:
        assert wanted.is_valid(value) or not follows.is_valid(value), value
