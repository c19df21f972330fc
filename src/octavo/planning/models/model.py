"""The input of a family's reader: the model's configuration, and what a person asked for."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from octavo.errors import ModelConfigError, UnknownArchitectureError
from octavo.planning.models.config_view import ConfigView
from octavo.planning.models.model_layers import MAX_LAYERS, Layers
from octavo.settings import shown
from octavo.specs import CacheDType
from octavo.units import counted

_RENAMED_WORDS = {
    "attention": "full_attention",
    "mamba": "linear_attention",
    "deepseek_sparse_attention": "indexed_attention",
}
"""Layer types as older configs spell them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a person asked for, and the model's own type of numbers."""

    block_size: int
    kv_dtype: CacheDType
    model_dtype: CacheDType
    tensor_parallel_size: int
    state_dtype: CacheDType | None
    """The type of recurrent state; None takes the config's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model being read. Readers add their guesses to `notes`."""

    view: ConfigView
    target: Target
    architecture: str
    notes: list[str] = field(default_factory=list)

    @property
    def num_layers(self) -> int:
        return self.checked_num_layers("num_hidden_layers", self.view.count("num_hidden_layers"))

    def checked_num_layers(self, key: str, number: int) -> int:
        if number > MAX_LAYERS:
            raise self.view.problem(key, f"asks for {number} layers; more than {MAX_LAYERS} are refused")
        return number

    def layer_words(self, *keys: str, default: Callable[[int], str], known: Collection[str]) -> tuple[str, ...]:
        """The type of each layer: from the first of `keys` that is there, else by index."""
        for key in keys:
            words = self.view.find_words(key)
            if words is not None:
                return self.checked_words(key, words, known)
        return tuple(default(index) for index in range(self.num_layers))

    def layer_counts(self, key: str, view: ConfigView | None = None) -> tuple[int, ...] | None:
        """The number that a list gives each layer; None without such a list, or with an empty one, as files have it
        that leave the choice to the class. Numbers of draft layers may follow."""
        view = view or self.view
        numbers = view.find_counts(key)
        if numbers and len(numbers) < self.num_layers:
            raise view.problem(key, f"lists {counted(len(numbers), 'layer')}, but there are {self.num_layers}")
        return numbers[: self.num_layers] if numbers else None

    def numbered_words(self, key: str, words: tuple[str, ...]) -> tuple[str, ...] | None:
        """The type of each layer, where a list gives it as an index into `words`; None without such a list."""
        numbers = self.view.find_counts(key)
        if numbers is None:
            return None
        return self.checked_words(key, tuple(words[n] if n < len(words) else str(n) for n in numbers), words)

    def checked_words(
        self, key: str, words: tuple[str, ...], known: Collection[str], *, num_layers: int | None = None
    ) -> tuple[str, ...]:
        self.checked_num_layers(key, len(words))
        expected = num_layers or self.num_layers
        if len(words) != expected:
            raise self.view.problem(
                key,
                f"lists {counted(len(words), 'layer')}, but num_hidden_layers = {expected}; they must be equally many",
            )
        renamed = tuple(_RENAMED_WORDS.get(word, word) for word in words)
        for index, word in enumerate(renamed):
            if word not in known:
                raise self.unknown(f"{key}[{index}] = {shown(words[index])} is none of {', '.join(sorted(known))}")
        return renamed

    def unknown(self, what: str) -> UnknownArchitectureError:
        return UnknownArchitectureError(
            f"{self.view.source}: {self.architecture}: {what}. "
            "Describe the layers yourself: octavo plan --layers spec.yaml"
        )

    def unsplittable(self, what: str, total: int, *, otherwise: str = "") -> ModelConfigError:
        """The error for a share that is not whole. `otherwise` is the second way that is barred too."""
        ranks = f"over tensor_parallel_size = {self.target.tensor_parallel_size}"
        how = f"can neither be split {ranks} nor {otherwise}" if otherwise else f"cannot be split {ranks}"
        return ModelConfigError(f"{self.view.source}: {what} = {total} {how}")

    def per_rank(self, total: int, what: str) -> int:
        """This rank's share of a number that cannot be replicated."""
        ranks = self.target.tensor_parallel_size
        if total % ranks:
            raise self.unsplittable(what, total)
        return total // ranks


Reader = Callable[[Model], Layers]
