"""`TextOffsets`: where the tokens of a text begin in it, for log-probabilities."""

from collections.abc import Sequence

from octavo.engine import Detokenizer, FastTokenizer


class TextOffsets:
    """Where the tokens of a text begin in it, one after the other."""

    def __init__(
        self,
        tokenizer: FastTokenizer | None,
        *,
        before: Sequence[int] = (),
        skip_special_tokens: bool = False,
        start: int = 0,
    ) -> None:
        """Without a tokenizer there is no text."""
        self.end = start
        """Of what has come so far."""
        self._pieces: Detokenizer | None = None
        if tokenizer is not None:
            self._pieces = Detokenizer(
                tokenizer.backend_tokenizer, before=before, skip_special_tokens=skip_special_tokens
            )

    def add(self, token_id: int) -> int:
        """Where the next token begins. The tokens of one character begin where it does."""
        begin = self.end
        if self._pieces is not None:
            self.end += len(self._pieces.push(token_id))
        return begin


def prompt_offsets(tokenizer: FastTokenizer | None, token_ids: Sequence[int], text: str) -> list[int]:
    """Where a prompt's tokens begin in its text, which need not show the special ones at its beginning."""
    offsets = TextOffsets(tokenizer)
    begins = [offsets.add(token_id) for token_id in token_ids]
    num_unseen = offsets.end - len(text)
    return [max(0, begin - max(0, num_unseen)) for begin in begins]
