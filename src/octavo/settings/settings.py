"""`Settings`: what a person configures, as a frozen struct that checks itself."""

import ast
from collections.abc import Callable, Mapping, Sequence
from inspect import getsource
from itertools import pairwise
from textwrap import dedent
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, Self, cast

import msgspec

from octavo.errors import InputError
from octavo.settings.complaints import explain
from octavo.settings.values import READERS, ParsedSize, is_text

_NO_TEXT = "{} holds what is not UTF-8, or a NUL; write plain text"
"""The value is not shown: it may be a secret."""


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
        except UnicodeEncodeError:  # text where msgspec wants something else
            cls._refuse(_NO_TEXT.format("a value"))

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            checked = self.check_value(field, getattr(self, field.name), key=field.encode_name)
            msgspec.structs.force_setattr(
                self, field.name, int(checked) if isinstance(checked, ParsedSize) else checked
            )

    @classmethod
    def check_value(cls, field: msgspec.structs.FieldInfo, value: object, *, key: str) -> Any:
        """The checked value of one field. InputError calls it `key`."""
        try:
            checked = msgspec.convert(value, field.type, dec_hook=cls._read)
        except UnicodeEncodeError:
            raise InputError(_NO_TEXT.format(key)) from None
        except msgspec.ValidationError as error:
            raise InputError(explain(error, value, field.type, key=key).sentence) from None
        if not all(map(is_text, checked if isinstance(checked, tuple) else (checked,))):
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
            return {**READERS, **cls.readers}[kind](value)
        except InputError as error:
            raise ValueError(str(error)) from error


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
