"""A model folder's tokenizer. Nothing is read over the network."""

from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from tokenizers import Tokenizer
from transformers import AutoTokenizer

from octavo.engine.detokenizer import TokenDecoder
from octavo.engine.models.folder_files import check_tokenizer_config
from octavo.errors import ModelConfigError

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
_PLAIN_TEXT = "Hello, world!"
"""A text that every tokenizer for text can encode. One for DNA or for moves of chess need not."""
_FEW_WORDS = 64
"""The words of a tokenizer's own that are tried."""


class FastTokenizer(Protocol):
    """What the engine and its server use of a Hugging Face fast tokenizer."""

    chat_template: Any
    backend_tokenizer: TokenDecoder

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = False) -> str: ...
    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...


def load_tokenizer(folder: str | Path) -> FastTokenizer | None:
    """The folder's tokenizer. None if it has none: then prompts and outputs are token ids only."""
    folder = Path(folder)
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return None
    check_tokenizer_config(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False, use_fast=True)
    except Exception as error:  # a tokenizer's files can make its loader raise anything
        raise ModelConfigError(f"{folder}: the tokenizer cannot be loaded: {error}") from error
    if not getattr(tokenizer, "is_fast", False):
        raise ModelConfigError(f"{folder}: {type(tokenizer).__name__} is not a fast tokenizer; add a tokenizer.json")
    _check_encoding(tokenizer, folder)
    return cast("FastTokenizer", tokenizer)


def _check_encoding(tokenizer: Any, folder: Path) -> None:
    """Raises ModelConfigError if the tokenizer cannot encode plain text, but for one with an alphabet of its own."""
    error = _why_not_encoded(tokenizer, _PLAIN_TEXT)
    if error is None or _has_own_alphabet(tokenizer, folder):
        return
    raise ModelConfigError(
        f"{folder}: the tokenizer ({type(tokenizer).__name__}) cannot encode {_PLAIN_TEXT!r}: {error}; compare its "
        f"files ({', '.join(_TOKENIZER_FILES)}) with their source"
    ) from error


def _has_own_alphabet(tokenizer: Any, folder: Path) -> bool:
    """Whether it encodes its own words, and tokenizer.json alone encodes no plain text either. Else its files do not
    belong together."""
    own = [word for word in sorted(tokenizer.get_vocab()) if word not in tokenizer.all_special_tokens]
    if any(_why_not_encoded(tokenizer, word) for word in own[:_FEW_WORDS]):
        return False
    file = folder / "tokenizer.json"
    return file.is_file() and _why_not_encoded(Tokenizer.from_file(str(file)), _PLAIN_TEXT) is not None


def _why_not_encoded(tokenizer: Any, text: str) -> Exception | None:
    try:
        encoded = tokenizer.encode(text)
        tokenizer.decode(encoded if isinstance(encoded, list) else encoded.ids)
    except Exception as error:  # noqa: BLE001 - what is wrong in its files may raise anything
        return error
    return None


class AddedToken(NamedTuple):
    """A text that is one token, whatever is around it."""

    token_id: int
    is_special: bool
    """Whether it is left out where special tokens are skipped."""


def find_added_token(tokenizer: FastTokenizer, text: str) -> AddedToken | None:
    """The added token with this text."""
    added: dict[int, Any] = cast("Any", tokenizer).added_tokens_decoder
    return next((AddedToken(number, token.special) for number, token in added.items() if token.content == text), None)
