"""What a person configures: frozen structs that check themselves, and one sentence for each mistake.

    class DiskConfig(Settings):
        what = "disk tier"
        path: Path
        size_bytes: Size = msgspec.field(name="size")
        read_threads: Annotated[int, Meta(ge=1, le=64)] = 4

    DiskConfig.from_mapping({"path": "/nvme", "size": "8 apples"})
    InputError: disk tier: size: '8 apples' is not a size; write it like 40GiB, 512MiB or 80GB

The types say what is allowed, msgspec checks it, and `explain` makes a sentence with key, value and remedy of each of
msgspec's errors, for the bodies of requests too.
"""

import ast
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import getsource
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NoReturn, Self, Union, cast, get_args, get_origin

import msgspec
import yaml
from msgspec import Meta, inspect

from octavo.errors import InputError
from octavo.units import parse_bytes

Seconds = Annotated[float, Meta(gt=0, le=1e9, description="a number of seconds above 0")]
Count = Annotated[int, Meta(ge=1)]
Secret = Annotated[str, Meta(extra={"is_secret": True})]
"""Text that no command shows."""


class _Size(int):
    """A number of bytes, which a person may also write as 8GiB. It tells msgspec to ask `_read_size`; the value of a
    field is a plain int."""


if TYPE_CHECKING:
    Size = int
else:
    Size = _Size


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration. However it is made, from a person's mapping or in Python, its values have been checked."""

    what: ClassVar[str] = ""
    """The name of what is configured, for messages."""
    joined: ClassVar[tuple[type["Settings"], ...]] = ()
    """Whose settings these are too (`joined_settings`)."""
    readers: ClassVar[Mapping[type, Callable[[object], Any]]] = MappingProxyType({})
    """Per type that msgspec does not know: a function that reads a person's value, or raises InputError."""

    @classmethod
    def from_mapping(cls, config: object) -> Self:
        """Reads a person's mapping. InputError names a wrong key or value, and the right ones."""
        try:
            return msgspec.convert(config, cls, dec_hook=cls._read)
        except msgspec.ValidationError as error:
            cls._refuse(explain(error, config, cls).sentence)
        except InputError as error:  # of a check that concerns several values
            cls._refuse(str(error))

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            checked = self.check_value(field, getattr(self, field.name), key=field.encode_name)
            msgspec.structs.force_setattr(self, field.name, int(checked) if isinstance(checked, _Size) else checked)

    @classmethod
    def check_value(cls, field: msgspec.structs.FieldInfo, value: object, *, key: str) -> Any:
        """The checked value of one field. InputError calls it `key`."""
        try:
            checked = msgspec.convert(value, field.type, dec_hook=cls._read)
        except UnicodeEncodeError:
            raise InputError(_NO_TEXT.format(key)) from None
        except msgspec.ValidationError as error:
            raise InputError(explain(error, value, field.type, key=key).sentence) from None
        if not all(map(_is_text, checked if isinstance(checked, tuple) else (checked,))):
            raise InputError(_NO_TEXT.format(key))
        return checked

    @classmethod
    def _refuse(cls, sentence: str) -> NoReturn:
        raise InputError(f"{cls.what}: {sentence}" if cls.what else sentence) from None

    @classmethod
    def _read(cls, kind: type, value: object) -> object:
        """msgspec's hook. msgspec wants a ValueError, and adds where the value stands."""
        if isinstance(value, kind):
            return value
        try:
            return {**_READERS, **cls.readers}[kind](value)
        except InputError as error:
            raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """What is wrong with one value of a configuration, or of a request."""

    key: str
    """Where it stands: `tiers[0].size`. Empty for the whole."""
    sentence: str


def explain(
    error: msgspec.ValidationError, config: object, kind: Any, *, key: str = "", whole: str = "this"
) -> Complaint:
    """The sentence for one of msgspec's errors: `config` was read as `kind`, and stands at `key`; all of it is called
    `whole`."""
    message = str(error)
    place = _find_place(message, config, kind, key)
    if isinstance(error.__cause__, ValueError):  # a reader's own words
        return Complaint(key=place.key, sentence=_at(place.key, str(error.__cause__)))
    if unknown := re.match(r"Object contains unknown field `(.*?)`", message):
        return Complaint(key=place.key, sentence=_at(place.key, _unknown(unknown[1], place.kind)))
    if missing := re.match(r"Object missing required field `(.*?)`", message):
        place = place.at_field(missing[1])
        return Complaint(key=place.key, sentence=f"{place.key} is missing; give {describe(place.kind)}")
    if "at `key` in" in message:
        return Complaint(key=place.key, sentence=f"the keys of {place.key} must be text")
    subject = place.key or whole
    return Complaint(key=place.key, sentence=f"{subject} must be {describe(place.kind)}, not {shown(place.value)}")


def joined_settings(base: type[Settings], kinds: Sequence[type[Settings]]) -> type[Settings]:
    """The base with all that its kinds add to it: a struct cannot inherit from several."""
    make_field: Any = msgspec.field  # it takes a default or a factory, and NODEFAULT for the other one
    added = [
        (
            field.name,
            field.type,
            make_field(name=field.encode_name, default=field.default, default_factory=field.default_factory),
        )
        for kind in kinds
        for field in msgspec.structs.fields(kind)
        if field.name not in base.__struct_fields__
    ]
    joined: Any = msgspec.defstruct(
        "Joined", added, bases=(base,), namespace={"joined": tuple(kinds)}, frozen=True, kw_only=True
    )
    return cast("type[Settings]", joined)


def texts_of(kind: type[Settings]) -> dict[str, str]:
    """The docstring below each field, by the field's name: the one text for help and docs."""
    texts: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        for joined in vars(cls).get("joined", ()):
            texts |= texts_of(joined)
        if issubclass(cls, Settings) and cls is not Settings and not vars(cls).get("joined"):
            (body,) = ast.parse(dedent(getsource(cls))).body
            texts |= _texts_in(body)
    return texts


def _texts_in(body: ast.stmt) -> dict[str, str]:
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def describe(kind: Any) -> str:
    """A type as a person knows it: `a whole number from 1 to 64`."""
    return _describe(inspect.type_info(kind))


def shown(value: object) -> str:
    """A foreign value for a message: short, on one line, printable, and without the password of a URL."""
    if isinstance(value, str) and len(value) <= _LONGEST_URL:
        value = _PASSWORD.sub("***", value)
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python refuses to print a number of more than 4300 digits
        return "a number of thousands of digits"


def with_home(path: Path) -> Path | None:
    """The path with its `~` written out; None where the home is not known, as of a container's user without a name."""
    try:
        return path.expanduser()
    except RuntimeError:
        return None


def unknown_name(noun: str, name: object, known: list[str]) -> str:
    """The sentence for a name that is none of the known ones."""
    near = get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return f"unknown {noun} {shown(name)}{hint} there are: {', '.join(known)}"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands: goes step by step into a configuration and its type."""

    kind: Any
    value: Any
    key: str

    def at_field(self, name: str) -> "_Place":
        field = next(field for field in _fields(self.kind) if field.encode_name == name)
        value = self.value.get(name) if isinstance(self.value, Mapping) else None
        return _Place(field.type, value, f"{self.key}.{name}" if self.key else name)

    def at_item(self, index: int) -> "_Place":
        kind = next((kind for kind in _alternatives(self.kind) if get_origin(kind) in (list, tuple)), None)
        if kind is None:  # a named tuple, which is described whole
            return self
        return _Place(get_args(kind)[0], self.value[index], f"{self.key}[{index}]")

    def at_wrong_value(self) -> "_Place":
        """msgspec does not say which value of a mapping it refused: the first that it refuses again."""
        kind = next(kind for kind in _alternatives(self.kind) if get_origin(kind) is dict)
        of_value = get_args(kind)[1]
        name, value = next((name, value) for name, value in self.value.items() if not _fits(value, of_value))
        return _Place(of_value, value, f"{self.key}.{name}")


def _find_place(message: str, config: object, kind: Any, key: str) -> _Place:
    place = _Place(kind, config, key)
    path = re.search(r"`\$(?P<path>[^`]*)`$", message)
    for field, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path["path"] if path else ""):
        if field:
            place = place.at_field(field)
        else:
            place = place.at_wrong_value() if index == "..." else place.at_item(int(index))
    return place


def _alternatives(kind: Any) -> Iterator[Any]:
    """The types of a union, without their constraints."""
    if get_origin(kind) is Annotated:
        yield from _alternatives(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            yield from _alternatives(member)
    else:
        yield kind


def _fits(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _unknown(name: str, kind: Any) -> str:
    return unknown_name("setting", name, [field.encode_name for field in _fields(kind)])


def _fields(kind: Any) -> Iterator[msgspec.structs.FieldInfo]:
    """The fields of a struct type, which may be optional."""
    for one in _alternatives(kind):
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            yield from msgspec.structs.fields(one)


def _is_text(value: object) -> bool:
    """False for text that no file name, answer or network takes: command lines bring any bytes, and YAML any escape.
    A path may hold any byte but NUL."""
    match value:
        case str():
            return "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
        case Path():
            return "\0" not in str(value)
        case _:
            return True


def _at(key: str, sentence: str) -> str:
    return f"{key}: {sentence}" if key else sentence


def _describe(kind: inspect.Type) -> str:  # noqa: C901, PLR0911 - one answer for each kind
    match kind:
        case inspect.Metadata(extra_json_schema={"description": str(text)}):
            return text
        case inspect.Metadata(type=inner):
            return _describe(inner)
        case inspect.IntType(ge=least, le=most):
            return "a whole number" + _bounds(least, most)
        case inspect.FloatType(ge=least, le=most):
            return "a number" + _bounds(least, most)
        case inspect.BoolType():
            return "true or false"
        case inspect.EnumType(cls=names):
            return f"one of: {', '.join(str(member.value) for member in names)}"
        case inspect.LiteralType(values=names):
            return f"one of: {', '.join(map(str, names))}"
        case inspect.UnionType(types=types):
            return " or ".join(_describe(one) for one in types if not isinstance(one, inspect.NoneType))
        case inspect.ListType() | inspect.VarTupleType():
            return "a list"
        case inspect.DictType() | inspect.StructType():
            return "a mapping"
        case inspect.CustomType(cls=cls):
            return _DESCRIPTIONS.get(cls, f"what makes {cls.__name__}")
        case _:
            return "text"


def _bounds(least: float | None, most: float | None) -> str:
    match least, most:
        case None, None:
            return ""
        case _, None:
            return f" of {least} or more"
        case None, _:
            return f" of {most} or less"
        case _:
            return f" from {least} to {most}"


def _read_size(value: object) -> _Size:
    if isinstance(value, str):
        return _Size(parse_bytes(value))
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{shown(value)} is not a size; write it like 40GiB, 512MiB or 80GB")
    return _Size(value)


def _read_path(value: object) -> Path:
    if not (isinstance(value, str) and value):
        raise InputError(f"{shown(value)} is not a path")
    path = with_home(Path(value))
    if path is None:
        raise InputError(f"{shown(value)}: that home directory is not known; write the whole path")
    return path


_NO_TEXT = "{} holds what is not UTF-8, or a NUL; write plain text"
"""The value is not shown: it may be a secret."""
_READERS: Mapping[type, Callable[[object], Any]] = {_Size: _read_size, Path: _read_path}
_DESCRIPTIONS = {_Size: "a size such as 8GiB", Path: "a path"}
_PASSWORD = re.compile(r"(?<=://)\S*(?=@)|(?<=password=)[^&\s]+")
_LONGEST_URL = 4096
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


class _YamlReader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, where YAML's readers silently take the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} stands twice", key.start_mark)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)


def load_yaml(text: str | bytes) -> object:
    """What a person wrote. Raises yaml.YAMLError, ValueError (an impossible date), or RecursionError."""
    return yaml.load(text, _YamlReader)  # noqa: S506 - a safe one
