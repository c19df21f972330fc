"""A model folder's tokenizer. Nothing is read over the network."""

from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from transformers import AutoTokenizer

from octavo.engine.detokenizer import TokenDecoder
from octavo.engine.models.folder_files import check_tokenizer_config
from octavo.errors import ModelConfigError

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
_PLAIN_TEXT = "Hello, world!"
"""A text that every tokenizer for text can encode."""


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
    try:
        tokenizer.decode(tokenizer.encode(_PLAIN_TEXT))
    except Exception as error:  # what is wrong in its files may not show before
        raise ModelConfigError(
            f"{folder}: the tokenizer ({type(tokenizer).__name__}) cannot encode {_PLAIN_TEXT!r}: {error}; compare its "
            f"files ({', '.join(_TOKENIZER_FILES)}) with their source"
        ) from error
    return cast("FastTokenizer", tokenizer)


class AddedToken(NamedTuple):
    """A text that is one token, whatever is around it."""

    token_id: int
    is_special: bool
    """Whether it is left out where special tokens are skipped."""


def find_added_token(tokenizer: FastTokenizer, text: str) -> AddedToken | None:
    """The added token with this text."""
    added: dict[int, Any] = cast("Any", tokenizer).added_tokens_decoder
    return next((AddedToken(number, token.special) for number, token in added.items() if token.content == text), None)
