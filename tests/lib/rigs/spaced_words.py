"""A tokenizer in SentencePiece's manner for a tiny model: words hold the space before them, and a text's first word has
none when it is read."""

from itertools import product

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

_VOCAB_SIZE = 384
"""That of tiny models."""
_SPECIAL = ["<unk>", "</s>", "<s>"]
_LETTERS = "abcdefghijklmnopqrstuvwxyz.▁"
_TEMPLATE = (
    "{% for message in messages %}{{ message.content }}{% endfor %}{% if add_generation_prompt %} assistant{% endif %}"
)


def save_spaced_words(folder, *, num_bytes=256):
    """Tokens for bytes, for letters, and for words with their space."""
    first = 0 if num_bytes == 256 else 0xC2
    own = [*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(first, first + num_bytes)), *_LETTERS, "▁a", "▁yes"]
    pairs = (f"▁{one}{other}" for one, other in product("bcdfghjklmnpqrstvwxz", "aeiouylmnrstvwxz"))
    words = [*own, *pairs][:_VOCAB_SIZE]
    tokens = Tokenizer(BPE({word: i for i, word in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True))
    tokens.pre_tokenizer = pre_tokenizers.Metaspace()
    tokens.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = {"unk_token": "<unk>", "eos_token": "</s>", "bos_token": "<s>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, **special)
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)
