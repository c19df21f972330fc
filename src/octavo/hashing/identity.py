"""`RequestIdentity`: what tells requests with equal tokens apart, and the extra keys that it puts into block hashes.

Every key is a tuple that starts with the name of its source, so that no value of one source can be taken for a value
of another. Keys, their order and the blocks they belong to are vLLM 0.32's, so that hashes and events of both join;
`lora_digest` and `encoder` are Octavo's own. A source that is absent is None; an empty one is refused, so that
"empty" and "absent" cannot be confused.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from octavo.errors import InputError

ExtraKeys: TypeAlias = tuple[tuple[str | bytes | int, ...], ...]
"""The extra keys of one block; empty where there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiModalItem:
    """An image, a sound or a video, whose placeholders are tokens `[offset, offset + length)` of the request.

    `identifier` names the item's content: equal identifiers must mean equal embeddings.
    """

    identifier: str
    offset: int
    length: int

    def __post_init__(self) -> None:
        _require_text(self, "identifier")
        _require_int(self, "offset", at_least=0)
        _require_int(self, "length", at_least=1)

    @property
    def end(self) -> int:
        return self.offset + self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptEmbeds:
    """Embeddings that stand in for the prompt's tokens: the raw rows from token 0 on, `bytes_per_token` each.

    `bytes_per_token` is a property of the model and takes no part in the hash. Tokens at these positions are hashed as
    they are given; vLLM gives zeros.
    """

    data: bytes
    bytes_per_token: int

    def __post_init__(self) -> None:
        _require_int(self, "bytes_per_token", at_least=1)
        _require_bytes(self, "data")
        if len(self.data) % self.bytes_per_token:
            raise InputError(
                f"PromptEmbeds: {len(self.data)} bytes are not whole rows of bytes_per_token = {self.bytes_per_token}"
            )

    def digest(self, tokens: range) -> bytes:
        """The digest of the rows of `tokens`; that of no bytes past the end of the prompt."""
        rows = memoryview(self.data)[tokens.start * self.bytes_per_token : tokens.stop * self.bytes_per_token]
        return sha256(rows).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestIdentity:
    """All that decides a request's KV apart from its tokens; fixed while the request lives.

    `lora_path` takes part because vLLM's does; `lora_digest` digests the adapter's content. `cache_salt` is a tenant's
    secret: requests share KV only under the same salt. `multimodal` is sorted by offset; items may overlap.
    `encoder_digest` digests the encoder's whole input: through cross-attention every decoder token depends on it.
    """

    lora_name: str | None = None
    lora_path: str = ""
    lora_digest: bytes | None = None
    cache_salt: str | None = None
    multimodal: tuple[MultiModalItem, ...] = ()
    prompt_embeds: PromptEmbeds | None = None
    encoder_digest: bytes | None = None

    def __post_init__(self) -> None:
        for name in ("lora_name", "cache_salt"):
            if getattr(self, name) is not None:
                _require_text(self, name)
        for name in ("lora_digest", "encoder_digest"):
            if getattr(self, name) is not None:
                _require_bytes(self, name)
        if self.lora_path:
            _require_text(self, "lora_path")
        if self.lora_name is None and (self.lora_path or self.lora_digest is not None):
            raise InputError("RequestIdentity: lora_path and lora_digest need a lora_name")
        offsets = [item.offset for item in self.multimodal]
        if offsets != sorted(offsets):
            raise InputError(f"RequestIdentity: multimodal items must be sorted by offset, not {offsets}")

    def extra_keys_of_blocks(self, blocks: range, hash_block_size: int) -> list[ExtraKeys]:
        """The extra keys of each of `blocks`, as they are hashed."""
        common, own = self.sparse_extra_keys(blocks, hash_block_size)
        return [own.get(k, common) for k in blocks]

    def sparse_extra_keys(
        self, blocks: range, hash_block_size: int, *, lookahead_tokens: int = 0
    ) -> tuple[ExtraKeys, dict[int, ExtraKeys]]:
        """The extra keys that most of `blocks` share, and those of the blocks that have their own, by block index.

        A block's keys cover `lookahead_tokens` after it too. What the chain carries on stands in the first block only;
        that LoRA stands in every block is vLLM's way.
        """
        lora: ExtraKeys = ()
        if self.lora_name is not None:
            lora = (("lora", self.lora_name, self.lora_path),)
            if self.lora_digest is not None:
                lora += (("lora_digest", self.lora_digest),)
        if blocks.start > 0 and not self.multimodal and self.prompt_embeds is None:
            return lora, {}

        salt: ExtraKeys = () if self.cache_salt is None else (("cache_salt", self.cache_salt),)
        encoder: ExtraKeys = () if self.encoder_digest is None else (("encoder", self.encoder_digest),)
        items = self._items_by_block(blocks, hash_block_size, lookahead_tokens)
        special = {*items, *blocks[:1]} if self.prompt_embeds is None else blocks
        own: dict[int, ExtraKeys] = {}
        for k in special:
            first = k == 0
            end = (k + 1) * hash_block_size + lookahead_tokens
            embeds = self._prompt_embeds_key(range(k * hash_block_size, end))
            own[k] = lora + items.get(k, ()) + (salt if first else ()) + embeds + (encoder if first else ())
        return lora, own

    def _items_by_block(self, blocks: range, hash_block_size: int, lookahead_tokens: int) -> dict[int, ExtraKeys]:
        """Each block's items, with their offsets relative to the block: negative where an item began before it."""
        by_block: dict[int, ExtraKeys] = {}
        for item in self.multimodal:
            first_block = max(blocks.start, (item.offset - lookahead_tokens) // hash_block_size)
            end_block = min(blocks.stop, (item.end - 1) // hash_block_size + 1)
            for k in range(first_block, end_block):
                key = ("mm", item.identifier, item.offset - k * hash_block_size)
                by_block[k] = (*by_block.get(k, ()), key)
        return by_block

    def _prompt_embeds_key(self, tokens: range) -> ExtraKeys:
        return () if self.prompt_embeds is None else (("prompt_embeds", self.prompt_embeds.digest(tokens)),)


PLAIN = RequestIdentity()
"""The identity of a request that has only tokens."""


def _require_text(value: object, name: str) -> None:
    text = getattr(value, name)
    if not isinstance(text, str) or not text:
        raise InputError(f"{type(value).__name__}: {name} must be a non-empty string, not {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError as e:  # JSON can carry half a surrogate pair
        raise InputError(f"{type(value).__name__}: {name} must be valid Unicode, not {text!r}") from e


def _require_bytes(value: object, name: str) -> None:
    data = getattr(value, name)
    if not isinstance(data, bytes) or not data:
        raise InputError(f"{type(value).__name__}: {name} must be non-empty bytes, not {data!r}")


def _require_int(value: object, name: str, *, at_least: int) -> None:
    number = getattr(value, name)
    if not isinstance(number, int) or number < at_least:
        raise InputError(f"{type(value).__name__}: {name} must be a whole number of {at_least} or more, not {number!r}")
