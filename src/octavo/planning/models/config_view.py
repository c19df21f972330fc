"""Typed access to the keys of a config.json: an answer has its type, or an error names file, key and value."""

from collections.abc import Mapping, Sequence

from octavo.errors import ModelConfigError
from octavo.settings import shown

MAX_COUNT = 10**12
"""The largest number that a key may hold. No dimension comes near it."""
MAX_WORD_LENGTH = 200


class ConfigView:
    """One JSON object of a configuration, with the defaults of the class that would read it.

    A key that is absent has its default, if there is one, and is then listed in `defaulted`. A key that is null is
    absent for the `find_` methods. `asked` has the keys that a reader looked at. `names` has the keys that this class
    spells in its own way, by the usual ones.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        *,
        source: str,
        path: str = "",
        defaults: Mapping[str, object] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.values = values
        self.source = source
        self.path = path
        self.defaults = defaults or {}
        self.names = names or {}
        self.defaulted: dict[str, object] = {}
        self.asked: set[str] = set()

    def read_as(self, defaults: Mapping[str, object], names: Mapping[str, str]) -> "ConfigView":
        """The same object, as a class with these defaults and names reads it."""
        return ConfigView(self.values, source=self.source, path=self.path, defaults=defaults, names=names)

    def overlaid(self, other: "ConfigView") -> "ConfigView":
        """This object, in which the keys of another one have precedence."""
        merged = ConfigView({**self.values, **other.values}, source=self.source, path=self.path, defaults=self.defaults)
        merged.names = self.names
        merged.defaulted, merged.asked = self.defaulted, self.asked
        return merged

    def problem(self, key: str, text: str) -> ModelConfigError:
        return ModelConfigError(f"{self.source}: {self.path}{self._name(key)} {text}")

    def has(self, key: str) -> bool:
        """Whether the file itself gives the key a value."""
        return self.values.get(self._name(key)) is not None

    def count(self, *keys: str, minimum: int = 1) -> int:
        """The whole number under the first of `keys` that has one."""
        for key in keys:
            number = self.find_count(key, minimum=minimum)
            if number is not None:
                return number
        others = f" (nor has it {' or '.join(keys[1:])})" if keys[1:] else ""
        raise self.problem(keys[0], f"is missing, and nothing else says how large it is{others}")

    def find_count(self, key: str, *, minimum: int = 1) -> int | None:
        value = self._get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.problem(key, f"must be a whole number of {minimum} or more, not {shown(value)}")
        if value > MAX_COUNT:
            raise self.problem(key, f"is {shown(value)}; more than {MAX_COUNT} is no size of a model")
        return value

    def flag(self, key: str) -> bool:
        """A switch; False if the key is absent."""
        value = self._get(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.problem(key, f"must be true or false, not {shown(value)}")
        return value

    def find_word(self, key: str) -> str | None:
        value = self._get(key)
        return None if value is None else self._checked_word(key, value)

    def find_pattern(self, key: str) -> str | None:
        """Text in which every letter stands for a layer."""
        value = self._get(key)
        if value is not None and not isinstance(value, str):
            raise self.problem(key, f"must be text, not {shown(value)}")
        return value

    def find_words(self, key: str) -> tuple[str, ...] | None:
        value = self._get(key)
        return (
            None if value is None else tuple(self._checked_word(key, word) for word in self._checked_list(key, value))
        )

    def find_counts(self, key: str) -> tuple[int, ...] | None:
        """A list of indices or of zeros and ones."""
        value = self._get(key)
        if value is None:
            return None
        numbers = self._checked_list(key, value)
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise self.problem(key, f"must list whole numbers of 0 or more, not {shown(number)}")
        return tuple(n for n in numbers if isinstance(n, int))

    def find_part(self, key: str) -> "ConfigView | None":
        """The JSON object under a key."""
        value = self._get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.problem(key, f"must be an object, not {shown(value)}")
        return ConfigView(value, source=self.source, path=f"{self.path}{key}.")

    def _get(self, key: str) -> object:
        name = self._name(key)
        self.asked.add(name)
        if name not in self.values and key in self.defaults:
            self.defaulted[key] = self.defaults[key]
            return self.defaults[key]
        return self.values.get(name)

    def _name(self, key: str) -> str:
        """As the file spells the key."""
        return key if key in self.values else self.names.get(key, key)

    def _checked_list(self, key: str, value: object) -> Sequence[object]:
        if not isinstance(value, list | tuple):
            raise self.problem(key, f"must be a list, not {shown(value)}")
        return value

    def _checked_word(self, key: str, value: object) -> str:
        if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= MAX_WORD_LENGTH:
            raise self.problem(key, f"must be text of 1 to {MAX_WORD_LENGTH} characters, not {shown(value)}")
        return value
